//! The result of a node's job that returned a graph as well as a value. It is byte 1, the length of the value, a space,
//! the value, the graph.
//!
//! So both are written with the end of the job. No JSON begins with byte 1.

const MARK: u8 = 1;

/// Encodes a value and a graph as one result.
pub(crate) fn with_graph(value: Option<&[u8]>, graph: &[u8]) -> Vec<u8> {
    let value = value.unwrap_or_default();
    let mut result = vec![MARK];
    result.extend_from_slice(value.len().to_string().as_bytes());
    result.push(b' ');
    result.extend_from_slice(value);
    result.extend_from_slice(graph);
    result
}

/// The value in a result; empty for null.
pub(crate) fn value_of(result: &[u8]) -> &[u8] {
    let parts = || {
        let rest = result.strip_prefix(&[MARK])?;
        let space = rest.iter().position(|byte| *byte == b' ')?;
        let size: usize = std::str::from_utf8(&rest[..space]).ok()?.parse().ok()?;
        rest.get(space + 1..)?.get(..size)
    };
    parts().unwrap_or(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_next_to_a_graph_is_read_back() {
        assert_eq!(with_graph(Some(b"[1]"), b"{}"), b"\x013 [1]{}");
        assert_eq!(value_of(&with_graph(Some(b"\"a b\""), b"{}")), b"\"a b\"");
        assert_eq!(value_of(&with_graph(None, b"{}")), b"");
        for plain in [&b"17"[..], b"", b"\x01", b"\x019 x", b"\x0118446744073709551615 x"] {
            assert_eq!(value_of(plain), plain);
        }
    }
}
