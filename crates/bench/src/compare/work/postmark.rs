//! The mix of PostMark (Katcher, Network Appliance TR-3022, 1997), reimplemented: the small files
//! of a mail or news server. One thread, no syncs.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::measured::{Measured, Meter, Outcome};
use crate::compare::Better;
use crate::compare::{Postmark, Sizes, Target};

/// The existing files.
struct Pool<'a> {
    dir: &'a Path,
    mix: Postmark,
    rng: fastrand::Rng,
    /// The source of all content: random printable characters, twice as many as in the largest
    /// file.
    source: Vec<u8>,
    buffer: Vec<u8>,
    /// Number and size in bytes of each.
    files: Vec<(u32, usize)>,
    /// The number of the next file.
    next: u32,
}

impl<'a> Pool<'a> {
    fn new(dir: &'a Path, mix: Postmark) -> Result<Self> {
        for d in 0..mix.directories {
            fs::create_dir(dir.join(format!("{d}")))?;
        }
        let mut rng = fastrand::Rng::with_seed(17);
        Ok(Self {
            dir,
            mix,
            source: (0..2 * mix.most).map(|_| rng.u8(b' '..=b'~')).collect(),
            rng,
            buffer: Vec::new(),
            files: Vec::new(),
            next: 0,
        })
    }

    fn path(&self, number: u32) -> PathBuf {
        self.dir
            .join(format!("{}", number % self.mix.directories))
            .join(format!("{number}"))
    }

    fn write(&mut self, file: &mut File, bytes: usize) -> Result<()> {
        let from = self.rng.usize(0..=self.source.len() - bytes);
        let data = self.source.get(from..from + bytes).unwrap_or_default();
        Ok(file.write_all(data)?)
    }

    fn create(&mut self) -> Result<()> {
        let (number, size) = (self.next, self.rng.usize(self.mix.least..=self.mix.most));
        self.next += 1;
        let mut file = File::create_new(self.path(number))?;
        self.write(&mut file, size)?;
        self.files.push((number, size));
        Ok(())
    }

    /// Deletes a random file; false if there is none.
    fn delete(&mut self) -> Result<bool> {
        if self.files.is_empty() {
            return Ok(false);
        }
        let chosen = self.rng.usize(0..self.files.len());
        let (number, _) = self.files.swap_remove(chosen);
        fs::remove_file(self.path(number))?;
        Ok(true)
    }

    fn read(&mut self) -> Result<()> {
        if let Some(&(number, _)) = self.rng.choice(&self.files) {
            let mut file = File::open(self.path(number))?;
            self.buffer.clear();
            file.read_to_end(&mut self.buffer)?;
        }
        Ok(())
    }

    /// Appends without exceeding the largest size.
    fn append(&mut self) -> Result<()> {
        if self.files.is_empty() {
            return Ok(());
        }
        let chosen = self.rng.usize(0..self.files.len());
        let Some((number, size)) = self.files.get(chosen).copied() else {
            return Ok(());
        };
        let more = self.rng.usize(0..=self.mix.most.saturating_sub(size));
        let mut file = OpenOptions::new().append(true).open(self.path(number))?;
        self.write(&mut file, more)?;
        if let Some(file) = self.files.get_mut(chosen) {
            file.1 += more;
        }
        Ok(())
    }

    fn transaction(&mut self) -> Result<()> {
        if self.rng.bool() {
            self.read()?;
        } else {
            self.append()?;
        }
        if self.rng.bool() || !self.delete()? {
            self.create()?;
        }
        Ok(())
    }
}

/// Runs a part of the work `times` times. Nothing is synced within its time; the requests to the
/// device are counted until everything is written back.
fn part(
    target: &Target,
    (title, unit): (&str, &'static str),
    times: u32,
    mut work: impl FnMut() -> Result<()>,
) -> Result<Measured> {
    let meter = Meter::start(target)?;
    for _ in 0..times {
        work()?;
    }
    let value = f64::from(times) / meter.seconds();
    Ok(Measured {
        title: title.to_owned(),
        unit: unit.into(),
        better: Better::Higher,
        value,
        below: meter.below_settled(f64::from(times))?,
    })
}

pub(super) fn mix(target: &Target, dir: &Path, sizes: &Sizes) -> Result<Outcome> {
    let mix = sizes.postmark;
    let mut pool = Pool::new(dir, mix)?;
    let create = part(target, ("PostMark, create", "files/s"), mix.files, || {
        pool.create()
    })?;
    let named = ("PostMark, transactions", "tx/s");
    let transactions = part(target, named, mix.transactions, || pool.transaction())?;
    let left = u32::try_from(pool.files.len())?;
    let delete = part(target, ("PostMark, delete", "files/s"), left, || {
        pool.delete().map(drop)
    })?;
    Ok(vec![create, transactions, delete])
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn files_are_as_they_should_be_all_through_it() {
        let dir = tempfile::tempdir().unwrap();
        let mix = Postmark {
            files: 60,
            directories: 7,
            transactions: 400,
            least: 500,
            most: 3_000,
        };
        let mut pool = Pool::new(dir.path(), mix).unwrap();
        (0..mix.files).for_each(|_| pool.create().unwrap());
        (0..mix.transactions).for_each(|_| pool.transaction().unwrap());
        assert!(pool.next > 200, "half of the transactions make a file");
        assert!(!pool.files.is_empty());
        for &(number, size) in &pool.files {
            let found = fs::metadata(pool.path(number)).unwrap().len();
            assert_eq!(found, size as u64);
            assert!((500..=3_000).contains(&size));
        }
        let appended = pool.files.iter().map(|f| f.1).sum::<usize>() / pool.files.len();
        assert!(appended > 1_750, "{appended}: files grow");
        while pool.delete().unwrap() {}
        let left = (0..7).map(|d| {
            fs::read_dir(dir.path().join(d.to_string()))
                .unwrap()
                .count()
        });
        assert_eq!(left.sum::<usize>(), 0);
    }

    #[test]
    fn an_empty_pool_gets_a_file_again() {
        let dir = tempfile::tempdir().unwrap();
        let mix = Postmark {
            files: 1,
            directories: 1,
            transactions: 0,
            least: 1,
            most: 1,
        };
        let mut pool = Pool::new(dir.path(), mix).unwrap();
        (0..50).for_each(|_| pool.transaction().unwrap());
        assert!(pool.next > 0);
    }
}
