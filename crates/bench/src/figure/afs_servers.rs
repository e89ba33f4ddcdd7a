//! AFS, figure 3-7: a mail server, which syncs its writes, and a web server, which mostly reads.
//!
//! The profiles are those of Filebench's `varmail.f` and `webserver.f`. Threads are simulated: each
//! step is executed for all of them, one after the other, and their syncs are issued at the same
//! time.

use anyhow::{Context, Result};
use stetfs::low::{Fs, FsError, Ino, MemDevice, OpenRef, ROOT_INO, SetAttr};
use stetfs_flash::Model;

use super::args::FigureArgs;
use super::modes::{self, Points, root, sync_all};
use super::part::Part;

pub(super) const SERVERS: &str = "\
figure 3-7: AFS as fast as the other modes or faster in most cases, even with a journal of 128 MB, also in the web server, which \
mostly reads (bars without numbers in the text)";

/// Size of the journal, MiB.
const JOURNAL: u64 = 128;
/// The divisor of all sizes with --quick, also of the journal.
const QUICK: u64 = 8;
/// Mean size of a file and of an append, bytes.
const PIECE: usize = 16 << 10;

/// A profile, in its full size.
struct Server {
    name: &'static str,
    threads: usize,
    files: u64,
    /// Number of names per existing file.
    names: u64,
    /// Steps of each thread.
    steps: u64,
    /// Size of the cache, MiB. It holds all files of the mail server, and a quarter of the web
    /// server's: there reads cost something.
    cache_mib: u64,
    step: fn(&mut Work<'_>) -> Result<u64>,
}

const VARMAIL: Server = Server {
    name: "varmail",
    threads: 16,
    files: 1_000,
    names: 2,
    steps: 800,
    cache_mib: 512,
    step: |work| work.mail(),
};

const WEBSERVER: Server = Server {
    name: "webserver",
    threads: 100,
    files: 32_000,
    names: 1,
    steps: 160,
    cache_mib: 128,
    step: |work| work.answer(),
};

/// Number of files that one answer of the web server reads.
const PAGES: u64 = 10;

pub(super) fn measure(args: &FigureArgs) -> Result<Vec<Part>> {
    let by = if args.quick { QUICK } else { 1 };
    let journal = JOURNAL / by;
    let mut parts = Vec::new();
    for model in args.flash() {
        let title = format!("{}, a journal of {journal} MiB", model.name);
        let mut points = Points::new(args, title, 2)?;
        for server in [VARMAIL, WEBSERVER] {
            let server = Server {
                files: server.files / by,
                steps: server.steps / by,
                cache_mib: server.cache_mib / by,
                ..server
            };
            server.add(&mut points, journal, model)?;
        }
        parts.push(points.finish());
    }
    Ok(parts)
}

impl Server {
    fn add(&self, points: &mut Points<'_>, journal: u64, model: Model) -> Result<()> {
        let volume = self.filled(journal)?;
        let title = format!("{}, threads {}", self.name, self.threads);
        points.add(self.name, &title, None, |mode| {
            let cache = self.cache_mib << 20;
            mode.run(&volume, model, cache, (&title, "ops/s"), |fs| {
                let mut work = Work::new(fs, self);
                let steps = (0..self.steps).map(|_| (self.step)(&mut work));
                steps.sum()
            })
        })
    }

    /// A volume with the files, and space for the appends.
    fn filled(&self, journal: u64) -> Result<MemDevice> {
        let appended = self.threads as u64 * self.steps * PIECE as u64;
        let bytes = 2 * self.files * self.names * PIECE as u64 + appended;
        modes::volume(bytes, journal, |fs| {
            let mut work = Work::new(fs, self);
            for n in (0..self.files * self.names).step_by(self.names as usize) {
                let file = work.made(&name(n))?;
                work.append(&file)?;
            }
            Ok(())
        })
    }
}

fn name(n: u64) -> Vec<u8> {
    format!("{n:08}").into_bytes()
}

/// The working threads of a server.
struct Work<'a> {
    fs: &'a Fs,
    threads: usize,
    names: u64,
    rng: fastrand::Rng,
    text: Vec<u8>,
    buffer: Vec<u8>,
}

