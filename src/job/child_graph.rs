//! A graph that runs as a node, with the inputs of its nodes: in `input` or in `grow`.
//!
//! It is JSON, and after it the bytes of those inputs that are not JSON: encoded ones, and graphs that have such inputs. So each value is
//! encoded once, and any process can start the graph.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::shape::Shape;

/// The number of a node, and its input as it is stored.
pub(crate) type StoredInput = (u32, Vec<u8>);

/// The JSON.
#[derive(Serialize, Deserialize)]
struct Head {
    shape: Shape,
    /// Inputs that are JSON, by node number.
    inputs: Vec<(u32, Box<RawValue>)>,
    /// The others: the node numbers and the sizes of their bytes, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    encoded: Vec<(u32, usize)>,
}

/// Writes a graph with its inputs.
pub(crate) fn write(shape: Shape, inputs: Vec<StoredInput>) -> serde_json::Result<Vec<u8>> {
    let (mut head, mut rest) = (Head { shape, inputs: Vec::new(), encoded: Vec::new() }, Vec::new());
    for (node, input) in inputs {
        match serde_json::from_slice(&input) {
            Ok(json) => head.inputs.push((node, json)),
            Err(_) => {
                head.encoded.push((node, input.len()));
                rest.extend(input);
            }
        }
    }
    let mut bytes = serde_json::to_vec(&head)?;
    bytes.extend(rest);
    Ok(bytes)
}

/// Reads what [`write`] has written. `None` if it is damaged.
pub(crate) fn read(bytes: &[u8]) -> Option<(Shape, Vec<StoredInput>)> {
    let mut values = serde_json::Deserializer::from_slice(bytes).into_iter::<Head>();
    let Head { shape, inputs, encoded } = values.next()?.ok()?;
    let mut rest = bytes.get(values.byte_offset()..)?;
    let mut all: Vec<StoredInput> =
        inputs.into_iter().map(|(node, json)| (node, json.get().as_bytes().to_vec())).collect();
    for (node, size) in encoded {
        let (input, after) = rest.split_at_checked(size)?;
        all.push((node, input.to_vec()));
        rest = after;
    }
    rest.iter().all(u8::is_ascii_whitespace).then_some((shape, all))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_graph_is_read_back_with_all_inputs() {
        let shape = Shape { nodes: Vec::new(), output: None, on_failure: "finish".to_owned() };
        let inner = write(shape.clone(), vec![(0, b"\x02a \xff{".to_vec())]).unwrap();
        let inputs = vec![(0, b"1.50".to_vec()), (1, inner), (2, b"\x02a \x00".to_vec())];
        let bytes = write(shape.clone(), inputs.clone()).unwrap();
        assert_eq!(read(&bytes), Some((shape.clone(), inputs)));
        assert_eq!(read(&bytes[..bytes.len() - 1]), None);
        let plain = write(shape, vec![(0, b"7".to_vec())]).unwrap();
        assert_eq!(plain, br#"{"shape":{"nodes":[],"on_failure":"finish"},"inputs":[[0,7]]}"#);
    }
}
