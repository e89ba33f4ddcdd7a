//! The subcommand `stetfs crash stress`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use indicatif::ProgressBar;
use serde_json::json;
use stetfs_testkit::cmd::tied;

use super::{Broken, End, Settings, SyncBy, Tally, child, round};
use crate::answer::Answer;
use crate::progress::Teller;

/// Arguments of `crash stress`. Rounds take the values of omitted options in turn.
#[derive(Clone, Debug, Args)]
pub struct StressArgs {
    /// How rounds end [default: each way in turn].
    #[arg(long, value_enum, value_delimiter = ',')]
    end: Vec<End>,
    /// Journal to test: a preset, and options. Can be given several times [default: presets with
    /// and without sync=file, data with data=overwrites, and zjournal with two lanes in both data
    /// modes].
    #[arg(long, value_name = "PRESET[,OPTION…]")]
    journal: Vec<String>,
    /// Size of a block in bytes [default: 4096 and 1024].
    #[arg(long, value_name = "BYTES", value_delimiter = ',')]
    block: Vec<u32>,
    /// Size of the journal in MiB [default: 4 and 64].
    #[arg(long, value_name = "N", value_delimiter = ',')]
    journal_mib: Vec<u64>,
    /// Size of a region of persistent memory for sync records, of journals that have these; 0: no
    /// region [default: 0 and 1M].
    #[arg(long, value_name = "BYTES", value_delimiter = ',', value_parser = stetfs::low::size::bytes)]
    region: Vec<u64>,
    /// Threads that overwrite blocks in place and sync [default: 1, 4 and 8].
    #[arg(long, value_name = "N", value_delimiter = ',')]
    writers: Vec<usize>,
    /// Threads that create, append, rename, unlink and sync, at most 4 [default: 1 and 2].
    #[arg(long, value_name = "N", value_delimiter = ',')]
    changers: Vec<usize>,
    /// Preallocated files that are overwritten, of two blocks each [default: 1500].
    #[arg(long, value_name = "N")]
    files: Option<usize>,
    /// Two threads overwrite each file, a block each [default: false and true].
    #[arg(long, value_name = "BOOL", value_delimiter = ',')]
    shared: Vec<bool>,
    /// How overwrites are synced; a way named several times is more frequent [default:
    /// fsync,fsync,fdatasync,osync,none].
    #[arg(long, value_enum, value_delimiter = ',')]
    sync: Vec<SyncBy>,
    /// Longest time until the end of a round, in ms [default: 300].
    #[arg(long, value_name = "N")]
    millis: Option<u64>,
    /// Number of flushes or writes in a row that fail [default: 1, and all from then on].
    #[arg(long, value_name = "N", value_delimiter = ',')]
    failing: Vec<u64>,
    /// Seed of all random choices; round n has this seed plus n.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Duration of the test, in seconds.
    #[arg(long, value_name = "N", default_value_t = 60.0)]
    seconds: f64,
    /// Stop after this many rounds, even if time is left.
    #[arg(long, value_name = "N")]
    rounds: Option<u64>,
    /// Stop at this many images with a broken promise.
    #[arg(long, value_name = "N", default_value_t = 10)]
    failures: usize,
    /// Run e2fsck on every recovered image, instead of one in eight.
    #[arg(long)]
    fsck: bool,
    /// Directory for the images with a broken promise, as they were before recovery.
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// With --json: file for the JSON, instead of standard output.
    #[arg(value_name = "FILE")]
    json_file: Option<PathBuf>,
    /// Run this task until killed.
    #[arg(long, hide = true)]
    child: Option<String>,
}

/// e2fsck checks one round in this many.
const FSCK_EACH: u64 = 8;
/// Most failures that are printed; the JSON has all.
const SHOWN: usize = 5;

fn or<T: Clone>(given: &[T], default: Vec<T>) -> Vec<T> {
    match given {
        [] => default,
        _ => given.to_vec(),
    }
}

/// The command that runs a round in another process of this program.
pub(crate) fn this_program(task: &str) -> Result<Command> {
    let binary = std::env::current_exe().context("finding this program")?;
    let mut command = tied(&binary, libc::SIGKILL);
    command.args(["crash", "stress", "--child", task]);
    Ok(command)
}

