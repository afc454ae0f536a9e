//! Reads across the partitions of a task: pages merged from a page of each partition, and cursors that contain one cursor per
//! partition.

use std::cmp::Ordering;
use std::sync::Arc;

use super::Inspector;
use crate::backend::jobs;
use crate::backend::keys::TaskKeys;
use crate::backend::tables::part_of;
use crate::config_error::{ConfigError, ConfigErrors, Faults};
use crate::error::Error;
use crate::job::id::JobId;
use crate::job::state::JobState;
use crate::join::try_join_all;
use crate::limits::BATCH;
use crate::options::validate;

/// The separator of partition cursors. No cursor contains two spaces.
const BETWEEN: &str = "  ";

/// The cursors of a partition that was not read yet, and of one that was read to its end.
const BEGINS: &str = "new";
const ENDED: &str = "end";

/// How far each partition of a task was read. `None`: to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cursors(pub(super) Vec<Option<String>>);

impl Cursors {
    /// Parses the cursor of a task with `parts` partitions. With one partition, it is the cursor of that partition.
    pub(super) fn parse(text: &str, parts: usize) -> Result<Cursors, Error> {
        if parts <= 1 {
            return Ok(Cursors(vec![Some(text.to_owned())]));
        }
        if text.is_empty() {
            return Ok(Cursors(vec![Some(String::new()); parts]));
        }
        let read = |word: &str| match word {
            BEGINS => Some(String::new()),
            ENDED => None,
            word => Some(word.to_owned()),
        };
        let read: Vec<Option<String>> = text.split(BETWEEN).map(read).collect();
        let rule = "must be the `next` of a page of the same task";
        if read.len() == parts && read.iter().any(Option::is_some) {
            Ok(Cursors(read))
        } else {
            Err(config("cursor", text, rule, "begin again without a cursor"))
        }
    }

    /// Parses a cursor of streams. It may also be a point in time, which applies to all partitions.
    pub(super) fn of_streams(text: &str, parts: usize) -> Result<Cursors, Error> {
        match text.is_empty() || text.contains(BETWEEN) {
            true => Cursors::parse(text, parts),
            false => Ok(Cursors(vec![Some(text.to_owned()); parts])),
        }
    }

    /// The cursor of the next page; `None` at the end.
    pub(super) fn text(&self) -> Option<String> {
        if let [only] = &self.0[..] {
            return only.clone();
        }
        if self.0.iter().all(Option::is_none) {
            return None;
        }
        let words = self.0.iter().map(|cursor| match cursor.as_deref() {
            None => ENDED,
            Some("") => BEGINS,
            Some(cursor) => cursor,
        });
        Some(words.collect::<Vec<_>>().join(BETWEEN))
    }

    /// Reads the next page of each partition that is not at its end. Returns the pages in the order of the partitions.
    pub(super) async fn next_pages<T, F>(
        &mut self,
        tables: &[Arc<TaskKeys>],
        read: impl Fn(Arc<TaskKeys>, String) -> F,
    ) -> Result<Vec<Vec<T>>, Error>
    where
        F: Future<Output = Result<(Vec<T>, Option<String>), Error>> + Send,
    {
        let reads = self.0.iter().zip(tables).map(|(cursor, keys)| {
            let page = cursor.clone().map(|cursor| read(Arc::clone(keys), cursor));
            async move {
                match page {
                    Some(page) => page.await,
                    None => Ok((Vec::new(), None)),
                }
            }
        });
        let (pages, next): (Vec<_>, Vec<_>) = try_join_all(reads).await?.into_iter().unzip();
        self.0 = next;
        Ok(pages)
    }
}

/// A page of a partition: its rows, each with the cursor after it, and the cursor of the next page.
pub(super) struct PartPage<T> {
    pub(super) from: Option<String>,
    pub(super) rows: Vec<(T, String)>,
    pub(super) next: Option<String>,
}

