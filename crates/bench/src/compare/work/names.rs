//! Work on names: create, rename, unlink, stat.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Barrier;

use anyhow::{Result, anyhow};

use super::{Measured, Meter, Outcome};
use crate::compare::report::Better;
use crate::compare::{Sizes, Target};

/// Files of the stat workload.
const STAT_FILES: u32 = 1_000;

type Step = fn(&Path, u32) -> std::io::Result<()>;

fn create(dir: &Path, i: u32) -> std::io::Result<()> {
    File::create_new(dir.join(format!("file-{i}"))).map(drop)
}

fn rename(dir: &Path, i: u32) -> std::io::Result<()> {
    fs::rename(
        dir.join(format!("file-{i}")),
        dir.join(format!("renamed-{i}")),
    )
}

fn unlink(dir: &Path, i: u32) -> std::io::Result<()> {
    fs::remove_file(dir.join(format!("renamed-{i}")))
}

pub(super) fn names(target: &Target, dir: &Path, sizes: &Sizes, threads: u32) -> Result<Outcome> {
    let dirs: Vec<PathBuf> = (0..threads)
        .map(|t| dir.join(format!("thread-{t}")))
        .collect();
    for dir in &dirs {
        fs::create_dir(dir)?;
    }
    let steps: [([&'static str; 2], Step); 3] = [
        (["create, 1 thread", "create, 2 threads"], create),
        (["rename, 1 thread", "rename, 2 threads"], rename),
        (["unlink, 1 thread", "unlink, 2 threads"], unlink),
    ];
    let mut outcome = Vec::new();
    for (titles, step) in steps {
        let operations = f64::from(sizes.names) * f64::from(threads);
        let barrier = Barrier::new(dirs.len() + 1);
        let (seconds, device) = std::thread::scope(|scope| -> Result<_> {
            let workers: Vec<_> = dirs
                .iter()
                .map(|dir| {
                    let barrier = &barrier;
                    scope.spawn(move || {
                        barrier.wait();
                        (0..sizes.names).try_for_each(|i| step(dir, i))
                    })
                })
                .collect();
            let meter = Meter::start(target);
            barrier.wait();
            let meter = meter?;
            for worker in workers {
                worker
                    .join()
                    .map_err(|_| anyhow!("a worker thread panicked"))??;
            }
            Ok((meter.seconds(), meter.device(operations)))
        })?;
        let title = if threads == 1 { titles[0] } else { titles[1] };
        outcome.push(Measured {
            title,
            unit: "/s",
            better: Better::Higher,
            value: operations / seconds,
            device,
        });
    }
    Ok(outcome)
}

pub(super) fn stat(target: &Target, dir: &Path, sizes: &Sizes) -> Result<Outcome> {
    let paths: Vec<PathBuf> = (0..STAT_FILES)
        .map(|i| dir.join(format!("file-{i}")))
        .collect();
    for path in &paths {
        fs::write(path, "x")?;
        fs::symlink_metadata(path)?;
    }
    let meter = Meter::start(target)?;
    for i in 0..sizes.stats {
        fs::symlink_metadata(&paths[(i % STAT_FILES) as usize])?;
    }
    let value = f64::from(sizes.stats) / meter.seconds();
    Ok(vec![Measured {
        title: "stat, cached",
        unit: "/s",
        better: Better::Higher,
        value,
        device: None,
    }])
}
