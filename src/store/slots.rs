//! The slot of a key in Redis Cluster: CRC16 (XMODEM) of the key, or of its hash tag, modulo 16,384, as the specification of Redis Cluster
//! says.

use redis::{Arg, Cmd};

/// How many slots there are.
pub(super) const SLOTS: u16 = 16_384;

/// The slot of a key.
pub(super) fn slot_of(key: &[u8]) -> u16 {
    crc16(tag_of(key)) % SLOTS
}

/// What is hashed of a key: what stands between its first brace and the next closing one, if that is anything.
fn tag_of(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|byte| *byte == b'{') else { return key };
    let rest = &key[open + 1..];
    match rest.iter().position(|byte| *byte == b'}') {
        Some(close @ 1..) => &rest[..close],
        _ => key,
    }
}

fn crc16(bytes: &[u8]) -> u16 {
    let step = |crc: u16| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
    bytes.iter().fold(0, |crc, byte| (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| step(crc)))
}

/// The first key of a command, if it has one; of the commands that we send.
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
    fn keys_have_the_slots_that_servers_give_them() {
        // From the specification, and as `CLUSTER KEYSLOT` of Redis 7.0 answers.
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!((slot_of(b"foo"), slot_of(b"heartline:{export}:wait")), (12_182, slot_of(b"export")));
        assert_eq!((slot_of(b"{}x"), slot_of(b"{a{b}c}")), (crc16(b"{}x") % SLOTS, slot_of(b"a{b")));
    }

    #[test]
    fn the_key_of_a_command_is_where_the_command_has_it() {
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
