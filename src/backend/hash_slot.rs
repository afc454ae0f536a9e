//! The slot of a key in Redis Cluster: CRC16 (XMODEM) of the key, or of its hash tag, modulo 16,384, as specified.

use redis::{Arg, Cmd};

use crate::crc16::{crc16, crc16_on};

pub(super) const SLOTS: u16 = 16_384;

pub(super) fn slot_of(key: &[u8]) -> u16 {
    crc16(tag_of(key)) % SLOTS
}

/// The part of a key that is hashed: the text between its first brace and the next closing one, unless it is empty.
fn tag_of(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|byte| *byte == b'{') else { return key };
    let rest = &key[open + 1..];
    match rest.iter().position(|byte| *byte == b'}') {
        Some(close @ 1..) => &rest[..close],
        _ => key,
    }
}

/// The hash tag of a later partition: `<task>:<partition>.<number>`. The number is the smallest that spreads the
/// partitions about evenly over the slots, starting from the slot of the task. Nodes own ranges of slots, so tags
/// without such a number could end up on one node.
pub(super) fn tag_of_part(task: &str, part: u32, parts: u32) -> String {
    let (slots, parts) = (u32::from(SLOTS), parts.max(1));
    let ideal = (u32::from(slot_of(task.as_bytes())) + part * slots / parts) % slots;
    let window = (slots / (64 * parts)).max(1);
    let before = crc16(format!("{task}:{part}.").as_bytes());
    let is_near = |number: &u32| {
        let slot = u32::from(crc16_on(before, number.to_string().as_bytes()) % SLOTS);
        let far = slot.abs_diff(ideal);
        far.min(slots - far) <= window
    };
    // Among a million numbers, thousands are near enough.
    let number = (0..1_000_000).find(is_near).unwrap_or(0);
    format!("{task}:{part}.{number}")
}

/// The first key of a command, if it has one. Knows only the commands that the crate sends.
pub(super) fn key_of(cmd: &Cmd) -> Option<&[u8]> {
    let mut args = cmd.args_iter().map(|arg| match arg {
        Arg::Simple(arg) => arg,
        _ => b"",
    });
    match args.next()? {
        b"EVALSHA" | b"EVAL" => match args.nth(1)? {
            b"0" => None,
            _ => args.next(),
        },
        b"XREAD" => args.skip_while(|arg| *arg != b"STREAMS").nth(1),
        b"MEMORY" => args.nth(1),
        b"INFO" | b"TIME" | b"PING" | b"SCRIPT" | b"CLIENT" | b"ROLE" | b"CLUSTER" => None,
        _ => args.next(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_slots_that_servers_compute() {
        // As `CLUSTER KEYSLOT` of Redis 7.0 answers.
        assert_eq!((slot_of(b"foo"), slot_of(b"heartline:{export}:wait")), (12_182, slot_of(b"export")));
        assert_eq!((slot_of(b"{}x"), slot_of(b"{a{b}c}")), (crc16(b"{}x") % SLOTS, slot_of(b"a{b")));
    }

    #[test]
    fn partitions_are_spread_evenly_over_the_slots() {
        for (task, parts) in [("export", 3), ("t", 64), ("a.b-c_d", 7), ("mail", 2)] {
            let slot = |part| match part {
                0 => slot_of(task.as_bytes()),
                part => slot_of(tag_of_part(task, part, parts).as_bytes()),
            };
            for part in 1..parts {
                let ahead = (u32::from(slot(part)) + u32::from(SLOTS) - u32::from(slot(0))) % u32::from(SLOTS);
                let far = ahead.abs_diff(part * u32::from(SLOTS) / parts);
                assert!(far <= (u32::from(SLOTS) / (64 * parts)).max(1), "{task}: {part} of {parts} is off by {far}");
            }
        }
        // Stored data depends on them: the numbers must never change.
        assert_eq!(
            (tag_of_part("export", 1, 3), tag_of_part("export", 2, 3)),
            ("export:1.51".into(), "export:2.131".into())
        );
    }

    #[test]
    fn the_key_of_a_command_is_found_at_its_position() {
        let cmd = |words: &[&str]| {
            let mut cmd = redis::cmd(words[0]);
            cmd.arg(&words[1..]);
            key_of(&cmd).map(|key| String::from_utf8_lossy(key).into_owned())
        };
        assert_eq!(cmd(&["EVALSHA", "sha", "2", "k1", "k2", "a"]).as_deref(), Some("k1"));
        assert_eq!((cmd(&["EVAL", "text", "0", "a"]), cmd(&["TIME"]), cmd(&["CLIENT", "ID"])), (None, None, None));
        assert_eq!(cmd(&["XREAD", "COUNT", "1", "STREAMS", "k", "0"]).as_deref(), Some("k"));
        assert_eq!(cmd(&["MEMORY", "USAGE", "k"]).as_deref(), Some("k"));
        assert_eq!(cmd(&["HGET", "k", "f"]).as_deref(), Some("k"));
    }
}
