//! Workloads on cached files: open, read and close files, and list a directory, again and again.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use super::measured::{Measured, Meter, Outcome};
use crate::compare::Better;
use crate::compare::{Sizes, Target};

/// Number of files that are opened in turn …
const FILES: u32 = 200;
/// … and their size, bytes.
const SIZE: usize = 4096;
/// Number of names in the listed directory.
const NAMES: u32 = 4_000;
/// Number of operations for which one listing counts.
const LISTING: u32 = 500;

pub(super) fn open_read_close(target: &Target, dir: &Path, sizes: &Sizes) -> Result<Outcome> {
    let paths: Vec<PathBuf> = (0..FILES).map(|i| dir.join(format!("file-{i}"))).collect();
    let mut buffer = [0; SIZE];
    let mut read = |path: &PathBuf| -> Result<()> {
        File::open(path)?.read_exact(&mut buffer)?;
        Ok(())
    };
    for path in &paths {
        fs::write(path, [7; SIZE])?;
        read(path)?;
    }
    let meter = Meter::start(target)?;
    for (_, path) in (0..sizes.stats).zip(paths.iter().cycle()) {
        read(path)?;
    }
    let value = f64::from(sizes.stats) / meter.seconds();
    Ok(vec![Measured {
        title: "open, read, close, cached".to_owned(),
        unit: "/s".into(),
        better: Better::Higher,
        value,
        below: meter.below(f64::from(sizes.stats))?,
    }])
}

pub(super) fn listing(target: &Target, dir: &Path, sizes: &Sizes) -> Result<Outcome> {
    for i in 0..NAMES {
        File::create_new(dir.join(format!("name-{i}")))?;
    }
    let list = || -> Result<()> {
        let mut names = 0;
        for entry in fs::read_dir(dir)? {
            entry?;
            names += 1;
        }
        ensure!(names == NAMES, "{names} names of {NAMES} were listed");
        Ok(())
    };
    list()?;
    let listings = sizes.stats.div_ceil(LISTING);
    let meter = Meter::start(target)?;
    for _ in 0..listings {
        list()?;
    }
    let names = f64::from(listings) * f64::from(NAMES);
    let value = names / meter.seconds();
    Ok(vec![Measured {
        title: "list a directory again, names".to_owned(),
        unit: "/s".into(),
        better: Better::Higher,
        value,
        below: meter.below(names)?,
    }])
}
