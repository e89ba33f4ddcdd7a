//! Tests of SQLite, built with SQLITE_ENABLE_BATCH_ATOMIC_WRITE and otherwise unmodified, on mounts
//! with atomic writes: there is no journal file, and nothing is lost or torn by kills of the server
//! and of the program.
//!
//! `STETFS_SQLITE_TRANSACTIONS` sets the number per journal of the volume (default 60),
//! `STETFS_SQLITE_SEED` repeats a run.
mod client;
mod fake;
mod ledger;

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::daemon::{Daemon, fails};
use client::{Client, How};
use ledger::Ledger;
use rusqlite::{Connection, ErrorCode};
use rustix::fs::inotify;
use stetfs_testkit::{Image, Mkfs};

const MODES: [&str; 3] = ["DELETE", "TRUNCATE", "PERSIST"];

/// Not a test by itself: the process that the tests kill.
#[test]
#[ignore = "run by the tests that kill it"]
fn works_until_killed() {
    client::work();
}

/// Watches which names are created in a directory.
struct Names(OwnedFd);

impl Names {
    fn of(dir: &Path) -> Names {
        let flags = inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC;
        let watch = inotify::init(flags).unwrap();
        let come = inotify::WatchFlags::CREATE | inotify::WatchFlags::MOVED_TO;
        inotify::add_watch(&watch, dir, come).unwrap();
        Names(watch)
    }

    fn come(&self) -> Vec<String> {
        let mut room = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.0, &mut room);
        std::iter::from_fn(|| {
            Some(
                events
                    .next()
                    .ok()?
                    .file_name()?
                    .to_str()
                    .unwrap()
                    .to_owned(),
            )
        })
        .collect()
    }
}

/// A volume and the state of a run on it.
struct Run {
    daemon: Daemon,
    options: String,
    rng: fastrand::Rng,
    client_kills: u64,
    server_kills: u64,
    /// Names created beside the database.
    names: Vec<String>,
}

impl Run {
    fn new(options: &str, journal_mib: u32, ledger: Ledger) -> Run {
        Run::on(
            &Mkfs::blocks(4096).journal_mib(journal_mib),
            options,
            ledger,
        )
    }

    fn on(mkfs: &Mkfs, options: &str, ledger: Ledger) -> Run {
        let image = Image::make(64 << 20, mkfs).unwrap();
        let daemon = Daemon::unmounted(image);
        daemon.mount(options);
        ledger.make(&daemon.file("db"));
        Run {
            daemon,
            options: options.to_owned(),
            rng: fastrand::Rng::with_seed(crate::common::seed("STETFS_SQLITE_SEED")),
            client_kills: 0,
            server_kills: 0,
            names: Vec::new(),
        }
    }

