//! docs/monitoring uses only metrics that the exporter and the workers have.

use std::collections::BTreeSet;

/// The metrics that a text names, without the suffixes of histograms.
fn named(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (at, _) in text.match_indices("heartline_") {
        let word: String = text[at..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
        let word = ["_bucket", "_count", "_sum"].iter().find_map(|end| word.strip_suffix(end)).unwrap_or(&word);
        names.insert(word.to_owned());
    }
    names
}

#[test]
fn alerts_and_dashboard_name_only_documented_metrics() {
    let (alerts, dashboard) =
        (include_str!("../../../docs/monitoring/alerts.yml"), include_str!("../../../docs/monitoring/grafana.json"));
    let documented =
        named(concat!(include_str!("../../../docs/guide/command-line.md"), include_str!("../../../src/metrics.rs")));
    let json: serde_json::Value = serde_json::from_str(dashboard).unwrap();
    assert!(json["panels"].as_array().unwrap().len() > 10);
    let asked: BTreeSet<String> = named(alerts).union(&named(dashboard)).cloned().collect();
    let unknown: Vec<&String> = asked.difference(&documented).collect();
    assert!(unknown.is_empty() && asked.len() > 15, "{unknown:?}");
}
