//! The search: makes crash states from recordings, and judges each once, on all cores, until time
//! is up.
//!
//! The first pass visits every place of the recording in order (`state::first_pass`). Later passes
//! draw further states at random places. A family of many small recordings is searched recording by
//! recording, one core each; a long recording place by place, by all cores.

mod config;
mod failure;
mod outcome;
mod resume;
mod search;

pub use config::{Config, Often, Source};
pub(crate) use failure::lost;
pub use failure::{Failure, LostWrite};
pub use outcome::Outcome;
pub use resume::Progress;
pub use search::Explorer;

pub use crate::machine::image_hash;

use std::time::{Duration, Instant};

use crate::progress::Teller;
use anyhow::{Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};

/// Searches `source`. `resume` holds the point to resume from, and is kept up to date; `save` is
/// called with it now and then.
///
/// # Errors
/// A workload failed on a sound device. Broken promises are in the outcome, not in the error.
pub fn explore(
    source: &Source<'_>,
    config: &Config,
    resume: &mut Progress,
    save: &(dyn Fn(&Progress) -> Result<()> + Sync),
) -> Result<Outcome> {
    ensure!(
        config.passes.is_some() || config.seconds.is_some(),
        "the search would never end: give --seconds or --passes"
    );
    let start = Instant::now();
    let deadline = config
        .seconds
        .map(|s| start + Duration::from_secs_f64(s.clamp(0.0, 1e8)));
    let bar = teller(config);
    let explorer = Explorer::new(*config, deadline, resume.clone());
    let result = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| explorer.watch(&bar, start, save));
        let result = explorer.run(source);
        explorer.finish();
        let watched = watcher.join();
        result.and(watched.unwrap_or(Ok(())))
    });
    bar.end();
    result?;
    let (mut outcome, progress) = explorer.outcome(source.len() as u64);
    outcome.seconds = start.elapsed().as_secs_f64() + resume.outcome.seconds;
    *resume = progress;
    resume.outcome.seconds = outcome.seconds;
    save(resume)?;
    Ok(outcome)
}

fn teller(config: &Config) -> Teller {
    if !config.bar {
        return Teller::silent();
    }
    let bar = match config.seconds {
        Some(seconds) => ProgressBar::new((seconds * 10.0) as u64),
        None => ProgressBar::new_spinner(),
    };
    let style = match config.seconds {
        Some(_) => "{bar:30} {msg}",
        None => "{spinner} {elapsed} {msg}",
    };
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    Teller::new(bar)
}
