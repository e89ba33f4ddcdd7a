//! Workloads on names: create, rename, unlink, stat; on a mount, and through the library.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::Instant;

use anyhow::{Result, anyhow, bail};
use stetfs::low::{Ctx, Fs, Ino, ROOT_INO, RenameFlags};

use super::measured::{Below, Measured, Meter, Outcome};
use crate::compare::Better;
use crate::compare::{Sizes, Target};

/// Number of files of the stat workload.
const STAT_FILES: u32 = 1_000;

/// A directory in which names are created, renamed and removed.
trait Dir: Sync {
    fn create(&self, name: &str) -> Result<()>;
    fn rename(&self, from: &str, to: &str) -> Result<()>;
    fn unlink(&self, name: &str) -> Result<()>;
}

impl Dir for PathBuf {
    fn create(&self, name: &str) -> Result<()> {
        Ok(File::create_new(self.join(name)).map(drop)?)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        Ok(fs::rename(self.join(from), self.join(to))?)
    }

    fn unlink(&self, name: &str) -> Result<()> {
        Ok(fs::remove_file(self.join(name))?)
    }
}

/// A directory of a volume that is open as a library, with the caller's credentials.
struct Inside<'v> {
    fs: &'v Fs,
    dir: Ino,
    ctx: Ctx,
}

impl Dir for Inside<'_> {
    // As for a program above the kernel, each call looks its names up first.
    fn create(&self, name: &str) -> Result<()> {
        match self.fs.lookup(self.dir, name.as_bytes()) {
            Err(e) if e.errno() == libc::ENOENT => {}
            Err(e) => return Err(e.into()),
            Ok(_) => bail!("{name} is there already"),
        }
        let (attr, file) = self.fs.create(
            &self.ctx,
            self.dir,
            name.as_bytes(),
            0o666,
            0o022,
            libc::O_WRONLY,
        )?;
        drop(file);
        self.fs.forget(attr.ino, 1);
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (from.as_bytes(), to.as_bytes());
        let flags = RenameFlags::default();
        Ok(self
            .fs
            .rename(&self.ctx, self.dir, from, self.dir, to, flags)?)
    }

    fn unlink(&self, name: &str) -> Result<()> {
        Ok(self.fs.unlink(&self.ctx, self.dir, name.as_bytes())?)
    }
}

type Step = fn(&dyn Dir, u32) -> Result<()>;

/// The steps, one after the other; the titles include the number of threads.
fn steps() -> [(&'static str, Step); 3] {
    [
        ("create", |dir, i| dir.create(&format!("file-{i}"))),
        ("rename", |dir, i| {
            dir.rename(&format!("file-{i}"), &format!("renamed-{i}"))
        }),
        ("unlink", |dir, i| dir.unlink(&format!("renamed-{i}"))),
    ]
}

/// Runs the steps, each with a thread per directory; a mounted target is settled before each.
fn work(target: Option<&Target>, dirs: &[&dyn Dir], each: u32, how: &str) -> Result<Outcome> {
    let operations = f64::from(each) * dirs.len() as f64;
    let mut outcome = Vec::new();
    for (what, step) in steps() {
        let barrier = Barrier::new(dirs.len() + 1);
        let (seconds, below) = std::thread::scope(|scope| -> Result<_> {
            let workers: Vec<_> = dirs
                .iter()
                .map(|dir| {
                    let barrier = &barrier;
                    scope.spawn(move || {
                        barrier.wait();
                        (0..each).try_for_each(|i| step(*dir, i))
                    })
                })
                .collect();
            let meter = target.map(Meter::start).transpose();
            barrier.wait();
            let start = Instant::now();
            let meter = meter?;
            for worker in workers {
                worker
                    .join()
                    .map_err(|_| anyhow!("a worker thread panicked"))??;
            }
            let seconds = start.elapsed().as_secs_f64();
            let below = meter.map_or_else(|| Ok(Below::default()), |m| m.below(operations))?;
            Ok((seconds, below))
        })?;
        outcome.push(Measured {
            title: format!("{what}, {how}"),
            unit: "/s".into(),
            better: Better::Higher,
            value: operations / seconds,
            below,
        });
    }
    Ok(outcome)
}

fn threads_of(n: u32) -> String {
    format!("{n} thread{}", if n == 1 { "" } else { "s" })
}

fn on_mount(target: &Target, dir: &Path, each: u32, threads: u32, how: &str) -> Result<Outcome> {
    let dirs: Vec<PathBuf> = (0..threads)
        .map(|t| dir.join(format!("{}-{t}", threads_of(threads))))
        .collect();
    for dir in &dirs {
        fs::create_dir(dir)?;
    }
    let dirs: Vec<&dyn Dir> = dirs.iter().map(|d| d as &dyn Dir).collect();
    work(Some(target), &dirs, each, how)
}

pub(super) fn names(target: &Target, dir: &Path, sizes: &Sizes, threads: u32) -> Result<Outcome> {
    on_mount(target, dir, sizes.names, threads, &threads_of(threads))
}

/// The same through the library, for targets that have one: in this process, without the kernel's
/// file system. Other targets run it on the mount.
pub(super) fn library(target: &mut Target, dir: &Path, sizes: &Sizes) -> Result<Outcome> {
    let mut outcome = Vec::new();
    let how = |threads| format!("library, {}", threads_of(threads));
    let has_library = target.with_volume(&mut |volume| {
        let fs = volume.fs();
        for threads in [1, 2u32] {
            let dirs = (0..threads)
                .map(|t| {
                    let ctx = Ctx::default();
                    let name = format!("library-{threads}-{t}");
                    let made = fs.mkdir(&ctx, ROOT_INO, name.as_bytes(), 0o755, 0)?;
                    Ok(Inside {
                        fs,
                        dir: made.ino,
                        ctx,
                    })
                })
                .collect::<Result<Vec<_>>>()?;
            let all: Vec<&dyn Dir> = dirs.iter().map(|d| d as &dyn Dir).collect();
            outcome.extend(work(None, &all, sizes.names, &how(threads))?);
            for (t, inside) in dirs.iter().enumerate() {
                let name = format!("library-{threads}-{t}");
                fs.rmdir(&inside.ctx, ROOT_INO, name.as_bytes())?;
                fs.forget(inside.dir, 1);
            }
        }
        Ok(())
    })?;
    if !has_library {
        for threads in [1, 2] {
            outcome.extend(on_mount(target, dir, sizes.names, threads, &how(threads))?);
        }
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
        title: "stat, cached".to_owned(),
        unit: "/s".into(),
        better: Better::Higher,
        value,
        below: Below::default(),
    }])
}
