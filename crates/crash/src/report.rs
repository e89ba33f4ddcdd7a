//! The report of a search, for people and programs.

use serde::Serialize;

use crate::explore::Outcome;
use crate::volume::Batches;

/// A report.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// `PRESET[,option…]`.
    pub journal: String,
    /// Name of the workload, or the file with its recording.
    pub workload: String,
    /// Bytes in a block.
    pub block: u32,
    /// Seed of all draws.
    pub seed: u64,
    /// The device's promise for batches that it shares.
    pub share: Batches,
    /// Bytes of the region for sync records; `None` without one.
    pub region: Option<u64>,
    /// States judged per second.
    pub states_per_second: f64,
    /// The counts and the failures.
    #[serde(flatten)]
    pub outcome: Outcome,
}

impl Report {
    /// The report as text.
    pub fn text(&self) -> String {
        let o = &self.outcome;
        let mut out = format!(
            "{}, workload {}, blocks of {} bytes, seed {}\n\
             {} crash states, {} distinct images, {} judged, in {:.1} s ({:.0} states/s)\n",
            self.journal,
            self.workload,
            self.block,
            self.seed,
            o.states,
            o.distinct,
            o.judged,
            o.seconds,
            self.states_per_second,
        );
        out.push_str(&format!(
            "{} images checked by e2fsck, {} used, recovered again and replayed by e2fsck, \
             {} crashes inside recoveries, {} inside second ones\n",
            o.fscks, o.thorough, o.recovery_cuts, o.second_recovery_cuts
        ));
        // Counts of shares are shown only for journals that share.
        if o.shares > 0 || self.journal.contains("afs") || self.journal.contains("home=share") {
            let batches = match self.share {
                Batches::Torn => "of which a crash keeps any units",
                Batches::Atomic => "which are whole or absent",
            };
            out.push_str(&format!(
                "{} batches shared in the recordings, {batches}; {} crash states with shares that \
                 are not flushed, {} of them with a torn batch\n",
                o.shares, o.share_states, o.torn_states
            ));
        }
        if let Some(bytes) = self.region {
            out.push_str(&format!(
                "a region of {bytes} bytes; {} crash states with lines of it that are not fenced\n",
                o.line_states
            ));
        }
        if o.cases > 1 || o.cases_done < o.cases {
            out.push_str(&match (o.cases, o.cases_done) {
                (1, _) => "the time was too short for one pass over the recording\n".to_owned(),
                (all, done) => format!("{done} of {all} sequences tried\n"),
            });
        }
        match o.failures {
            0 => out.push_str("no promise was broken\n"),
            n => out.push_str(&format!("{n} STATES BROKE A PROMISE\n")),
        }
        for failure in &o.findings {
            out.push('\n');
            out.push_str(&failure.text());
        }
        out
    }

    /// The report as JSON.
    ///
    /// # Errors
    /// None is known.
    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }
}
