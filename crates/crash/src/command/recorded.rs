//! The subcommands `record` and `report`: make a recording, describe one.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::search::judged;
use super::{Answer, RecordArgs, ReportArgs};
use crate::explore::{Failure, Outcome};
use crate::html;
use crate::judge::{Finding, Oracle};
use crate::record::Recording;
use crate::report::Report;

impl RecordArgs {
    pub(super) fn run(&self) -> Result<Answer> {
        let case = self.work.case(self.case)?;
        let recording =
            Recording::make(&self.work.journal, self.work.shape(), &case, self.work.seed)?;
        recording.save(&self.record)?;
        describe(&recording, &self.record)
    }
}

impl ReportArgs {
    pub(super) fn run(&self) -> Result<Answer> {
        let recording = Recording::load(&self.record)?;
        let (Some(state), Some(html)) = (&self.state, &self.html) else {
            return describe(&recording, &self.record);
        };
        let finding = judged(&recording, state)?.1.err();
        let broken = finding.is_some();
        let finding = finding.unwrap_or(Finding {
            oracle: Oracle::Promise,
            detail: "nothing is broken".into(),
        });
        let mut failure = Failure::describe(&recording, state, finding);
        failure.record = Some(self.record.display().to_string());
        let report = Report {
            journal: recording.header.journal.clone(),
            workload: recording.header.workload.clone(),
            block: recording.header.block,
            seed: recording.header.seed,
            share: recording.header.batches,
            region: recording.header.region,
            states_per_second: 0.0,
            outcome: Outcome {
                states: 1,
                distinct: 1,
                failures: u64::from(broken),
                findings: vec![failure],
                ..Outcome::default()
            },
        };
        let name = self.record.display().to_string();
        let page = html::page(&report, &BTreeMap::from([(name, recording)]));
        std::fs::write(html, page).with_context(|| format!("writing {}", html.display()))?;
        Answer::new(
            format!("look at it: {}\n", html.display()),
            json!({ "html": html, "broken": broken }),
        )
    }
}

pub(super) fn describe(recording: &Recording, path: &Path) -> Result<Answer> {
    use stetfs_block::Event;
    use stetfs_nvm::What;
    let events = &recording.log.events;
    let count = |f: fn(&Event) -> bool| events.iter().filter(|e| f(e)).count();
    let count_region = |f: fn(&What) -> bool| {
        let events = recording.region.events.iter();
        events.filter(|e| f(&e.what)).count()
    };
    let bytes: usize = events
        .iter()
        .map(|e| match e {
            Event::Write { data, .. } => data.len(),
            _ => 0,
        })
        .sum();
    let operations: usize = recording.work.scripts.iter().map(|s| s.ops.len()).sum();
    let value = json!({
        "record": path,
        "workload": recording.header.workload,
        "journal": recording.header.journal,
        "block": recording.header.block,
        "seed": recording.header.seed,
        "threads": recording.work.scripts.len(),
        "operations": operations,
        "events": events.len(),
        "writes": count(|e| matches!(e, Event::Write { .. })),
        "fua": count(|e| matches!(e, Event::Write { fua: true, .. })),
        "flushes": count(|e| matches!(e, Event::Flush { .. })),
        "discards": count(|e| matches!(e, Event::Discard { .. })),
        "shares": recording.shares(),
        "bytes": bytes,
        "region": recording.header.region,
        "region_stores": count_region(|what| matches!(what, What::Store { .. })),
        "region_fences": count_region(|what| matches!(what, What::Fence)),
    });
    let text = value.as_object().map_or(String::new(), |fields| {
        let line = |(name, value): (&String, &Value)| match value {
            Value::String(s) => format!("{name:11} {s}\n"),
            other => format!("{name:11} {other}\n"),
        };
        fields.iter().map(line).collect()
    });
    Answer::new(text, value)
}
