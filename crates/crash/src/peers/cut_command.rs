//! The subcommand `stetfs crash cut`.

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
    /// Image of a volume; only a copy in memory is changed.
    volume: PathBuf,
    /// Mount options.
    #[arg(short, long, value_name = "OPTION,…", default_value = "")]
    options: String,
    /// Shell command to run first, without recording it. For all three commands $STETFS_DIR is the
    /// mount point.
    #[arg(long, value_name = "COMMAND")]
    prepare: Option<String>,
    /// Shell command to record. Each line that it prints goes to the judges of later crashes, for
    /// instance as an acknowledgement. The command must end all processes that it starts.
    #[arg(long, value_name = "COMMAND")]
    run: String,
    /// Shell command that judges a crash state: it fails if the content of the mount is broken. The
    /// file $STETFS_TOLD holds the lines printed before the crash. The command must end all
    /// processes that it starts.
    #[arg(long, value_name = "COMMAND")]
    check: String,
    /// Number of judges to run at once.
    #[arg(long, value_name = "N", default_value_t = 1)]
    jobs: usize,
    /// Stop at this many broken states.
    #[arg(long, value_name = "N", default_value_t = 10)]
    failures: usize,
    /// Directory for the first broken images, as the crash left them, with the verdicts.
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
