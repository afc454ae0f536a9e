//! Reads the lists of waiting jobs for an audit, page by page from the back, while workers change them.

use super::Inspector;
use crate::backend::audit;
use crate::backend::keys::{Key, TaskKeys};
use crate::error::Error;

/// How many entries of a list one call reads.
const PAGE: u64 = 1000;

/// How many entries one call reads to find where the last page ended.
const SEARCHED: u64 = 10_000;

/// How many entries mark the place where the unread ones begin. One is too few, because an id may be in a list several times.
const LAST: usize = 4;

/// The lists of waiting jobs, and the lanes.
const LISTS: [Key; 4] = [Key::WaitHigh, Key::Wait, Key::WaitLow, Key::Lanes];

/// How far the lists were read, each from the back.
#[derive(Clone, Debug, Default)]
pub(super) struct ListPlace {
    list: usize,
    /// How many entries from the back were read. More may have arrived there since.
    seen: u64,
    /// The last entries that were read: only one for the lanes.
    last: Vec<String>,
}

impl ListPlace {
    /// Adds a page that begins `self.seen` entries from the back. Returns the new entries in it, and the next place, if any.
    ///
    /// New entries at the back move the others away from it. Changes at the front do not. So the last entries that were read are where
    /// they were, or further from the back. If they are gone, the entries before them are gone, too.
    fn after(mut self, page: Vec<String>, asked: u64) -> (Vec<String>, Option<ListPlace>) {
        let is_end = (page.len() as u64) < asked;
        let met =
            if self.last.is_empty() { Some(0) } else { page.windows(self.last.len()).position(|w| w == self.last) };
        let fresh = match met {
            Some(at) => page[at + self.last.len()..].to_vec(),
            None => Vec::new(),
        };
        if is_end {
            let next = ListPlace { list: self.list + 1, ..ListPlace::default() };
            return (fresh, (next.list < LISTS.len()).then_some(next));
        }
        if met.is_some() {
            self.last = page[page.len().saturating_sub(LAST)..].to_vec();
        }
        // Read the last entries again, since they may fall on the edge of two pages.
        self.seen += page.len().saturating_sub(self.last.len()) as u64;
        (fresh, Some(self))
    }
}

impl Inspector {
    /// The new entries of the next page, and the next place.
    pub(super) async fn page_of_list(
        &self,
        keys: &TaskKeys,
        place: ListPlace,
    ) -> Result<(Vec<String>, Option<ListPlace>), Error> {
        let (list, mut place, mut asked) = (LISTS[place.list], place, PAGE);
        if list == Key::Lanes {
            // Entries come and go anywhere in the lanes, so a page begins after the last entry that was read.
            let last = place.last.pop();
            let entries = self.ask(async |conn| audit::page_of_lanes(conn, keys, last.as_deref(), PAGE).await).await?;
            place.last = entries.last().cloned().into_iter().collect();
            let next = (entries.len() as u64 == PAGE).then_some(place);
            let ids = entries.iter().map(|entry| entry.rsplit('\0').next().unwrap_or_default().to_owned());
            return Ok((ids.collect(), next));
        }
        loop {
            let seen = place.seen;
            let (fresh, next) = place
                .after(self.ask(async |conn| audit::page_of_list(conn, keys, list, seen, asked).await).await?, asked);
            match next {
                // New entries fill the whole page. Read larger pages to keep up.
                Some(next) if fresh.is_empty() && LISTS[next.list] == list => (place, asked) = (next, SEARCHED),
                next => return Ok((fresh, next)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(range: std::ops::Range<u64>) -> Vec<String> {
        range.map(|id| id.to_string()).collect()
    }

    /// Reads a list from its back, 0, 1, 2 and so on, while `coming` entries arrive at the back between two pages.
    fn read(entries: u64, coming: impl Fn(usize) -> u64, asked: u64) -> Vec<String> {
        let (mut list, mut read, mut pages) = (ids(0..entries), Vec::new(), 0);
        let mut place = ListPlace::default();
        loop {
            let from = (place.seen as usize).min(list.len());
            let to = (from + asked as usize).min(list.len());
            let (fresh, next) = place.after(list[from..to].to_vec(), asked);
            read.extend(fresh);
            match next {
                Some(next) if next.list == 0 => place = next,
                _ => return read,
            }
            for n in 0..coming(pages) {
                list.insert(0, format!("new {pages} {n}"));
            }
            pages += 1;
            assert!(pages < 10_000);
        }
    }

    #[test]
    fn every_entry_that_stays_is_read_once_while_others_arrive() {
        for coming in [0, 1, 3, 50, 95] {
            for entries in [0, 1, 99, 100, 101, 1_000] {
                assert_eq!(read(entries, |_| coming, 100), ids(0..entries), "{coming} arrive after {entries}");
            }
        }
        // More than a page at once, now and then.
        assert_eq!(read(500, |page| if page % 5 == 0 { 250 } else { 0 }, 100), ids(0..500));
    }

    #[test]
    fn if_the_last_entries_read_are_gone_so_are_all_before_them() {
        let (fresh, next) = ListPlace::default().after(ids(0..100), 100);
        assert_eq!(fresh, ids(0..100));
        // Only the newest entries are left, and one that was put in front since.
        let left = [ids(0..20), vec!["in front".to_owned()]].concat();
        let place = next.unwrap();
        let (fresh, next) = place.clone().after(left[..0].to_vec(), 100);
        assert_eq!((fresh.len(), next.unwrap().list), (0, 1));
        // An id that is in the list twice does not hide the entry before it.
        let twice = ListPlace { last: ["a", "b", "c", "d"].map(String::from).to_vec(), ..place };
        let page = ["d", "a", "b", "c", "d", "e"].map(String::from).to_vec();
        assert_eq!(twice.after(page, 100).0, ["e"]);
    }
}
