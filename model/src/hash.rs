//! Hashes of states. Most of the search is hashing, so each part is one number.

use std::hash::{Hash, Hasher};

use crate::server::{Server, Token};
use crate::worker::Worker;

/// A number for each value of an optional small number.
fn optional(value: Option<u8>) -> u8 {
    value.map_or(0, |value| value.wrapping_add(1))
}

fn of_lock(lock: Option<Token>) -> u8 {
    lock.map_or(0, |(worker, fence)| 1 + fence * 2 + worker as u8)
}

impl Hash for Server {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let sets = self.waiting | self.active << 2 | self.candidates << 4 | self.ended << 6;
        let counts = self.stalls[0] | self.stalls[1] << 2 | self.ends[0] << 4 | self.ends[1] << 6;
        let [first, second] = self.locks.map(of_lock);
        let bytes = [sets, counts, first, second, self.epoch, self.interval, self.ask, 0];
        hasher.write_u64(u64::from_le_bytes(bytes));
    }
}

impl Hash for Worker {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let flags = self.process as u8 | u8::from(self.is_cut_off) << 2 | u8::from(self.is_connected) << 3;
        let flags = flags | u8::from(self.note.is_some()) << 4;
        let note = self.note.map_or([0; 3], |note| [note.epoch, note.interval, note.since]);
        let held = self.held.map(optional);
        let bytes = [
            flags,
            self.due as u8,
            self.wait << 4 | self.well_for,
            note[0],
            note[1] << 4 | note[2],
            held[0],
            held[1],
            0,
        ];
        hasher.write_u64(u64::from_le_bytes(bytes));
    }
}
