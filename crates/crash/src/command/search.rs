//! The subcommands `run`, `explore` and `repeat`: search the crashes of recordings, judge one
//! again.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::{Answer, ExploreArgs, RepeatArgs, RunArgs, SearchArgs, WorkArgs};
use crate::explore::{Failure, Outcome, Progress, Source, explore};
use crate::html;
use crate::judge::{Checks, Cuts, Finding};
use crate::layers::{self, Layer};
use crate::machine::Crashed;
use crate::record::{Recording, failing};
use crate::report::Report;
use crate::shrink::shrink;
use crate::state::StateId;
use crate::volume::Batches;
use crate::workload::{Case, cases};

impl RunArgs {
    pub(super) fn run(&self) -> Result<Answer> {
        let work = &self.work;
        if let Some(layer) = self.device {
            return self.below(layer);
        }
        let cases = cases(&work.workload, work.seed)?;
        if self.fail_flushes {
            return self.failing(&cases);
        }
        if let ([_], None) = (cases.as_slice(), &self.search.resume) {
            let make = |seed| work.case_of(seed);
            let source = Source::Seeded {
                journal: &work.journal,
                shape: work.shape(),
                make: &make,
            };
            return search(&source, &self.search, work.seed, work);
        }
        if let ([case], Some(resume)) = (cases.as_slice(), &self.search.resume) {
            // A search of one recording resumes only with the same recording.
            let path = resume.with_extension("record");
            let recording = if path.exists() {
                Recording::load(&path)?
            } else {
                let made = Recording::make(&work.journal, work.shape(), case, work.seed)?;
                made.save(&path)?;
                made
            };
            return search(&Source::Record(&recording), &self.search, work.seed, work);
        }
        self.all(&cases, work)
    }

    fn below(&self, layer: Layer) -> Result<Answer> {
        let (work, search) = (&self.work, &self.search);
        let config = search.config(work.seed)?;
        let how = layers::How {
            layer,
            seed: work.seed,
            seconds: search.seconds,
            threads: config.threads,
            failures: config.failures,
        };
        let make = |seed| cases(&work.workload, seed);
        let out = search.out.clone().unwrap_or_else(|| "stetfs-crash".into());
        let outcome = layers::explore(how, &work.journal, work.shape(), &make, &out)?;
        let mut answer = Answer::new(outcome.text(), &outcome)?;
        answer.broken = outcome.failures > 0;
        answer.json_file.clone_from(&search.json_file);
        Ok(answer)
    }

    fn failing(&self, cases: &[Case]) -> Result<Answer> {
        let mut work = self.work.clone();
        let cases = failing(&work.journal, work.shape(), cases, work.seed)?;
        ensure!(!cases.is_empty(), "the workload flushes nothing");
        work.workload.push_str(" with failing flushes");
        self.all(&cases, &work)
    }

    fn all(&self, cases: &[Case], work: &WorkArgs) -> Result<Answer> {
        let source = Source::Cases {
            journal: &work.journal,
            shape: work.shape(),
            cases,
        };
        search(&source, &self.search, work.seed, work)
    }
}

impl ExploreArgs {
    pub(super) fn run(&self) -> Result<Answer> {
        let recording = Recording::load(&self.record)?;
        let work = WorkArgs {
            journal: recording
                .header
                .journal
                .parse()
                .map_err(anyhow::Error::msg)?,
            workload: recording.header.workload.clone(),
            seed: recording.header.seed,
            block: recording.header.block,
            journal_blocks: recording.header.journal_blocks,
            share: recording.header.batches,
            fua: recording.header.fua,
            region: recording.header.region,
        };
        search(&Source::Record(&recording), &self.search, self.seed, &work)
    }
}

pub(super) fn search(
    source: &Source<'_>,
    args: &SearchArgs,
    seed: u64,
    work: &WorkArgs,
) -> Result<Answer> {
    let config = args.config(seed)?;
    let what = format!(
        "{}, {}, blocks of {}, journal of {}, seed {seed}{}{}{}",
        work.journal,
        work.workload,
        work.block,
        work.journal_blocks,
        match work.share {
            Batches::Torn => "",
            Batches::Atomic => ", atomic shares",
        },
        if work.fua { ", FUA" } else { "" },
        work.region
            .map_or(String::new(), |bytes| format!(", region of {bytes}")),
    );
    let mut progress = match &args.resume {
        Some(path) => Progress::load(path, &what)?,
        None => Progress::default(),
    };
    progress.what = what;
    let save = |p: &Progress| match &args.resume {
        Some(path) => p.save(path),
        None => Ok(()),
    };
    let mut outcome = explore(source, &config, &mut progress, &save)?;
    let kept = match outcome.failures {
        0 => None,
        _ => Some(keep(args, &mut outcome)?),
    };
    let report = Report {
        journal: work.journal.to_string(),
        workload: work.workload.clone(),
        block: work.block,
        seed,
        share: work.share,
        region: work.region,
        states_per_second: outcome.states_per_second(),
        outcome,
    };
    let mut answer = Answer::new(report.text(), &report)?;
    if let Some((dir, recordings)) = kept {
        let path = dir.join("report.html");
        std::fs::write(&path, html::page(&report, &recordings))
            .with_context(|| format!("writing {}", path.display()))?;
        answer
            .text
            .push_str(&format!("\nlook at it: {}\n", path.display()));
    }
    answer.broken = report.outcome.failures > 0;
    answer.json_file.clone_from(&args.json_file);
    Ok(answer)
}

