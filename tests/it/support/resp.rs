//! Just enough of the Redis protocol to find the end of a request or reply.

/// The length of the first whole frame in `bytes`, or `None` while it is incomplete.
///
/// Reads RESP2 and RESP3; an inline command counts as a line. Panics on invalid input.
pub fn frame_len(bytes: &[u8]) -> Option<usize> {
    let line = bytes.windows(2).position(|pair| pair == b"\r\n")? + 2;
    let number = || {
        let text = std::str::from_utf8(&bytes[1..line - 2]).unwrap();
        text.parse::<i64>().unwrap_or_else(|_| panic!("not a length: {text:?}"))
    };
    match bytes[0] {
        b'$' | b'=' | b'!' => match usize::try_from(number()) {
            Ok(length) => (bytes.len() >= line + length + 2).then_some(line + length + 2),
            Err(_) => Some(line),
        },
        b'*' | b'~' | b'>' => frames_len(bytes, line, number()),
        b'%' => frames_len(bytes, line, number() * 2),
        // An attribute comes before the reply that it describes.
        b'|' => frames_len(bytes, line, number() * 2 + 1),
        _ => Some(line),
    }
}

fn frames_len(bytes: &[u8], start: usize, count: i64) -> Option<usize> {
    (0..count).try_fold(start, |end, _| Some(end + frame_len(&bytes[end..])?))
}

/// Replaces `from` by `to` in a frame that is one bulk string, and corrects its length; other frames stay unchanged.
pub fn rewrite_bulk(frame: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let unchanged = || frame.to_vec();
    let Some(line) = frame.windows(2).position(|pair| pair == b"\r\n") else {
        return unchanged();
    };
    if !matches!(frame[0], b'$' | b'=') || frame.len() < line + 4 || from.is_empty() {
        return unchanged();
    }
    let mut rest = &frame[line + 2..frame.len() - 2];
    let mut content = Vec::new();
    while let Some(position) = find(rest, from) {
        content.extend_from_slice(&rest[..position]);
        content.extend_from_slice(to);
        rest = &rest[position + from.len()..];
    }
    content.extend_from_slice(rest);
    let mut rewritten = format!("{}{}\r\n", char::from(frame[0]), content.len()).into_bytes();
    rewritten.extend_from_slice(&content);
    rewritten.extend_from_slice(b"\r\n");
    rewritten
}

/// Where `needle` begins in `bytes`.
pub fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|window| window == needle)
}

/// The words of a request.
pub fn words(request: &[u8]) -> Vec<String> {
    let after_line = |bytes: &[u8]| find(bytes, b"\r\n").unwrap() + 2;
    let (mut rest, mut words) = (&request[after_line(request)..], Vec::new());
    while !rest.is_empty() {
        let (start, end) = (after_line(rest), frame_len(rest).unwrap());
        words.push(String::from_utf8_lossy(&rest[start..end - 2]).into_owned());
        rest = &rest[end..];
    }
    words
}

#[test]
fn frames_end_where_the_protocol_says() {
    for frame in [
        "+OK\r\n",
        "-ERR no\r\n",
        ":12\r\n",
        "$-1\r\n",
        "*-1\r\n",
        "$0\r\n\r\n",
        "$4\r\na\r\nb\r\n",
        "=7\r\ntxt:abc\r\n",
        "*2\r\n$1\r\na\r\n*1\r\n:1\r\n",
        "%1\r\n+a\r\n:1\r\n",
        "|1\r\n+a\r\n:1\r\n+OK\r\n",
        "_\r\n",
    ] {
        let long = format!("{frame}+next\r\n");
        assert_eq!(frame_len(long.as_bytes()), Some(frame.len()), "{frame:?}");
        for end in 0..frame.len() {
            assert_eq!(frame_len(&frame.as_bytes()[..end]), None, "{frame:?} cut at {end}");
        }
    }
}

#[test]
fn the_words_of_a_request_may_be_empty_or_contain_line_ends() {
    assert_eq!(words(b"*3\r\n$3\r\nGET\r\n$0\r\n\r\n$4\r\na\r\nb\r\n"), ["GET", "", "a\r\nb"]);
}

#[test]
fn rewriting_corrects_the_length() {
    assert_eq!(rewrite_bulk(b"$5\r\nv:7.0\r\n", b"7.0", b"6.2.14"), b"$8\r\nv:6.2.14\r\n");
    assert_eq!(rewrite_bulk(b"$3\r\nabc\r\n", b"x", b"y"), b"$3\r\nabc\r\n");
    assert_eq!(rewrite_bulk(b"$-1\r\n", b"1", b"2"), b"$-1\r\n");
    assert_eq!(rewrite_bulk(b"+abc\r\n", b"a", b"b"), b"+abc\r\n");
}
