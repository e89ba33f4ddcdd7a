//! The subcommands `compare`, `foreign`, `cut` and `faults`: the kernel's file systems and
//! journals, and misbehaving devices.

use anyhow::{Result, ensure};

use super::{Answer, CompareArgs, FaultsArgs, ForeignArgs};
use crate::peers::compare_one;
use crate::peers::foreign::{Volume, foreign};
use crate::record::Recording;

impl CompareArgs {
    pub(super) fn run(&self) -> Result<Answer> {
        let binary = self.stetfs.path()?;
        let mut rows = Vec::new();
        for workload in &self.workloads {
            for system in &self.systems {
                rows.push(compare_one(system, workload, self.limits, &binary)?);
            }
        }
        let mut text = String::from(
            "system              workload       images  no mount    lost   names  versions  e2fsck  seconds\n",
        );
        for r in &rows {
            text.push_str(&format!(
                "{:19} {:13} {:>7} {:>9} {:>7} {:>7} {:>9} {:>3}/{:<3} {:>8.1}\n",
                r.system,
                r.workload,
                r.distinct,
                r.unmountable,
                r.lost,
                r.names,
                r.versions,
                r.fscks.1,
                r.fscks.0,
                r.seconds
            ));
        }
        for r in &rows {
            for example in &r.examples {
                text.push_str(&format!("{}, {}: {example}\n", r.system, r.workload));
            }
        }
        let mut answer = Answer::new(text, &rows)?;
        answer.broken = rows
            .iter()
            .any(|r| r.system.starts_with("stetfs") && r.unmountable + r.lost + r.fscks.1 > 0);
        Ok(answer)
    }
}

impl ForeignArgs {
    pub(super) fn run(&self) -> Result<Answer> {
        let volume = Volume {
            features: self.features.clone(),
            block: self.block,
            options: self.options.clone(),
            keep: self.keep.clone(),
        };
        let mut text = String::new();
        let mut rows = Vec::new();
        for workload in &self.workloads {
            let row = foreign(&volume, workload, self.limits)?;
            text.push_str(&format!(
                "{}, {}: {} images, {} with fast commits, {:.1} s\n",
                row.volume, row.workload, row.distinct, row.fast, row.seconds
            ));
            for (reader, r) in &row.readers {
                text.push_str(&format!(
                    "  {:8} cannot recover {:>4}, lost {:>4}, unsound afterwards {:>4}\n",
                    format!("{reader:?}").to_lowercase(),
                    r.refused,
                    r.lost,
                    r.unsound
                ));
            }
            text.push_str(&format!(
                "  StetFS does worse with {}; its result differs from e2fsck's {} times, from the \
                 kernel's {} times\n",
                row.worse, row.differ.0, row.differ.1
            ));
            text.push_str(&format!(
                "  recovered again after a cut: {} of {} recoveries of StetFS have a different \
                 result, {} of {} mounts of the kernel\n",
                row.cut.1, row.cut.0, row.kernel_cut.1, row.kernel_cut.0
            ));
            for example in &row.examples {
                text.push_str(&format!("  {example}\n"));
            }
            rows.push(row);
        }
        let mut answer = Answer::new(text, &rows)?;
        answer.broken = rows.iter().any(|r| r.worse > 0);
        Ok(answer)
    }
}

impl FaultsArgs {
    pub(super) fn run(&self) -> Result<Answer> {
        ensure!(
            self.work.region.is_none(),
            "`faults` tests devices only: remove --region"
        );
        let case = self.work.case(None)?;
        let recording =
            Recording::make(&self.work.journal, self.work.shape(), &case, self.work.seed)?;
        let all = crate::faults::try_all(&recording, self.each, self.work.seed)?;
        let mut text = format!(
            "{:16} {:>6} {:>8} {:>7} {:>7}\n",
            "fault", "tried", "correct", "errors", "silent"
        );
        let mut told = String::new();
        for t in &all {
            let name = serde_json::to_value(t.fault)?;
            let name = name.as_str().unwrap_or_default();
            text.push_str(&format!(
                "{name:16} {:>6} {:>8} {:>7} {:>7}{}\n",
                t.tried,
                t.correct,
                t.errors,
                t.silent,
                if t.is_defect() { "  DEFECT" } else { "" }
            ));
            if let Some(error) = &t.error {
                told.push_str(&format!("{name}, an error: {error}\n"));
            }
            if let Some(example) = &t.example {
                told.push_str(&format!("{name}, silent: {example}\n"));
                if let Some(excuse) = t.excuse {
                    told.push_str(&format!("  not detectable: {excuse}\n"));
                }
            }
        }
        let mut answer = Answer::new(text + &told, &all)?;
        answer.broken = all.iter().any(|t| t.is_defect());
        Ok(answer)
    }
}
