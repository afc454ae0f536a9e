//! `doctor`: what is wrong with the servers, tasks and workers, and what could be better.

use heartline::inspect::text::{many, shown, span};
use heartline::{Diagnosis, FleetReport, ServerReport};

use crate::failure::{Failure, ended};
use crate::session::Session;

pub(super) async fn doctor(session: &Session) -> Result<(), Failure> {
    let inspector = &session.inspector;
    let fleet = inspector.fleet(None).await?;
    let found = inspector.diagnose_fleet(&fleet, &inspector.recent_stalls(&fleet.tasks).await).await?;
    let diagnoses = [fleet.setup(), found].concat();
    let is_healthy = !diagnoses.iter().any(|diagnosis| is_risk(&fleet, diagnosis));
    let printed = match session.out.is_json {
        true => {
            let servers = &fleet.checks.servers;
            session.out.json(&serde_json::json!({ "healthy": is_healthy, "diagnoses": diagnoses, "servers": servers }))
        }
        false => print(session, &fleet, &diagnoses),
    };
    ended(is_healthy, printed)
}

/// Whether it counts as a risk. On a new server, missing tasks and workers do not.
fn is_risk(fleet: &FleetReport, diagnosis: &Diagnosis) -> bool {
    diagnosis.is_risk() && (!fleet.is_new() || diagnosis.kind.is_of_servers())
}

fn print(session: &Session, fleet: &FleetReport, diagnoses: &[Diagnosis]) -> Result<(), Failure> {
    session.out.line(format!("ok    {}", session.place))?;
    for server in fleet.checks.servers.iter().filter(|server| server.fault.is_none()) {
        session.out.line(format!("ok    {}", shown(&describe(server))))?;
    }
    let live = fleet.workers.iter().filter(|worker| worker.state.is_live()).count() as u64;
    let tasks = many(fleet.tasks.len() as u64, "task");
    session.out.line(format!("ok    {tasks} listed, {} live", many(live, "worker")))?;
    for diagnosis in diagnoses {
        let mark = if is_risk(fleet, diagnosis) { "RISK" } else { "note" };
        let task = diagnosis.task.as_ref().map_or_else(String::new, |task| format!("{}: ", shown(task)));
        session.out.line(format!("{mark}  {task}{}", shown(&diagnosis.to_string())))?;
        session.out.line(format!("      {}", shown(&diagnosis.hint())))?;
    }
    Ok(())
}

fn describe(server: &ServerReport) -> String {
    format!(
        "{}: {} {}, {}, maxmemory-policy {}, append-only file {}, a call takes {}",
        server.place,
        server.name,
        server.version,
        many(server.replicas, "replica"),
        server.eviction_policy,
        if server.has_append_only_file { "on" } else { "off" },
        match server.round_trip.as_micros() {
            micros @ 0..10_000 => format!("{micros}us"),
            _ => span(server.round_trip),
        }
    )
}
