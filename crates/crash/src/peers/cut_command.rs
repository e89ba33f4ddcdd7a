//! `stetfs crash cut`.

use std::fmt::Write;
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use super::cut::{Cut, CutRow};
use super::{Binary, Limits};
use crate::answer::Answer;

/// Arguments of `crash cut`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLE)]
pub struct CutArgs {
    /// An image of a volume; a copy in memory is worked on.
    volume: PathBuf,
    /// Mount options.
    #[arg(short, long, value_name = "OPTION,…", default_value = "")]
    options: String,
    /// A command of the shell that is done first and not recorded. The mount is $STETFS_DIR, for
    /// all three.
    #[arg(long, value_name = "COMMAND")]
    prepare: Option<String>,
    /// The command whose work is recorded. Each line that it prints is told to the judges of
    /// crashes that come after it: that something was acknowledged, for instance. It ends all that
    /// it began.
    #[arg(long, value_name = "COMMAND")]
    run: String,
    /// The judge: a command that fails if what a crash left on the mount is broken. The file
    /// $STETFS_TOLD has the lines that were printed before the crash. It ends all that it began.
    #[arg(long, value_name = "COMMAND")]
    check: String,
    /// Judges at once.
    #[arg(long, value_name = "N", default_value_t = 1)]
    jobs: usize,
    /// Stop at so many that are broken.
    #[arg(long, value_name = "N", default_value_t = 10)]
    failures: usize,
    /// Keep the first images that are broken in this directory, as the crash left them, with what
    /// was said.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    #[command(flatten)]
    limits: Limits,
    #[command(flatten)]
    stetfs: Binary,
}

const EXAMPLE: &str = "Example: what of lines that are appended and synced is there?
  stetfs crash cut disk.img -o journal=ijournal \\
    --run 'for n in $(seq 100); do echo $n >> $STETFS_DIR/log; sync $STETFS_DIR/log; echo $n; done' \\
    --check 'test $(wc -l < $STETFS_DIR/log) -ge $(wc -l < $STETFS_TOLD)'";

impl CutArgs {
    pub(crate) fn run(&self) -> Result<Answer> {
        let cut = Cut {
            volume: self.volume.clone(),
            options: self.options.clone(),
            prepare: self.prepare.clone(),
            run: self.run.clone(),
            check: self.check.clone(),
            binary: self.stetfs.path()?,
            keep: self.keep.clone(),
            jobs: self.jobs.clamp(1, 256),
            failures: self.failures.max(1),
            limits: self.limits,
        };
        let row = cut.run()?;
        let mut answer = Answer::new(text(&row), &row)?;
        answer.broken = row.broken + row.fscks.1 > 0;
        Ok(answer)
    }
}

fn text(row: &CutRow) -> String {
    let mut text = format!(
        "{}, seed {}: {} writes and {} flushes, {} lines\n\
         {} crashes, {} with a torn write, {} cut again inside the recovery: {} broken\n\
         e2fsck finds fault with {} of {}; {:.1} s\n",
        row.options,
        row.seed,
        row.writes,
        row.flushes,
        row.told,
        row.states,
        row.torn,
        row.cut_again,
        row.broken,
        row.fscks.1,
        row.fscks.0,
        row.seconds
    );
    for example in &row.examples {
        // Writing to a string does not fail.
        let _ = writeln!(text, "{example}");
    }
    text
}
