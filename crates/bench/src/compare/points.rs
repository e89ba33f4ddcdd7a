//! Results that are kept as soon as they are measured: an interrupted call continues from them.

use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use stetfs_flashlab::saved::Saved;

use super::{Outcome, Sizes};

/// One run of a workload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) workload: String,
    pub(crate) target: String,
    pub(crate) round: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Point {
    run: Run,
    /// The amount of work.
    sizes: String,
    outcome: Outcome,
}

/// The runs of an earlier call of the same program, and of this one.
pub(crate) struct Points {
    saved: Saved<Point>,
    sizes: String,
}

impl Points {
    /// Keeps them in the file at `path`, which is created if it does not exist; without a path
    /// nothing is kept.
    pub(crate) fn open(path: Option<&Path>, sizes: &Sizes) -> Result<Self> {
        Ok(Self {
            saved: Saved::open(path)?,
            sizes: format!("{sizes:?}"),
        })
    }

    /// The kept result of the run, or that of `now`.
    pub(crate) fn of(&self, run: Run, now: impl FnOnce() -> Result<Outcome>) -> Result<Outcome> {
        let found = self.saved.find(|p| p.run == run && p.sizes == self.sizes);
        if let Some(point) = found {
            return Ok(point.outcome.clone());
        }
        let outcome = now()?;
        self.saved.add(&[Point {
            run,
            sizes: self.sizes.clone(),
            outcome: outcome.clone(),
        }])?;
        Ok(outcome)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn a_run_is_done_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("points.jsonl");
        let run = |round| Run {
            workload: "w".into(),
            target: "t".into(),
            round,
        };
        let open = |sizes| Points::open(Some(&path), &sizes).unwrap();
        let now = || Ok(Outcome::new());
        open(Sizes::quick()).of(run(1), now).unwrap();
        let again = open(Sizes::quick());
        assert!(again.of(run(1), || bail!("again")).is_ok());
        assert!(again.of(run(2), || bail!("another round")).is_err());
        let more = open(Sizes::normal());
        assert!(more.of(run(1), || bail!("more work")).is_err());
    }
}
