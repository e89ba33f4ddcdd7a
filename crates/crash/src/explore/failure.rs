//! A broken promise, described so that a person can understand and repeat it.

use serde::{Deserialize, Serialize};
use stetfs_block::Event;

use crate::judge::Finding;
use crate::record::Recording;
use crate::state::{StateId, Uncertain};

/// A write that was lost in whole or in part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostWrite {
    /// Its event in the recording.
    pub event: usize,
    /// First byte on the device.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
    /// Number of its sectors that were lost, and of those that were uncertain.
    pub lost: (u32, u32),
}

/// A crash state that broke a promise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The name of the case.
    pub case: String,
    /// The crash, as `stetfs crash repeat` takes it.
    pub state: String,
    /// The broken promise.
    pub finding: Finding,
    /// Operations begun and acknowledged when the power went, for each thread.
    pub progress: Vec<(usize, usize)>,
    /// The last operation that was acknowledged, and the first that was not, for each thread.
    pub around: Vec<String>,
    /// The writes that were lost in whole or in part.
    pub lost: Vec<LostWrite>,
    /// Number of the region's lines that do not hold their last store, and of those that were not
    /// fenced.
    #[serde(default)]
    pub lost_lines: (usize, usize),
    /// The file with the recording, once it is saved.
    pub record: Option<String>,
    /// The shortest workload and smallest loss that still show the failure, once it is shrunk.
    pub shrunk: Option<Box<Failure>>,
    /// The script, if this is a shrunk failure.
    pub script: Option<String>,
}

impl Failure {
    /// Describes a state of a recording.
    pub fn describe(recording: &Recording, state: &StateId, finding: Finding) -> Failure {
        let (log, work) = (&recording.log, &recording.work);
        let base = work.machine();
        let mut walk = recording.walk(&base);
        walk.advance_to_state(state);
        let uncertain = walk.uncertain();
        let lost_lines = walk.lost_lines(&walk.make_of(state, &uncertain));
        let progress = work.progress_at(log, state.event);
        let around = work
            .scripts
            .iter()
            .zip(&progress)
            .map(|(script, p)| {
                let op = |i: usize| {
                    script
                        .ops
                        .get(i)
                        .map_or("nothing".into(), |o| o.to_string())
                };
                match p.acked.checked_sub(1) {
                    None => format!("before 1, {}", op(0)),
                    Some(i) => format!("after {}, {}; then {}", i + 1, op(i), op(i + 1)),
                }
            })
            .collect();
        Failure {
            case: recording.header.workload.clone(),
            state: state.to_string(),
            finding,
            progress: progress.iter().map(|p| (p.begun, p.acked)).collect(),
            around,
            lost: lost(recording, state, &uncertain),
            lost_lines: (lost_lines, uncertain.lines.len()),
            record: None,
            shrunk: None,
            script: None,
        }
    }

    /// The report as text.
    pub fn text(&self) -> String {
        let mut out = format!("{}, crash {}\n  {}\n", self.case, self.state, self.finding);
        for (i, around) in self.around.iter().enumerate() {
            out.push_str(&format!("  thread {i}: power cut {around}\n"));
        }
        match self.lost.len() {
            0 => out.push_str("  nothing was lost that was written\n"),
            n => {
                out.push_str(&format!("  lost of {n} writes:\n"));
                for w in self.lost.iter().take(8) {
                    out.push_str(&format!(
                        "    event {}: {} of {} sectors of the {} bytes at {}\n",
                        w.event, w.lost.0, w.lost.1, w.len, w.offset
                    ));
                }
                if n > 8 {
                    out.push_str(&format!("    and {} more\n", n - 8));
                }
            }
        }
        if let (lines @ 1.., uncertain) = self.lost_lines {
            out.push_str(&format!(
                "  lost of the region: {lines} of {uncertain} lines that were not fenced\n"
            ));
        }
        if let Some(record) = &self.record {
            out.push_str(&format!(
                "  repeat it: stetfs crash repeat {record} {}\n",
                self.state
            ));
        }
        if let Some(shrunk) = &self.shrunk {
            out.push_str("shrunk to: ");
            out.push_str(&shrunk.text());
            if let Some(script) = &shrunk.script {
                out.push_str("  with the script\n");
                script
                    .lines()
                    .for_each(|l| out.push_str(&format!("    {l}\n")));
            }
        }
        out
    }
}

/// The writes that a state lost in whole or in part.
pub(crate) fn lost(
    recording: &Recording,
    state: &StateId,
    uncertain: &Uncertain,
) -> Vec<LostWrite> {
    let arrived = uncertain.arrived(state.event, &state.arrival);
    let mut all: Vec<LostWrite> = Vec::new();
    for (sector, arrived) in uncertain.sectors.iter().zip(arrived) {
        if all.last().is_none_or(|w| w.event != sector.event) {
            let (offset, len) = match recording.log.events.get(sector.event) {
                Some(Event::Write { offset, data, .. }) => (*offset, data.len() as u64),
                Some(Event::Discard { range, .. }) => (range.start, range.end - range.start),
                _ => continue,
            };
            all.push(LostWrite {
                event: sector.event,
                offset,
                len,
                lost: (0, 0),
            });
        }
        if let Some(write) = all.last_mut() {
            write.lost.1 += 1;
            write.lost.0 += u32::from(!arrived);
        }
    }
    all.retain(|w| w.lost.0 > 0);
    all
}
