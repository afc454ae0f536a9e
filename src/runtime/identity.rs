//! What a worker reports about itself and its process.

use crate::backend::declare::WIRE_VERSION;
use crate::clock;

/// The facts about this process in its presence, besides its id. With them a worker that starts later can prove that
/// the process is gone.
pub(crate) fn process_facts() -> Vec<(String, String)> {
    let mut facts = vec![
        ("host".to_owned(), hostname::get().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()),
        ("pid".to_owned(), std::process::id().to_string()),
        ("version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ("wire".to_owned(), WIRE_VERSION.to_string()),
    ];
    #[cfg(target_os = "linux")]
    {
        facts.extend(boot_id().map(|boot_id| ("bootId".to_owned(), boot_id)));
        if let Ok(namespace) = std::fs::read_link("/proc/self/ns/pid") {
            facts.push(("pidNamespace".to_owned(), namespace.to_string_lossy().into_owned()));
        }
        if let Ok(namespace) = std::fs::read_link("/proc/self/ns/time") {
            facts.push(("timeNamespace".to_owned(), namespace.to_string_lossy().into_owned()));
        }
        facts.extend(super::death_proof::own_start().map(|start| ("processStart".to_owned(), start)));
    }
    facts
}

/// A worker's presence: the facts of its process, its tasks, and how many jobs of each it holds.
pub(crate) fn presence<'a>(
    facts: &[(String, String)],
    tasks: impl Iterator<Item = (&'a str, usize)> + Clone,
) -> Vec<(String, String)> {
    let names: Vec<&str> = tasks.clone().map(|(name, _)| name).collect();
    let mut fields = facts.to_vec();
    fields.push(("bootClock".to_owned(), clock::now().as_millis().to_string()));
    fields.push(("tasks".to_owned(), names.join(" ")));
    fields.extend(tasks.map(|(name, held)| (format!("held:{name}"), held.to_string())));
    fields
}

/// The boot id of this host, if the system has one (Linux).
pub(crate) fn boot_id() -> Option<String> {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok().map(|boot_id| boot_id.trim().to_owned())
}