    /// Lets the client work for a while; then kills the client or the server. Returns the last
    /// transaction that is durable.
    fn round(&mut self, how: How<'_>, before: u64) -> Result<u64, String> {
        let db = self.daemon.file("db");
        let names = Names::of(&self.daemon.dir);
        let client = Client::start(&db, how);
        let first = Instant::now();
        while client.acknowledged() <= before {
            assert!(
                first.elapsed() < Duration::from_secs(60),
                "it does not begin"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        let until = Instant::now() + Duration::from_micros(self.rng.u64(..60_000));
        let kills_server = self.rng.u8(..3) == 0;
        let told = if kills_server {
            std::thread::sleep(until.saturating_duration_since(Instant::now()));
            self.daemon.kill9();
            self.server_kills += 1;
            let mut client = client;
            let told = client.ended();
            self.names.extend(names.come());
            self.daemon.crash_is_taken_down();
            self.daemon.mount(&self.options);
            told
        } else {
            // A second reader, with the kernel's pages.
            let second = ledger::open(&db, how.mode).map_err(|e| e.to_string())?;
            while self.rng.bool() && Instant::now() < until {
                how.ledger.check(&second)?;
            }
            // The client waited for the reader; it gets time to be in the middle of something.
            std::thread::sleep(Duration::from_micros(self.rng.u64(..30_000)));
            let (told, failed) = client.kill();
            self.client_kills += 1;
            self.names.extend(names.come());
            if let Some(failed) = failed {
                return Err(failed);
            }
            self.judge(how, &second, told, "another connection")?;
            (told, None)
        };
        let again = ledger::open(&db, how.mode).map_err(|e| e.to_string())?;
        let after = match kills_server {
            true => "after a kill of the server",
            false => "after a kill of the program",
        };
        self.judge(how, &again, told.0, after)
    }

    /// Checks that all acknowledged transactions are there, and at most the one under way besides.
    fn judge(&self, how: How<'_>, db: &Connection, told: u64, seen: &str) -> Result<u64, String> {
        let last = how.ledger.check(db)?;
        match last == told || last == told + 1 {
            true => Ok(last),
            false => Err(format!(
                "{seen}: {told} was acknowledged, {last} is the last that stands"
            )),
        }
    }

    fn up_to(&mut self, transactions: u64, how: How<'_>) -> Result<u64, String> {
        let mut last = 0;
        while last < transactions {
            last = self.round(how, last)?;
        }
        Ok(last)
    }

    fn end(self) {
        crate::common::daemon::ok(&["umount", self.daemon.dir()]);
        self.daemon.image.e2fsck_fn().unwrap();
    }
}

fn small(mode: &str) -> How<'_> {
    How {
        mode,
        ledger: Ledger::SMALL,
        pragmas: "",
        fake: false,
    }
}

#[test]
fn there_is_no_journal_file_and_kills_lose_nothing() {
    let each = crate::common::number("STETFS_SQLITE_TRANSACTIONS", 60);
    for journal in ["data", "ldj", "stet", "afs"] {
        let mut run = Run::new(&format!("journal={journal},atomic"), 16, Ledger::SMALL);
        let mut last = 0;
        for (mode, part) in MODES.iter().zip(1..) {
            while last < each * part / 3 {
                let done = run.round(small(mode), last);
                last = done.unwrap_or_else(|e| panic!("{journal}, {mode}: {e}"));
            }
        }
        assert_eq!(run.names, [""; 0], "{journal}: came beside the database");
        let (clients, servers) = (run.client_kills, run.server_kills);
        println!("{journal}: {last} transactions, {clients} clients and {servers} servers killed");
        run.end();
    }
}

/// The checks above notice a file system that only claims to have atomic writes.
#[test]
fn a_file_system_that_only_says_so_breaks_the_database() {
    let how = How {
        fake: true,
        ..small("DELETE")
    };
    let mut run = Run::new("journal=data", 16, Ledger::SMALL);
    let until = Instant::now() + Duration::from_secs(120);
    let mut last = 0;
    let broken = loop {
        match run.round(how, last) {
            Ok(done) => last = done,
            Err(broken) => break broken,
        }
        assert!(Instant::now() < until, "{last} transactions are all whole");
    };
    println!(
        "after {} kills: {broken}",
        run.client_kills + run.server_kills
    );
    assert_eq!(run.names, [""; 0]);
}

/// A transaction larger than one of the journal's is written early, and needs no journal file.
/// SQLite falls back to a journal file if that is impossible (block maps), or if its own cache is
/// too small.
#[test]
fn a_transaction_beyond_the_limit_is_whole_too() {
    let ledger = Ledger {
        rows: 400,
        body: 9000,
        touched: 400,
        seed: 2,
    };
    let each = crate::common::number("STETFS_SQLITE_TRANSACTIONS", 60).div_ceil(10);
    let maps = "^64bit,^extent";
    for (journal, features, pragmas, is_refused) in [
        ("data", None, "cache_spill = 0", false),
        ("ldj", None, "cache_spill = 0", false),
        ("stet", None, "cache_spill = 0", false),
        ("afs", None, "cache_spill = 0", false),
        // Everything is written at the commit, which is too much.
        ("data", Some(maps), "cache_spill = 0", true),
        ("ldj", Some(maps), "cache_spill = 0", true),
        // SQLite's cache is too small before that.
        ("data", None, "cache_size = 20", true),
    ] {
        let mkfs = Mkfs::blocks(4096).journal_mib(4);
        let mkfs = features.into_iter().fold(mkfs, |mkfs, f| mkfs.feature(f));
        let mut run = Run::on(&mkfs, &format!("journal={journal},atomic"), ledger);
        // With a lower setting SQLite itself loses acknowledged transactions (docs/databases.md).
        let pragmas = format!("PRAGMA synchronous = EXTRA; PRAGMA {pragmas}");
        let how = How {
            ledger,
            pragmas: &pragmas,
            ..small("DELETE")
        };
        let last = run.up_to(each, how);
        let last = last.unwrap_or_else(|e| panic!("{journal}, {pragmas}: {e}"));
        let journals = run
            .names
            .iter()
            .filter(|name| *name == "db-journal")
            .count();
        assert_eq!(journals > 0, is_refused, "{journal}, {pragmas}: {journals}");
        println!("{journal}, {pragmas}: {last} transactions, {journals} with a journal file");
        run.end();
    }
}

/// A commit never fails for lack of space: an earlier write does, and SQLite rolls the transaction
/// back.
#[test]
fn a_full_volume_refuses_a_transaction_before_its_commit() {
    for journal in ["data", "ldj", "stet", "afs"] {
        let options = format!("journal={journal},atomic");
        let image = Image::make(16 << 20, &Mkfs::blocks(1024).journal_mib(4)).unwrap();
        let daemon = Daemon::unmounted(image);
        daemon.mount(&options);
        let path = daemon.file("db");
        Ledger::SMALL.make(&path);
        let mut db = ledger::open(&path, "DELETE").unwrap();
        db.execute_batch("CREATE TABLE filler(body BLOB)").unwrap();
        let names = Names::of(&daemon.dir);
        let (mut n, mut refused) = (0, 0);
        let mut sizes = fastrand::Rng::with_seed(3);
        while refused < 30 {
            let all = db.transaction().unwrap();
            let size = match refused {
                0 => 100_000,
                _ => sizes.u32(1..30_000),
            };
            let filled = all
                .execute("INSERT INTO filler VALUES(randomblob(?1))", [size])
                .and_then(|_| all.commit());
            match filled {
                Ok(()) => {}
                Err(e) if e.sqlite_error_code() == Some(ErrorCode::DiskFull) => refused += 1,
                Err(e) => panic!("{journal}: {e}"),
            }
            // An overwrite needs no space.
            let done = Ledger::SMALL.carry_out(&mut db, n + 1);
            match done {
                Ok(()) => n += 1,
                Err(e) if e.sqlite_error_code() == Some(ErrorCode::DiskFull) => {}
                Err(e) => panic!("{journal}: {e}"),
            }
        }
        assert_eq!(Ledger::SMALL.check(&db), Ok(n), "{journal}");
        assert_eq!(names.come(), [""; 0], "{journal}: it was not the room");
        drop(db);
        daemon.crash();
        daemon.mount(&options);
        let db = ledger::open(&path, "DELETE").unwrap();
        assert_eq!(Ledger::SMALL.check(&db), Ok(n), "{journal}");
        assert!(n > 10, "{journal}: {n} transactions");
        drop(db);
        crate::common::daemon::ok(&["umount", daemon.dir()]);
        daemon.image.e2fsck_fn().unwrap();
    }
}

impl Daemon {
    /// Takes down the mount of a dead server.
    fn crash_is_taken_down(&self) {
        fails(&["umount", self.dir()], 6, &["was gone", "stetfs recover"]);
    }
}
