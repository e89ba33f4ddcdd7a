//! Deliberate faults: the lab is only worth something if it finds them.

use anyhow::Result;
use serde::Serialize;
use stetfs::{Preset, preset};
use stetfs_block::Replay;

use crate::explore::{Config, Often, Progress, Source, explore};
use crate::judge::Checks;
use crate::setup::{JournalSpec, Shape};
use crate::workload::cases;

/// A fault, and where it shows.
#[derive(Clone, Copy, Debug)]
pub struct Canary {
    /// Its name in `canary=`.
    pub name: &'static str,
    /// Further options of the journal.
    options: &'static str,
    workload: &'static str,
    /// The fault is one of recovery alone: without it the same image is judged sound.
    in_recovery: bool,
    /// None: all of them.
    presets: Option<&'static [Preset]>,
}

/// All of them.
pub const CANARIES: [Canary; 6] = [
    Canary {
        name: "no-barrier",
        options: "",
        workload: "smoke",
        in_recovery: false,
        presets: None,
    },
    Canary {
        // With async_commit nothing but the checksums tells a torn transaction.
        name: "skip-checksums",
        options: ",async_commit",
        workload: "orphans",
        in_recovery: true,
        presets: None,
    },
    Canary {
        // Data that is journaled stands in the log behind what was revoked.
        name: "ignore-revokes",
        options: "",
        workload: "reuse",
        in_recovery: true,
        presets: Some(&[preset::ORDERED, preset::WRITEBACK]),
    },
    Canary {
        name: "ignore-horizon",
        options: "",
        workload: "random",
        in_recovery: true,
        presets: Some(&[preset::IJOURNAL]),
    },
    Canary {
        name: "reuse-early",
        options: "",
        workload: "random",
        in_recovery: false,
        presets: Some(&[preset::ORDERED, preset::IJOURNAL]),
    },
    Canary {
        name: "promise",
        options: "",
        workload: "smoke",
        in_recovery: false,
        presets: None,
    },
];

/// How a canary fared.
#[derive(Clone, Debug, Serialize)]
pub struct Caught {
    /// Its name.
    pub canary: String,
    /// The preset it sat in.
    pub preset: String,
    /// Whether it was found.
    pub caught: bool,
    /// States it took, and distinct images among them.
    pub states: u64,
    /// See `states`.
    pub distinct: u64,
    /// How it showed.
    pub finding: String,
}

/// Puts each canary into each preset that it fits, and searches for at most `seconds`.
///
/// # Errors
/// A workload failed on a sound device.
pub fn try_all(seed: u64, seconds: f64) -> Result<Vec<Caught>> {
    let mut all = Vec::new();
    for canary in CANARIES {
        for preset in canary.presets.map_or_else(Preset::all, <[Preset]>::to_vec) {
            all.push(one(canary, preset, seed, seconds)?);
        }
    }
    Ok(all)
}

fn one(canary: Canary, preset: Preset, seed: u64, seconds: f64) -> Result<Caught> {
    let text = format!("{preset}{},canary={}", canary.options, canary.name);
    let journal: JournalSpec = text.parse().map_err(anyhow::Error::msg)?;
    let cases = cases(canary.workload, seed)?;
    let source = Source::Cases {
        journal: &journal,
        shape: Shape::default(),
        cases: &cases,
    };
    let config = Config {
        seed,
        seconds: Some(seconds),
        passes: None,
        failures: 1,
        // What is found must not need another program.
        fsck: Often::Never,
        thorough: Often::Never,
        recovery: Often::Never,
        ..Config::default()
    };
    let outcome = explore(&source, &config, &mut Progress::default(), &|_| Ok(()))?;
    let found = outcome.findings.first();
    let sound = match (found, outcome.records.first()) {
        (Some(failure), Some((_, recording))) if canary.in_recovery => {
            let mut work = recording.work.clone();
            work.options.canary = Default::default();
            let state: crate::state::StateId = failure.state.parse().map_err(anyhow::Error::msg)?;
            let image = state.make(&mut Replay::new(&work.base.image, &recording.log));
            let progress = work.progress_at(&recording.log, state.event);
            work.check(&image, &progress, Checks::default())
        }
        _ => Ok(()),
    };
    Ok(Caught {
        canary: canary.name.into(),
        preset: preset.name().into(),
        caught: found.is_some() && sound.is_ok(),
        states: outcome.states,
        distinct: outcome.distinct,
        finding: match (sound, found) {
            (Err(e), _) => format!("without the canary, too: {e}"),
            (Ok(()), Some(failure)) => failure.finding.to_string(),
            (Ok(()), None) => "not found".into(),
        },
    })
}