/// Merges the pages into their first `limit` rows in this order, and returns the cursors after them. Rows of one partition keep
/// their order.
pub(super) fn merged<T>(
    pages: Vec<PartPage<T>>,
    limit: usize,
    order: impl Fn(&T, &T) -> Ordering,
) -> (Vec<T>, Cursors) {
    let mut first = Vec::with_capacity(limit.min(pages.iter().map(|page| page.rows.len()).sum()));
    let mut left: Vec<_> =
        pages.into_iter().map(|page| (page.from, page.rows.into_iter().peekable(), page.next)).collect();
    while first.len() < limit {
        let heads = left.iter_mut().enumerate().filter_map(|(part, (_, rows, _))| Some((part, &rows.peek()?.0)));
        let Some((part, _)) = heads.min_by(|(_, one), (_, other)| order(one, other)) else { break };
        let (from, rows, _) = &mut left[part];
        if let Some((row, next)) = rows.next() {
            *from = Some(next);
            first.push(row);
        }
    }
    let cursor = |(from, mut rows, next): (Option<String>, std::iter::Peekable<_>, Option<String>)| {
        if rows.peek().is_some() { from } else { next }
    };
    (first, Cursors(left.into_iter().map(cursor).collect()))
}

impl Inspector {
    /// Checks the name and returns the first table of the task, which has the data of the task as a whole.
    pub(super) fn first(&self, task: &str) -> Result<Arc<TaskKeys>, Error> {
        let mut faults = Faults::default();
        faults.gather(validate::task_name(task));
        faults.finish()?;
        Ok(self.store.tables(task).first())
    }

    /// All tables of a task.
    pub(super) async fn tables(&self, task: &str) -> Result<Arc<[Arc<TaskKeys>]>, Error> {
        self.first(task)?;
        let tables = &self.store.tables(task);
        if tables.is_old() {
            match self.look(async |conn| tables.refresh_over(conn).await).await {
                // Known partitions stay valid while the node of the first one is unreachable.
                Err(e) if e.is_outage() && tables.parts() > 1 => {}
                answer => answer?,
            }
        }
        Ok(tables.all())
    }

    /// All tables of a task as of now, for acts that must reach all of them. If the node of the first one is unreachable, the number
    /// is the last known one, or that of the task's workers.
    pub(super) async fn tables_now(&self, task: &str) -> Result<Arc<[Arc<TaskKeys>]>, Error> {
        self.first(task)?;
        let tables = self.store.tables(task);
        match tables.refresh(&self.store).await {
            Err(e) if e.is_outage() && tables.parts() == 1 => {
                let workers = self.workers().await.unwrap_or_default();
                // A worker that is gone may have known another number, from before the task was forgotten.
                let live = workers.iter().filter(|worker| worker.state.is_live());
                let its = live.flat_map(|worker| &worker.tasks).filter(|its| its.task == task);
                tables.learn(its.map(|its| its.parts).max().filter(|parts| *parts > 1).ok_or(e)?);
            }
            Err(e) if e.is_outage() => {}
            answer => answer?,
        }
        Ok(tables.all())
    }

    /// The table of a job.
    pub(super) async fn table_of(&self, task: &str, id: &JobId) -> Result<Arc<TaskKeys>, Error> {
        let tables = self.tables(task).await?;
        Ok(Arc::clone(&tables[part_of(id.as_str(), tables.len())]))
    }

    /// The states of these jobs of a task, in their order; `None` for a job that does not exist. They are read in calls of bounded size.
    pub async fn job_states(&self, task: &str, ids: &[JobId]) -> Result<Vec<Option<JobState>>, Error> {
        let mut found = Vec::with_capacity(ids.len());
        for some in ids.chunks(BATCH) {
            found.extend(self.states_of(task, some).await?.into_iter().map(|job| job.map(|(state, _)| state)));
        }
        Ok(found)
    }

