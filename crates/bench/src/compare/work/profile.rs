//! Server profiles with the parameters of Filebench's `varmail.f`, `fileserver.f` and
//! `webserver.f`, reimplemented.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;

use super::drive::{Hand, drive};
use super::measured::{Measured, Meter, Outcome};
use super::place::{How, Opened, Place};
use crate::compare::Better;
use crate::compare::{Sizes, Target};

/// The parameters of a profile.
#[derive(Clone, Copy)]
pub(super) struct Profile {
    title: &'static str,
    /// Mean number of existing files.
    files: u64,
    /// Number of names per existing file: more than one where files are created and deleted.
    names: u64,
    /// Number of files per directory.
    per_directory: u64,
    /// Mean size of a file, bytes.
    file: usize,
    /// Mean size of an append, bytes.
    append: usize,
    threads: u64,
    step: fn(&mut Worker<'_>) -> Result<u64>,
}

/// `nfiles=1000, meandirwidth=1000000, meanfilesize=16k, meanappendsize=16k, nthreads=16`.
pub(super) const VARMAIL: Profile = Profile {
    title: "varmail, 16 threads",
    files: 1_000,
    names: 2,
    per_directory: 1_000_000,
    file: 16 << 10,
    append: 16 << 10,
    threads: 16,
    step: mail,
};

/// `nfiles=10000, meandirwidth=20, meanfilesize=128k, meanappendsize=16k, nthreads=50`; with fewer
/// files ([`Sizes`]), so that a round does more than creating them.
const FILESERVER: Profile = Profile {
    title: "fileserver, 50 threads",
    files: 2_000,
    names: 2,
    per_directory: 20,
    file: 128 << 10,
    append: 16 << 10,
    threads: 50,
    step: serve,
};

/// `nfiles=1000, meandirwidth=20, filesize=16k, meanappendsize=16k`, and 16 threads instead of 100.
const WEBSERVER: Profile = Profile {
    title: "webserver, 16 threads",
    files: 1_000,
    names: 1,
    per_directory: 20,
    file: 16 << 10,
    append: 16 << 10,
    threads: 16,
    step: answer,
};

/// The longest read, bytes (`iosize=1m`).
const READ: usize = 1 << 20;
/// Bytes that a thread writes to the log before the log begins anew.
const LARGEST_LOG: u64 = 4 << 20;

/// Number of pages that one answer of the web server reads.
const PAGES: u64 = 10;

/// A working thread.
struct Worker<'a> {
    profile: Profile,
    place: &'a Place<'a>,
    rng: fastrand::Rng,
    /// Text like that of mails and documents: it compresses to about a third.
    text: Arc<Vec<u8>>,
    buffer: Vec<u8>,
    /// The web server's log, which stays open.
    log: Option<Opened<'a>>,
    /// Bytes that this thread wrote to it since it last began anew.
    logged: u64,
}

impl Worker<'_> {
    /// A name of the set, whose file may exist or not.
    fn any(&mut self) -> String {
        let n = self.rng.u64(0..self.profile.files * self.profile.names);
        path(n, &self.profile)
    }

    /// A piece of text of random length, from 0 to twice the mean, similar to Filebench's gamma
    /// distribution.
    fn some(&mut self, mean: usize) -> &[u8] {
        let len = self.rng.usize(0..=2 * mean);
        let from = self.rng.usize(0..self.text.len() - 2 * mean);
        self.text.get(from..from + len).unwrap_or_default()
    }

    // Another thread may have deleted the file; that counts as an operation, too.
    fn delete(&mut self) -> Result<u64> {
        self.place.remove(&self.any())?;
        Ok(1)
    }

    fn make(&mut self, sync: bool) -> Result<u64> {
        let place = self.place;
        let mut file = place.must_open(&self.any(), How::Create)?;
        file.append(self.some(self.profile.file))?;
        if sync {
            file.sync()?;
        }
        Ok(if sync { 4 } else { 3 })
    }

    fn append(&mut self, read_first: bool, sync: bool) -> Result<u64> {
        let place = self.place;
        let Some(mut file) = place.open(&self.any(), How::Append)? else {
            return Ok(1);
        };
        if read_first {
            file.read_whole(&mut self.buffer)?;
        }
        file.append(self.some(self.profile.append))?;
        if sync {
            file.sync()?;
        }
        Ok(3 + u64::from(read_first) + u64::from(sync))
    }

    fn read(&mut self) -> Result<u64> {
        let place = self.place;
        let Some(mut file) = place.open(&self.any(), How::Read)? else {
            return Ok(1);
        };
        file.read_whole(&mut self.buffer)?;
        Ok(3)
    }

    /// Appends to the common log, which begins anew when it is large: its size is not part of the
    /// measurement.
    fn append_to_log(&mut self) -> Result<u64> {
        let mut log = match self.log.take() {
            Some(log) => log,
            None => self.place.must_open("log", How::Log)?,
        };
        let bytes = self.some(self.profile.append);
        log.append(bytes)?;
        self.logged += bytes.len() as u64;
        if self.logged > LARGEST_LOG {
            log.empty()?;
            self.logged = 0;
        }
        self.log = Some(log);
        Ok(1)
    }

    fn stat(&mut self) -> Result<u64> {
        self.place.stat(&self.any())?;
        Ok(1)
    }
}

