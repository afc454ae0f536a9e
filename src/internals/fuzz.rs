//! Every decoder of what others may have written, with text that is almost right, and with any bytes.
//!
//! `PROPTEST_CASES=<cases>` makes more of them, as `make fuzz` does.

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use crate::backend::note::Stored;
    use crate::backend::quiet::QuietMark;
    use crate::backend::workflow::advance::NodeEnd;
    use crate::codec::Codecs;
    use crate::job::child_graph;
    use crate::job::failure::StoredError;
    use crate::job::id::JobId;
    use crate::job::instance::NodeState;
    use crate::job::node_id::NodeId;
    use crate::job::outcome::StoredOutcome;
    use crate::job::progress::JobProgress;
    use crate::job::shape::{Shape, ShapeNode};
    use crate::job::snooze::Snoozes;
    use crate::job::subgraph_result::{value_of, with_graph};
    use crate::limits::{MOST_STORED, stored_number, stored_score};
    use crate::options::overrides::Overrides;
    use crate::stall::recovery::Recovery;
    use crate::worker_id::WorkerId;

    /// What is put into a text: numbers at the bounds of types, separators, marks, and broken JSON.
    const PIECES: [&str; 24] = [
        "",
        " ",
        "  ",
        "-",
        "+1",
        "-1",
        "0",
        "1.5",
        "1e400",
        "nan",
        "2147483648",
        "4294967296",
        "9007199254740993",
        "18446744073709551615",
        "18446744073709551616",
        "\u{1}",
        "\u{2}",
        "/",
        ":",
        "{",
        "\"",
        "[[[[[[[[",
        "null",
        "\u{202e}é😀",
    ];

    /// One of these texts with up to three changes: a piece is put in, or some characters are replaced by one.
    fn almost(texts: &'static [&'static str]) -> impl Strategy<Value = String> {
        let changes = prop::collection::vec((any::<prop::sample::Index>(), 0..6_usize, 0..PIECES.len()), 0..4);
        (prop::sample::select(texts), changes).prop_map(|(text, changes)| {
            let mut chars: Vec<char> = text.chars().collect();
            for (at, gone, piece) in changes {
                let at = at.index(chars.len() + 1);
                let end = (at + gone).min(chars.len());
                chars.splice(at..end, PIECES[piece].chars());
            }
            chars.into_iter().collect()
        })
    }

    /// The same, or any text.
    fn text(texts: &'static [&'static str]) -> impl Strategy<Value = String> {
        prop_oneof![4 => almost(texts), 1 => "\\PC{0,60}", 1 => prop::collection::vec(prop::sample::select(&PIECES[..]), 0..12).prop_map(|pieces| pieces.concat())]
    }

    /// The same, or any bytes.
    fn bytes(texts: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![4 => text(texts).prop_map(String::into_bytes), 1 => prop::collection::vec(any::<u8>(), 0..80)]
    }

    /// No decoder may need longer for a short text.
    const AT_ONCE: Duration = Duration::from_secs(2);

    fn at_once<T>(read: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let value = read();
        assert!(start.elapsed() < AT_ONCE, "it took {:?}", start.elapsed());
        value
    }

    const ERRORS: [&str; 3] =
        [r#"{"code":"panic","message":"at line 7"}"#, r#"{"code":"disk_full","message":""}"#, "plain text"];

    #[test]
    fn stored_errors_are_read_whatever_they_are() {
        proptest!(|(raw in text(&ERRORS))| {
            let error = at_once(|| StoredError::from_json(&raw));
            prop_assert_eq!(StoredError::from_json(&error.to_json()), error, "an error is read back");
        });
    }

    #[test]
    fn small_columns_are_read_whatever_they_are() {
        const COLUMNS: [&str; 8] = [
            "1:2",
            "completed 1 2 300 4096",
            "failed 0 0 -",
            "handler_silent w-1-00000001 1700000000000",
            "requeued w 1700000000000 3",
            "1700000000000 ada",
            "p 1 1",
            "host-7-0123abcd",
        ];
        proptest!(|(raw in text(&COLUMNS), score: f64)| {
            at_once(|| {
                let snoozes = Snoozes::from_wire(&raw);
                assert_eq!(Snoozes::from_wire(&snoozes.to_string()), snoozes, "snoozes are read back");
                let _ = (StoredOutcome::from_wire(&raw), Recovery::from_wire(&raw, 1), QuietMark::from_wire(&raw));
                let _ = (NodeState::from_wire(&raw), NodeEnd::from_wire(&raw), WorkerId::from_wire(&raw).to_string());
                assert!(stored_number(&raw).is_none_or(|number| number <= MOST_STORED) && stored_score(score) <= MOST_STORED);
            });
        });
    }

    #[test]
    fn ids_are_read_whatever_they_are() {
        const IDS: [&str; 4] = ["export-7", "~flow/order-7/0/1", "~flow/order-7/0.1/12/3", "0123456789ABCDEFGHIJKL"];
        proptest!(|(raw in text(&IDS))| {
            let id = JobId::from_wire(raw.as_str());
            let _ = (at_once(|| id.created_at()), JobId::parse(&raw).map_err(|faults| faults.to_string()));
            if let Some(node) = NodeId::of(&id) {
                prop_assert_eq!(NodeId::of(&node.job_id()), Some(node), "a node is read back");
            }
        });
    }

    #[test]
    fn notes_and_values_are_read_whatever_they_are() {
        const NOTES: [&str; 4] = [
            "1700000000000000 3 1700000000000 {\"value\":40,\"message\":\"pages\"}",
            "5 1 7 \u{2}aes sealed",
            "\u{2}aes x",
            "7",
        ];
        proptest!(|(raw in bytes(&NOTES), value in bytes(&NOTES), graph in bytes(&NOTES))| {
            let codecs = Codecs::default();
            at_once(|| {
                let _ = (Stored::from_wire(&raw), JobProgress::read(&raw, &codecs, u64::MAX), codecs.shown(&raw));
                let _ = (codecs.decode(&raw).map_err(|e| e.to_string()), value_of(&raw));
            });
            let both = with_graph(Some(&value), &graph);
            prop_assert_eq!(value_of(&both), &value, "a value is read back");
        });
    }

    const GRAPHS: [&str; 3] = [
        r#"{"shape":{"nodes":[{"name":"a","task":"t"}],"on_failure":"finish"},"inputs":[[0,7]]}"#,
        "{\"shape\":{\"nodes\":[],\"on_failure\":\"finish\"},\"inputs\":[],\"encoded\":[[0,9]]}\u{2}aes 1234",
        r#"{"nodes":[{"name":"a","task":"t"},{"name":"b","task":"t","inputs":[0],"always":true,"at_least":1}],"output":1,"on_failure":"cancel"}"#,
    ];

    #[test]
    fn graphs_are_read_whatever_they_are() {
        proptest!(|(raw in bytes(&GRAPHS), completed in prop::collection::vec(prop::sample::select(&["c", "f", "p 1 1", ""][..]), 0..4))| {
            at_once(|| {
                let _ = child_graph::read(&raw);
                if let Ok(shape) = serde_json::from_slice::<Shape>(&raw) {
                    let states: Vec<String> = completed.iter().map(|state| (*state).to_owned()).collect();
                    let _ = shape.states_again(&states);
                }
            });
        });
    }

    #[test]
    fn a_graph_is_read_back_with_any_inputs() {
        proptest!(|(inputs in prop::collection::vec(bytes(&GRAPHS), 0..5), output in prop::option::of(0..5_u32))| {
            let node = |name: String| ShapeNode { name, ..serde_json::from_str(r#"{"name":"","task":"t"}"#).unwrap() };
            let nodes = (0..inputs.len()).map(|at| node(at.to_string())).collect();
            let shape = Shape { nodes, output, on_failure: "finish".to_owned() };
            let inputs: Vec<_> = (0..).zip(inputs).collect();
            let bytes = child_graph::write(shape.clone(), inputs.clone()).unwrap();
            let (read, mut found) = at_once(|| child_graph::read(&bytes)).expect("it is read back");
            found.sort_unstable_by_key(|(node, _)| *node);
            prop_assert_eq!((read, found.len()), (shape, inputs.len()));
        });
    }

    #[test]
    fn options_of_a_dispatch_are_read_or_named_as_wrong() {
        const OPTIONS: [&str; 3] = [
            r#"{"delay_ms":5000,"cost":2,"max_count":1,"timeout_ms":100,"attempts":3,"on_risk":"cancel","headers":{"a":"b"}}"#,
            r#"{"retry":{"attempts":5,"backoff":{"exponential":{"first_ms":100,"factor":2.0}},"jitter":"full"},"retry_on":["a"]}"#,
            r#"{"tick":{"schedule":"nightly","due_ms":1700000000000,"previous_ms":null}}"#,
        ];
        proptest!(|(raw in text(&OPTIONS))| {
            match at_once(|| serde_json::from_str::<Overrides>(&raw)) {
                Ok(options) => {
                    let again = serde_json::from_str::<Overrides>(&serde_json::to_string(&options).unwrap()).unwrap();
                    prop_assert_eq!(format!("{again:?}"), format!("{options:?}"), "options are read back");
                    let _ = at_once(|| options.validate().map_err(|faults| faults.to_string()));
                }
                Err(e) => prop_assert!(!e.to_string().is_empty()),
            }
        });
    }

    #[cfg(feature = "schedules")]
    #[test]
    fn rules_of_schedules_are_read_or_named_as_wrong() {
        use crate::schedule::stored::StoredRule;
        const RULES: [&str; 4] = [
            r#"{"cron":"0 3 * * MON-FRI","tz":"Europe/Berlin","jitter_ms":0,"overlap":"skip","missed":"skip","grace_ms":0}"#,
            r#"{"cron":"*/5 0 1,15 2 * 7","tz":"UTC","jitter_ms":0,"overlap":"queue","missed":{"all":3},"grace_ms":5}"#,
            r#"{"every_ms":60000,"tz":"UTC","jitter_ms":1000,"overlap":"allow","missed":{"once":{"within_ms":1}},"grace_ms":5}"#,
            r#"{"cron":"0 0 29 2 *","tz":"America/New_York","jitter_ms":0,"overlap":"replace","missed":"skip","grace_ms":0,"from_ms":7}"#,
        ];
        proptest!(|(raw in text(&RULES))| {
            match at_once(|| StoredRule::read(&raw)) {
                Ok(schedule) => {
                    let json = StoredRule::to_json(&schedule);
                    let again = StoredRule::read(&json);
                    prop_assert_eq!(again.map(|again| StoredRule::to_json(&again)), Ok(json), "a rule is read back");
                }
                Err(why) => prop_assert!(!why.is_empty() && !why.contains('\n'), "{}", why),
            }
        });
    }
}
