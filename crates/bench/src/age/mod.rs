//! Ageing: the same months of use (`script`) on the kernel's ext4 and on StetFS, and the same judge
//! ([`judge`]) on both images.
//!
//! Each peer has an image of its own, made alike. A life has phases: the volume is filled, used for
//! simulated days at constant fullness, filled further, used again. After each phase it is
//! unmounted, checked with `e2fsck -fn` and judged.

mod command;
mod config;
mod figure;
pub mod judge;
mod peer;
mod report;
mod script;
mod surface;

use std::time::Instant;

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};

pub use command::AgeArgs;
pub use config::{AgeConfig, Phase};
pub use judge::Aged;
pub use peer::{Kind, PeerSpec};
pub use report::{Report, Stage};

use peer::Peer;
use script::{Op, Script, Shape};
use surface::{Paths, Surface};

/// Most days in which a phase may fill the volume.
const FILLING_DAYS: u32 = 400;

/// Runs the lives of all peers, one after the other.
///
/// # Errors
/// Not root (for mounted peers); a call of the script failed; `e2fsck` found an error.
pub fn run(config: &AgeConfig) -> Result<Report> {
    if config.peers.is_empty() || config.phases.is_empty() {
        bail!("nothing to age: there must be a file system and a phase");
    }
    if config
        .phases
        .iter()
        .any(|p| !(0.0..=0.99).contains(&p.full))
    {
        bail!("a volume is kept 0 to 0.99 full");
    }
    if !(0.0..=1.0).contains(&config.churn) || config.churn <= 0.0 {
        bail!("what is written in a day is a part of the volume, above 0 and up to 1");
    }
    let bar = if config.progress {
        ProgressBar::new((config.phases.len() * config.peers.len() * 1000) as u64)
    } else {
        ProgressBar::hidden()
    };
    bar.set_style(ProgressStyle::with_template(
        "{bar:30} {percent} % {elapsed} {msg}",
    )?);
    let mut report = Report::new(config);
    for (i, spec) in config.peers.iter().enumerate() {
        let stages = life(config, spec, &bar, (i * config.phases.len() * 1000) as u64)
            .with_context(|| format!("ageing {} (seed {})", spec.name, config.seed))?;
        report.add(stages);
    }
    bar.finish_and_clear();
    Ok(report)
}

/// Runs one peer's life; returns a stage per phase.
fn life(config: &AgeConfig, spec: &PeerSpec, bar: &ProgressBar, base: u64) -> Result<Vec<Stage>> {
    let peer = Peer::make(spec, config.image_bytes)?;
    let (capacity, block) = judge::free_space(peer.image())?;
    let mut script = Script::new(Shape {
        seed: config.seed,
        block,
        capacity,
        churn: config.churn,
    });
    let mut player = Player::default();
    let mut stages = Vec::new();
    for (n, phase) in config.phases.iter().enumerate() {
        let at = base + n as u64 * 1000;
        bar.set_position(at);
        bar.set_message(format!(
            "{}: filling to {:.0} %",
            spec.name,
            phase.full * 100.0
        ));
        let mut surface = peer.start()?;
        let begin = Instant::now();
        for _ in 0..FILLING_DAYS {
            let day = script.day(phase.full, true);
            let full = day.len() < 2;
            player.play(surface.as_mut(), &day)?;
            if full {
                break;
            }
        }
        let fill_seconds = begin.elapsed().as_secs_f64();
        let mut day_seconds = Vec::new();
        for day in 0..phase.days {
            bar.set_position(at + u64::from(day) * 1000 / u64::from(phase.days.max(1)));
            bar.set_message(format!(
                "{}: {:.0} % full, day {}",
                spec.name,
                phase.full * 100.0,
                day + 1
            ));
            let calls = script.day(phase.full, false);
            let begin = Instant::now();
            player
                .play(surface.as_mut(), &calls)
                .with_context(|| format!("day {} at {:.0} %", day + 1, phase.full * 100.0))?;
            day_seconds.push(begin.elapsed().as_secs_f64());
        }
        surface.end()?;
        peer.check()?;
        stages.push(Stage {
            full: phase.full,
            fill_seconds,
            day_seconds,
            aged: judge::judge(peer.image())?,
        });
    }
    Ok(stages)
}

/// Executes the calls of a script on a file system.
#[derive(Default)]
struct Player {
    paths: Paths,
    /// The bytes to write; their values do not matter.
    bytes: Vec<u8>,
}

impl Player {
    fn play(&mut self, on: &mut dyn Surface, calls: &[Op]) -> Result<()> {
        crate::interrupt::check()?;
        calls
            .iter()
            .try_for_each(|op| self.step(on, op).with_context(|| format!("{op:?}")))
    }

    fn step(&mut self, on: &mut dyn Surface, op: &Op) -> Result<()> {
        match *op {
            Op::MakeDir { dir, parent } => on.make_dir(&self.paths.add_dir(dir, parent)?),
            Op::RemoveDir { dir } => on.remove_dir(self.paths.dir(dir)?),
            Op::Create { slot, file, dir } => on.create(slot, &self.paths.add_file(file, dir)?),
            Op::Open { slot, file } => on.open(slot, &self.paths.file(file)?),
            Op::Write { slot, at, len } => {
                if self.bytes.len() < len {
                    self.bytes.resize(len, 0x5A);
                }
                on.write(slot, at, &self.bytes[..len])
            }
            Op::Sync { slot } => on.sync(slot),
            Op::Close { slot } => on.close(slot),
            Op::Truncate { file, len } => on.truncate(&self.paths.file(file)?, len),
            Op::Replace { file, old } => {
                on.rename(&self.paths.file(file)?, &self.paths.file(old)?)?;
                self.paths.replace(file, old);
                Ok(())
            }
            Op::Remove { file } => {
                on.remove(&self.paths.file(file)?)?;
                self.paths.remove(file);
                Ok(())
            }
            Op::SyncAll => on.sync_all(),
        }
    }
}
