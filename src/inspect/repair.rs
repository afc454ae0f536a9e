//! Repairs what an audit found.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;

use super::Inspector;
use super::audit_lists::ListPlace;
use super::audit_report::{AuditReport, Finding, Inconsistency};
use crate::backend::audit;
use crate::backend::keys::TaskKeys;
use crate::error::Error;
use crate::limits::BATCH;

/// What a repair did, or would do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RepairReport {
    /// The faults that were repaired, or would be.
    pub mended: Vec<Finding>,
    /// The faults that no longer exist.
    pub gone: Vec<Finding>,
}

impl RepairReport {
    fn add(&mut self, finding: Finding, is_done: bool) {
        if is_done { &mut self.mended } else { &mut self.gone }.push(finding);
    }
}

impl Inspector {
    /// Repairs what an audit found. The call that repairs a fault checks it again first, and skips faults that are gone. Reads the
    /// lists of waiting jobs once.
    pub async fn repair(&self, report: &AuditReport) -> Result<RepairReport, Error> {
        self.repair_or_look(report, false).await
    }

    /// Reports what [`repair`](Inspector::repair) would repair now, and changes nothing.
    pub async fn preview_repair(&self, report: &AuditReport) -> Result<RepairReport, Error> {
        self.repair_or_look(report, true).await
    }

    async fn repair_or_look(&self, report: &AuditReport, preview: bool) -> Result<RepairReport, Error> {
        let (tables, mut repaired) = (self.tables(&report.task).await?, RepairReport::default());
        for part in &report.parts {
            // Skip partitions that no longer exist.
            if let Some(keys) = tables.get(part.part as usize) {
                self.repair_part(keys, &part.findings, preview, &mut repaired).await?;
            }
        }
        Ok(repaired)
    }

    async fn repair_part(
        &self,
        keys: &TaskKeys,
        findings: &[Finding],
        preview: bool,
        repaired: &mut RepairReport,
    ) -> Result<(), Error> {
        let mut by_id: BTreeMap<&str, Vec<Inconsistency>> = BTreeMap::new();
        for finding in findings {
            match finding.fault {
                Inconsistency::StaleRecord | Inconsistency::BadMeta => {
                    let is_done = self.repair_field(keys, finding, preview).await?;
                    repaired.add(finding.clone(), is_done);
                }
                fault => by_id.entry(&finding.what).or_default().push(fault),
            }
        }
        let ids: Vec<&str> = by_id.keys().copied().collect();
        let (began_ms, listed) = self.entries_of(keys, &ids).await?;
        for some in ids.chunks(BATCH) {
            let count = |id: &str| listed.get(id).copied().unwrap_or(0);
            let done = if preview {
                let jobs: Vec<_> = some.iter().map(|id| ((*id).to_owned(), count(id))).collect();
                self.ask(async |conn| audit::look(conn, keys, began_ms, &jobs).await).await?
            } else {
                let words = |id: &str| by_id[id].iter().map(|fault| fault.as_str()).collect::<Vec<_>>().join(" ");
                let jobs: Vec<_> = some.iter().map(|id| ((*id).to_owned(), count(id), words(id))).collect();
                self.ask(async |conn| audit::mend(conn, keys, &self.by, began_ms, &jobs).await).await?
            };
            for (id, done) in some.iter().zip(done) {
                for fault in &by_id[id] {
                    let is_done = done.split(' ').any(|word| word == fault.as_str());
                    repaired.add(Finding { fault: *fault, what: (*id).to_owned() }, is_done);
                }
            }
        }
        Ok(())
    }

    /// How many entries the lists have of each id, and when reading them began.
    async fn entries_of(&self, keys: &TaskKeys, ids: &[&str]) -> Result<(u64, HashMap<String, u32>), Error> {
        let began_ms = self.now_ms().await?;
        let wanted: HashSet<&str> = ids.iter().copied().collect();
        let mut found = HashMap::new();
        let mut place = (!wanted.is_empty()).then(ListPlace::default);
        while let Some(at) = place {
            let (page, next) = self.page_of_list(keys, at).await?;
            for id in page.into_iter().filter(|id| wanted.contains(id.as_str())) {
                *found.entry(id).or_insert(0) += 1;
            }
            place = next;
        }
        Ok((began_ms, found))
    }

    /// Repairs a fault of a record or a counter of the task. Returns whether the fault was still there.
    async fn repair_field(&self, keys: &TaskKeys, finding: &Finding, preview: bool) -> Result<bool, Error> {
        let (what, fault) = (&finding.what, finding.fault);
        if fault == Inconsistency::StaleRecord && !self.is_gone(what).await? {
            return Ok(false);
        }
        self.ask(async |conn| match fault {
            Inconsistency::StaleRecord => audit::drop_record(conn, keys, what, preview).await,
            _ => audit::drop_bad_counter(conn, keys, what, preview).await,
        })
        .await
    }
}