    /// The state of each job, and the size of its value in bytes if it completed.
    pub(super) async fn states_of(&self, task: &str, ids: &[JobId]) -> Result<Vec<Option<(JobState, usize)>>, Error> {
        self.of_each(task, ids, |keys, own| async move {
            Ok(self.look(async |conn| jobs::states(conn, &keys, &own).await).await?.jobs)
        })
        .await
    }

    /// Reads something of each job from its table.
    pub(super) async fn of_each<T, F>(
        &self,
        task: &str,
        ids: &[JobId],
        read: impl Fn(Arc<TaskKeys>, Vec<JobId>) -> F,
    ) -> Result<Vec<T>, Error>
    where
        T: Clone + Default,
        F: Future<Output = Result<Vec<T>, Error>>,
    {
        let tables = self.tables(task).await?;
        let mut found = vec![T::default(); ids.len()];
        for (keys, places) in tables.iter().zip(by_table(tables.len(), ids, JobId::as_str)) {
            let own: Vec<JobId> = places.iter().map(|at| ids[*at].clone()).collect();
            if !own.is_empty() {
                let looked = read(Arc::clone(keys), own).await?;
                places.into_iter().zip(looked).for_each(|(at, one)| found[at] = one);
            }
        }
        Ok(found)
    }
}

/// An [`Error::Config`] with one fault.
pub(super) fn config(field: &'static str, value: &str, rule: &str, fix: &str) -> Error {
    Error::Config(ConfigErrors::from(ConfigError::new(field, value.to_owned(), rule.to_owned(), fix.to_owned())))
}

/// Groups the indices of items with an id by table.
pub(super) fn by_table<T>(parts: usize, all: &[T], id: impl Fn(&T) -> &str) -> Vec<Vec<usize>> {
    let mut places = vec![Vec::new(); parts];
    for (at, one) in all.iter().enumerate() {
        places[part_of(id(one), parts)].push(at);
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn page(rows: &[u64], next: Option<&str>) -> PartPage<u64> {
        let rows = rows.iter().map(|row| (*row, format!("after {row}"))).collect();
        PartPage { from: Some(String::new()), rows, next: next.map(str::to_owned) }
    }

    #[test]
    fn pages_are_merged_and_none_is_read_twice_or_left_out() {
        let pages = vec![page(&[1, 4, 9], Some("after 9")), page(&[2, 3], None), page(&[8], None)];
        let (rows, cursors) = merged(pages, 4, Ord::cmp);
        assert_eq!(rows, [1, 2, 3, 4]);
        assert_eq!(cursors.text().as_deref(), Some("after 4  end  new"));
        assert_eq!(Cursors::parse("after 4  end  new", 3).unwrap(), cursors);
        let (rows, cursors) = merged(vec![page(&[5], None), page(&[], None)], 4, Ord::cmp);
        assert_eq!((rows, cursors.text()), (vec![5], None));
    }

    #[test]
    fn the_cursor_of_one_partition_is_its_own_and_one_of_another_number_is_refused() {
        assert_eq!(Cursors::parse("17 a", 1).unwrap().text().as_deref(), Some("17 a"));
        assert_eq!(Cursors::parse("", 2).unwrap().text().as_deref(), Some("new  new"));
        assert!(
            Cursors::parse("17 a", 2).is_err()
                && Cursors::parse("new  new  end", 2).is_err()
                && Cursors::parse("end  end", 2).is_err()
        );
    }

    #[test]
    fn any_cursor_is_read_back_or_named_as_wrong() {
        proptest!(|(text in "((new|end|[0-9]{1,20} [a-z]{0,3}|\\PC{0,6})(  )?){0,6}", parts in 1_usize..5)| {
            let _ = Cursors::of_streams(&text, parts);
            match Cursors::parse(&text, parts) {
                Ok(cursors) => {
                    let next = cursors.text().unwrap();
                    prop_assert_eq!(Cursors::parse(&next, parts).unwrap(), cursors);
                }
                Err(e) => prop_assert!(e.to_string().contains("cursor"), "{e}"),
            }
        });
    }
}