fn mail(w: &mut Worker<'_>) -> Result<u64> {
    Ok(w.delete()? + w.make(true)? + w.append(true, true)? + w.read()?)
}

fn serve(w: &mut Worker<'_>) -> Result<u64> {
    Ok(w.make(false)? + w.append(false, false)? + w.read()? + w.delete()? + w.stat()?)
}

fn answer(w: &mut Worker<'_>) -> Result<u64> {
    let mut done = 0;
    for _ in 0..PAGES {
        done += w.read()?;
    }
    Ok(done + w.append_to_log()?)
}

fn path(n: u64, profile: &Profile) -> String {
    format!("{}/{n:08}", n / profile.per_directory)
}

/// Words in random order.
pub(crate) fn text(bytes: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(11);
    let words: Vec<String> = (0..2_000)
        .map(|_| {
            let len = rng.usize(2..10);
            (0..len).map(|_| rng.lowercase()).collect()
        })
        .collect();
    let mut text = Vec::with_capacity(bytes + 16);
    while text.len() < bytes {
        if let Some(word) = rng.choice(&words) {
            text.extend_from_slice(word.as_bytes());
        }
        text.push(if rng.u8(0..12) == 0 { b'\n' } else { b' ' });
    }
    text
}

impl Profile {
    /// The profile with so many files.
    pub(super) fn of(self, files: u64) -> Self {
        Self { files, ..self }
    }

    /// The profile with so many threads.
    pub(super) fn by(self, threads: u64) -> Self {
        Self { threads, ..self }
    }
}

/// The threads of a profile, after its files are made: as many of the set as exist on average
/// later.
pub(super) fn hands<'a>(profile: &Profile, place: &'a Place<'a>) -> Result<Vec<Hand<'a>>> {
    let text = Arc::new(text(4 << 20));
    let names = profile.files * profile.names;
    for n in 0..names.div_ceil(profile.per_directory) {
        place.make_dir(&format!("{n}"))?;
    }
    let worker = |seed| Worker {
        profile: *profile,
        place,
        rng: fastrand::Rng::with_seed(seed),
        text: Arc::clone(&text),
        buffer: vec![0; READ],
        log: None,
        logged: 0,
    };
    let mut first = worker(0);
    for n in (0..names).step_by(profile.names as usize) {
        let mut file = place.must_open(&path(n, profile), How::Create)?;
        file.append(first.some(profile.file))?;
    }
    let hands = (1..=profile.threads).map(|seed| -> Hand<'a> {
        let mut worker = worker(seed);
        Box::new(move || (worker.profile.step)(&mut worker).map(Some))
    });
    Ok(hands.collect())
}

fn run(profile: &Profile, target: &Target, dir: &Path, sizes: &Sizes) -> Result<Outcome> {
    let place = Place::Mounted(dir.to_owned());
    let hands = hands(profile, &place)?;
    let meter = Meter::start(target)?;
    let (operations, seconds) = drive(&place, hands, sizes.profile_time())?;
    Ok(vec![Measured {
        title: profile.title.to_owned(),
        unit: "ops/s".into(),
        better: Better::Higher,
        value: operations / seconds,
        below: meter.below_settled(operations)?,
    }])
}

pub(super) fn varmail(target: &Target, dir: &Path, sizes: &Sizes) -> Result<Outcome> {
    run(&VARMAIL.of(sizes.mail_files), target, dir, sizes)
}

pub(super) fn fileserver(target: &Target, dir: &Path, sizes: &Sizes) -> Result<Outcome> {
    let profile = Profile {
        files: sizes.server_files,
        ..FILESERVER
    };
    run(&profile, target, dir, sizes)
}

pub(super) fn webserver(target: &Target, dir: &Path, sizes: &Sizes) -> Result<Outcome> {
    run(&WEBSERVER, target, dir, sizes)
}

/// LDJ's figure 4 has it with 50000 files, beside the one with 10000.
pub(super) fn fileserver_mf(target: &Target, dir: &Path, sizes: &Sizes) -> Result<Outcome> {
    let profile = Profile {
        title: "fileserver, many files, 50 threads",
        files: 5 * sizes.server_files,
        ..FILESERVER
    };
    run(&profile, target, dir, sizes)
}