impl StressArgs {
    fn settings(&self) -> Settings {
        let all = Settings::default();
        Settings {
            ends: or(&self.end, all.ends),
            journals: or(&self.journal, all.journals),
            blocks: or(&self.block, all.blocks),
            journals_mib: or(&self.journal_mib, all.journals_mib),
            regions: or(&self.region, all.regions),
            writers: or(&self.writers, all.writers),
            changers: or(&self.changers, all.changers),
            failing: or(&self.failing, all.failing),
            files: self.files.unwrap_or(all.files),
            shared: or(&self.shared, all.shared),
            syncs: or(&self.sync, all.syncs),
            millis: self.millis.unwrap_or(all.millis),
        }
    }

    pub(crate) fn run(&self) -> Result<Answer> {
        if let Some(task) = &self.child {
            child(task)?;
            return Answer::new("", json!({}));
        }
        ensure!(
            self.seconds.is_finite() && self.seconds > 0.0,
            "--seconds must be above 0"
        );
        let settings = self.settings();
        let until = Instant::now() + Duration::from_secs_f64(self.seconds);
        let started = Instant::now();
        let bar = Teller::new(ProgressBar::new_spinner());
        let mut tallies: BTreeMap<(String, String), Tally> = BTreeMap::new();
        let mut broken: Vec<Broken> = Vec::new();
        let mut n = 0;
        while Instant::now() < until
            && self.rounds.is_none_or(|most| n < most)
            && broken.len() < self.failures
        {
            let setting = settings.round(self.seed, n);
            let fsck = self.fsck || n % FSCK_EACH == 0;
            let told = round(&setting, fsck, self.keep.as_deref(), &this_program)?;
            let end = format!("{:?}", setting.end).to_lowercase();
            tallies
                .entry((setting.journal.clone(), end))
                .or_default()
                .add(&told);
            for b in &told.broken {
                bar.line(&b.detail);
            }
            broken.extend(told.broken);
            n += 1;
            bar.say(format!(
                "{n} rounds in {:.0} s, {} broken",
                started.elapsed().as_secs_f64(),
                broken.len()
            ));
        }
        bar.end();
        self.answer(&tallies, &broken, n, started.elapsed())
    }

    fn answer(
        &self,
        tallies: &BTreeMap<(String, String), Tally>,
        broken: &[Broken],
        rounds: u64,
        took: Duration,
    ) -> Result<Answer> {
        let mut text = format!(
            "{:24} {:6} {:>6} {:>6} {:>6} {:>9} {:>7} {:>11}\n",
            "journal", "end", "rounds", "hit", "images", "acked", "broken", "lost blocks"
        );
        for ((journal, end), t) in tallies {
            text.push_str(&format!(
                "{journal:24} {end:6} {:>6} {:>6} {:>6} {:>9} {:>7} {:>11}\n",
                t.rounds, t.hit, t.images, t.acked, t.broken, t.lost
            ));
        }
        for b in broken.iter().take(SHOWN) {
            text.push_str(&format!("\nbroken {}: {}\n", b.moment, b.detail));
            if let Some(image) = &b.image {
                text.push_str(&format!("the image, not recovered: {image}\n"));
            }
            text.push_str(&format!(
                "again (threads race: --rounds for more): stetfs crash stress {} --rounds 1\n",
                b.round
            ));
        }
        text.push_str(&format!(
            "{rounds} rounds from seed {} in {:.0} s: {}\n",
            self.seed,
            took.as_secs_f64(),
            match broken.len() {
                0 => "nothing that was acknowledged is lost".into(),
                n => format!("{n} images in which a promise is broken"),
            }
        ));
        let rows: Vec<_> = tallies
            .iter()
            .map(|((journal, end), tally)| json!({"journal": journal, "end": end, "tally": tally}))
            .collect();
        let value = json!({
            "seed": self.seed,
            "rounds": rounds,
            "seconds": took.as_secs_f64(),
            "tallies": rows,
            "broken": broken,
        });
        let mut answer = Answer::new(text, value)?;
        answer.json_file.clone_from(&self.json_file);
        answer.broken = !broken.is_empty();
        Ok(answer)
    }
}