/// Number of failures that are shrunk.
const SHRUNK: usize = 2;

/// Time to shrink one failure.
const SHRINK: Duration = Duration::from_secs(40);

/// Saves the recordings of failures, and shrinks the first failures of different kinds.
pub(super) fn keep(
    args: &SearchArgs,
    outcome: &mut Outcome,
) -> Result<(PathBuf, BTreeMap<String, Recording>)> {
    let dir = args.out.clone().unwrap_or_else(|| "stetfs-crash".into());
    std::fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
    let mut records: HashMap<String, (Recording, String)> = HashMap::new();
    for (case, recording) in std::mem::take(&mut outcome.records) {
        let path = save(&dir, &case, &recording)?;
        records.insert(case, (recording, path));
    }
    let mut all: BTreeMap<String, Recording> =
        records.values().cloned().map(|(r, p)| (p, r)).collect();
    let mut shrunk = Vec::new();
    for failure in &mut outcome.findings {
        // Failures of an earlier run that is resumed have their recordings already.
        let Some((recording, path)) = records.get(&failure.case) else {
            continue;
        };
        failure.record = Some(path.clone());
        let kind = failure.finding.oracle;
        if !args.no_shrink && shrunk.len() < SHRUNK && !shrunk.contains(&kind) {
            shrunk.push(kind);
            let (mut small, record) = shrink(recording, failure, Instant::now() + SHRINK)?;
            let path = save(&dir, &format!("{}-small", failure.case), &record)?;
            small.record = Some(path.clone());
            all.insert(path, record);
            failure.shrunk = Some(Box::new(small));
        }
    }
    Ok((dir, all))
}

pub(super) fn save(dir: &Path, case: &str, recording: &Recording) -> Result<String> {
    let safe = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let name: String = case.chars().map(safe).collect();
    let preset: String = recording.header.journal.chars().map(safe).collect();
    let path = dir.join(format!("{preset}-{name}-{}.record", recording.header.seed));
    recording.save(&path)?;
    Ok(path.display().to_string())
}

/// The image that a crash leaves, and the verdict of all oracles: the crashes inside its
/// recoveries, or the broken promise.
pub(super) fn judged(
    recording: &Recording,
    state: &StateId,
) -> Result<(Crashed, Result<Cuts, Finding>)> {
    let (log, work) = (&recording.log, &recording.work);
    ensure!(
        state.event <= log.len(),
        "the recording has only {} events; the crash state is beyond its end",
        log.len()
    );
    let most = recording.region.len();
    ensure!(
        state.region.is_none_or(|region| region.event <= most),
        "the recording of the region has only {most} events; the crash state is beyond its end"
    );
    let image = recording.crashed(state);
    let progress = work.progress_at(log, state.event);
    let result = work
        .check(&image, &progress, Checks::ALL)
        .and_then(|()| work.check_cut_recovery(&image, &progress));
    Ok((image, result))
}

impl RepeatArgs {
    pub(super) fn run(&self) -> Result<Answer> {
        let recording = Recording::load(&self.record)?;
        let (image, result) = judged(&recording, &self.state)?;
        if let Some(path) = &self.keep {
            let written = || format!("writing {}", path.display());
            image.device.save(path).with_context(written)?;
            if let Some(region) = &image.region {
                let path = path.with_extension("region");
                std::fs::write(&path, region.to_vec())
                    .with_context(|| format!("writing {}", path.display()))?;
            }
        }
        let finding = match result {
            Ok(cuts) => {
                return Answer::new(
                    format!(
                        "no promise is broken, nor after any of {} crashes inside the recovery and {} inside the second\n",
                        cuts.first, cuts.second
                    ),
                    json!({
                        "broken": false,
                        "recovery_cuts": cuts.first,
                        "second_recovery_cuts": cuts.second,
                    }),
                );
            }
            Err(finding) => finding,
        };
        let mut failure = Failure::describe(&recording, &self.state, finding);
        failure.record = Some(self.record.display().to_string());
        if let Some(seconds) = self.shrink {
            let time = Duration::from_secs_f64(seconds.clamp(0.0, 1e6));
            let (mut small, record) = shrink(&recording, &failure, Instant::now() + time)?;
            let path = self.record.with_extension("small.record");
            record.save(&path)?;
            small.record = Some(path.display().to_string());
            failure.shrunk = Some(Box::new(small));
        }
        let mut answer = Answer::new(
            failure.text(),
            json!({ "broken": true, "failure": failure }),
        )?;
        answer.broken = true;
        Ok(answer)
    }
}