impl<'a> Work<'a> {
    fn new(fs: &'a Fs, server: &Server) -> Work<'a> {
        Work {
            fs,
            threads: server.threads,
            names: server.files * server.names,
            rng: fastrand::Rng::with_seed(3),
            text: crate::compare::text(1 << 20),
            buffer: vec![0; 1 << 20],
        }
    }

    fn any(&mut self) -> Vec<u8> {
        name(self.rng.u64(0..self.names))
    }

    /// Opens a file, if there is one of that name.
    fn opened(&self, name: &[u8]) -> Result<Option<(Ino, OpenRef)>> {
        let ino = match self.fs.lookup(ROOT_INO, name) {
            Err(FsError::Errno(libc::ENOENT)) => return Ok(None),
            attr => attr?.ino,
        };
        let file = self.fs.open_inode(&root(), ino, libc::O_RDWR)?;
        self.fs.forget(ino, 1);
        Ok(Some((ino, file)))
    }

    /// Creates an empty file of that name.
    fn made(&self, name: &[u8]) -> Result<(Ino, OpenRef)> {
        if let Some((ino, file)) = self.opened(name)? {
            let empty = SetAttr {
                size: Some(0),
                ..SetAttr::default()
            };
            self.fs.setattr(&root(), ino, &empty)?;
            return Ok((ino, file));
        }
        let (attr, file) = self
            .fs
            .create(&root(), ROOT_INO, name, 0o644, 0, libc::O_RDWR)?;
        self.fs.forget(attr.ino, 1);
        Ok((attr.ino, file))
    }

    /// Appends 0 to twice [`PIECE`] bytes.
    fn append(&mut self, (ino, file): &(Ino, OpenRef)) -> Result<()> {
        let len = self.rng.usize(0..=2 * PIECE);
        let from = self.rng.usize(0..self.text.len() - 2 * PIECE);
        let data = self.text.get(from..from + len).unwrap_or_default();
        let end = self.fs.getattr(*ino)?.size;
        self.fs.write(&root(), file, end, data, false)?;
        Ok(())
    }

    fn read(&mut self, file: &OpenRef) -> Result<()> {
        let mut at = 0;
        loop {
            match self.fs.read(file, at, &mut self.buffer)? {
                0 => return Ok(()),
                n => at += n as u64,
            }
        }
    }

    /// Reads a whole file, if it exists; returns the number of operations: open, read, close.
    fn read_any(&mut self) -> Result<u64> {
        let name = self.any();
        let Some((_, file)) = self.opened(&name)? else {
            return Ok(1);
        };
        self.read(&file)?;
        Ok(3)
    }

    /// Each thread deletes a file, creates one and syncs it, reads one, appends to it and syncs it,
    /// and reads one.
    fn mail(&mut self) -> Result<u64> {
        let mut done = 0;
        let mut files = Vec::new();
        for _ in 0..self.threads {
            let gone = self.any();
            match self.fs.unlink(&root(), ROOT_INO, &gone) {
                Ok(()) | Err(FsError::Errno(libc::ENOENT)) => {}
                Err(e) => return Err(e).context("deleting a file"),
            }
            let name = self.any();
            let file = self.made(&name)?;
            self.append(&file)?;
            files.push(file);
            done += 5;
        }
        sync_all(self.fs, files.iter().map(|(_, file)| file))?;
        files.clear();
        for _ in 0..self.threads {
            let name = self.any();
            let Some(file) = self.opened(&name)? else {
                done += 1;
                continue;
            };
            self.read(&file.1)?;
            self.append(&file)?;
            files.push(file);
            done += 5;
        }
        sync_all(self.fs, files.iter().map(|(_, file)| file))?;
        for _ in 0..self.threads {
            done += self.read_any()?;
        }
        Ok(done)
    }

    /// Each thread reads some files and appends to the common log.
    fn answer(&mut self) -> Result<u64> {
        let mut done = 0;
        for _ in 0..self.threads {
            for _ in 0..PAGES {
                done += self.read_any()?;
            }
            let log = match self.opened(b"log")? {
                Some(log) => log,
                None => self.made(b"log")?,
            };
            self.append(&log)?;
            done += 1;
        }
        Ok(done)
    }
}
