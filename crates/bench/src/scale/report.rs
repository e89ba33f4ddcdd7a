//! The report of `stetfs bench scale`.

use std::fmt::Write as _;

use anyhow::Result;
use serde::Serialize;

use crate::compare::table;

/// A place in the code where threads waited.
#[derive(Clone, Debug, Serialize)]
pub struct WaitedFor {
    /// The kind of wait: for a mutex, a signal, a cache line …
    pub kind: &'static str,
    /// The call that waited, `file:line`.
    pub site: String,
    /// A thread that waited there.
    pub thread: String,
    /// Number of waits.
    pub count: u64,
    /// Time of all waits together, in parts of the time of all cores.
    pub share: f64,
}

/// A load on so many cores.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The load.
    pub load: String,
    /// The journal, with its options.
    pub journal: String,
    /// Number of cores, and of threads of the load.
    pub cores: u32,
    /// Operations a second of virtual time.
    pub per_second: f64,
    /// The same in parts of the first row's of this load and journal.
    pub speedup: f64,
    /// The longest waits.
    pub waits: Vec<WaitedFor>,
    /// Number of scheduling points.
    pub steps: u64,
    /// A number that is equal for equal runs.
    pub trace: u64,
    /// Seconds that the run took here.
    pub host_seconds: f64,
}

/// A prediction beside what was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// The load.
    pub load: String,
    /// The journal, with its options.
    pub journal: String,
    /// Number of cores.
    pub cores: u32,
    /// Operations a second of virtual time.
    pub predicted: f64,
    /// Operations a second on as many processors of this machine.
    pub measured: f64,
    /// By how much the prediction is above the measurement, in percent of the latter.
    pub error_percent: f64,
}

/// All runs of a command.
#[derive(Clone, Debug, Serialize)]
pub struct ScaleReport {
    /// The device, the source of costs, what they are.
    pub about: Vec<String>,
    /// The runs.
    pub rows: Vec<Row>,
    /// The validation, if there was one.
    pub validation: Vec<Compared>,
}

impl ScaleReport {
    /// The report for a terminal.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for line in &self.about {
            let _ = writeln!(out, "{line}");
        }
        let header = ["load", "journal", "cores", "ops/s", "speedup", "host s"];
        let mut rows = vec![header.map(str::to_owned).to_vec()];
        rows.extend(self.rows.iter().map(|row| {
            vec![
                row.load.clone(),
                row.journal.clone(),
                row.cores.to_string(),
                format!("{:.0}", row.per_second),
                format!("×{:.2}", row.speedup),
                format!("{:.1}", row.host_seconds),
            ]
        }));
        let _ = write!(out, "\n{}", table::text(&rows));
        for row in self.rows.iter().filter(|row| !row.waits.is_empty()) {
            let _ = writeln!(
                out,
                "\n{}, {}, {} cores: where threads waited, in % of all cores' time",
                row.load, row.journal, row.cores
            );
            for wait in &row.waits {
                let _ = writeln!(
                    out,
                    "  {:6.1} %  {:9}  {:12}  {}  ({})",
                    100.0 * wait.share,
                    wait.count,
                    wait.kind,
                    wait.site,
                    wait.thread
                );
            }
        }
        out + &self.validation_text()
    }

    fn validation_text(&self) -> String {
        if self.validation.is_empty() {
            return String::new();
        }
        let header = [
            "load",
            "journal",
            "cores",
            "predicted/s",
            "measured/s",
            "error",
        ];
        let mut rows = vec![header.map(str::to_owned).to_vec()];
        rows.extend(self.validation.iter().map(|c| {
            vec![
                c.load.clone(),
                c.journal.clone(),
                c.cores.to_string(),
                format!("{:.0}", c.predicted),
                format!("{:.0}", c.measured),
                format!("{:+.1} %", c.error_percent),
            ]
        }));
        format!(
            "\nvirtual time beside this machine's:\n{}",
            table::text(&rows)
        )
    }

    /// The report as JSON.
    ///
    /// # Errors
    /// None that is known.
    pub fn json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)?)
    }
}
