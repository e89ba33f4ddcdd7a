//! SQLite under loads like those of phones, with the journal mode of the target.
//!
//! It uses the library, not the program, because Debian's program lacks batch atomic writes.

mod androbench;
mod facebook;
mod gmail;
mod journal;
mod load;

use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use rusqlite::Connection;

pub(super) use androbench::ANDROBENCH;
pub(super) use facebook::FACEBOOK;
pub(super) use gmail::GMAIL;
pub use journal::SqliteJournal;
use load::Load;

use super::measured::{Below, Measured, Meter, Outcome};
use crate::compare::Better;
use crate::compare::{Sizes, Target};

/// Number of transactions, in multiples of the small workloads': enough for several checkpoints of
/// SQLite's log.
const TRANSACTIONS: u32 = 2;
/// The seed: the rounds of all targets do the same work.
const SEED: u64 = 39;
/// The build option of SQLite for commits without a journal.
const ATOMIC: &str = "ENABLE_BATCH_ATOMIC_WRITE";

/// The reason why SQLite cannot work without a journal, if so.
pub(crate) fn is_missing() -> Option<String> {
    match knows_atomic_writes() {
        Ok(true) => None,
        Ok(false) => Some(format!(
            "this program has a SQLite without SQLITE_{ATOMIC}, which cannot do without a journal: \
             build stetfs in its repository, or with LIBSQLITE3_FLAGS=-DSQLITE_{ATOMIC} in the \
             environment of cargo"
        )),
        Err(e) => Some(format!("SQLite does not say how it was built: {e}")),
    }
}

fn knows_atomic_writes() -> rusqlite::Result<bool> {
    let db = Connection::open_in_memory()?;
    let count = "SELECT count(*) FROM pragma_compile_options WHERE compile_options = ?1";
    let found: i64 = db.query_row(count, [ATOMIC], |row| row.get(0))?;
    Ok(found > 0)
}

pub(super) fn run(target: &Target, dir: &Path, sizes: &Sizes, load: &Load) -> Result<Outcome> {
    let transactions = TRANSACTIONS * sizes.transactions;
    let path = dir.join("data.db");
    let mut rng = fastrand::Rng::with_seed(SEED);
    let db = open(&path, target.sqlite())?;
    load.begin(&db, &mut rng)?;
    // A journal file would be created and removed.
    let before = changed(dir)?;
    let meter = Meter::start(target)?;
    load.work(&db, &mut rng, transactions)?;
    let rate = f64::from(transactions) / meter.seconds();
    let below = meter.below(f64::from(transactions))?;
    ensure!(
        target.sqlite() != SqliteJournal::None || changed(dir)? == before,
        "SQLite made a journal file on {}: its mount has to have the option atomic, and the limit of \
         an atomic write to be larger than a transaction",
        target.name()
    );
    drop(db);
    load.check(&path, transactions)?;
    let mut outcome = vec![Measured {
        title: load.title.into(),
        unit: "tx/s".into(),
        better: Better::Higher,
        value: rate,
        below,
    }];
    // The counters beside the rate, once more as metrics, so that figures have them as bars.
    let of_device = |what: &str, unit: &str, value| Measured {
        title: format!("{}, {what}", load.title),
        unit: unit.into(),
        better: Better::Lower,
        value,
        below: Below::default(),
    };
    if let Some(device) = below.device {
        outcome.extend([
            of_device("written", "KiB/tx", device.written_kib),
            of_device("flushes", "each/tx", device.flushes),
        ]);
    }
    Ok(outcome)
}

fn open(path: &Path, journal: SqliteJournal) -> Result<Connection> {
    let db = Connection::open(path).with_context(|| format!("opening {}", path.display()))?;
    let set = format!("PRAGMA journal_mode={}", journal.mode());
    let mode: String = db.query_row(&set, [], |row| row.get(0))?;
    ensure!(
        mode.eq_ignore_ascii_case(journal.mode()),
        "SQLite's journal mode is {mode}, not {}",
        journal.mode()
    );
    db.execute_batch("PRAGMA synchronous=FULL")?;
    Ok(db)
}

/// The time when a name was last created or removed in a directory.
fn changed(dir: &Path) -> Result<SystemTime> {
    let modified = std::fs::metadata(dir).and_then(|m| m.modified());
    modified.with_context(|| format!("stat {}", dir.display()))
}

impl Load {
    /// Makes the initial content before the clock starts, in one transaction.
    fn begin(&self, db: &Connection, rng: &mut fastrand::Rng) -> Result<()> {
        let filling = db.unchecked_transaction()?;
        (self.fill)(&filling, rng)?;
        filling.commit()?;
        Ok(())
    }

    fn work(&self, db: &Connection, rng: &mut fastrand::Rng, transactions: u32) -> Result<()> {
        for n in 0..transactions {
            if n % 64 == 0 {
                crate::interrupt::check()?;
            }
            (self.transaction)(db, rng, n, transactions)
                .with_context(|| format!("{}, transaction {n}", self.title))?;
        }
        Ok(())
    }

    /// Fails unless the database is intact and has the content that the same work produces in
    /// memory.
    fn check(&self, path: &Path, transactions: u32) -> Result<()> {
        let db = Connection::open(path)?;
        let said: String = db.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
        ensure!(said == "ok", "{}: {said}", path.display());
        let mut rng = fastrand::Rng::with_seed(SEED);
        let twin = Connection::open_in_memory()?;
        self.begin(&twin, &mut rng)?;
        self.work(&twin, &mut rng, transactions)?;
        let [found, right] = [content(&db)?, content(&twin)?];
        ensure!(
            found == right,
            "{}: (table, rows, bytes, sum) {found:?}, not {right:?}",
            path.display()
        );
        Ok(())
    }
}

/// For each table its name, the number of rows, the bytes in them, and the sum of their integers.
fn content(db: &Connection) -> rusqlite::Result<Vec<(String, i64, i64, i64)>> {
    let names = "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name";
    let mut statement = db.prepare(names)?;
    let names = statement.query_map([], |row| row.get(0))?;
    let names = names.collect::<rusqlite::Result<Vec<String>>>()?;
    let of = |name: String| {
        let mut statement = db.prepare(&format!("SELECT * FROM {name}"))?;
        let columns = statement.column_count();
        let mut rows = statement.query([])?;
        let (mut count, mut bytes, mut sum) = (0, 0, 0_i64);
        while let Some(row) = rows.next()? {
            count += 1;
            for column in 0..columns {
                match row.get_ref(column)? {
                    rusqlite::types::ValueRef::Integer(n) => sum = sum.wrapping_add(n),
                    rusqlite::types::ValueRef::Text(t) | rusqlite::types::ValueRef::Blob(t) => {
                        bytes += t.len() as i64;
                    }
                    rusqlite::types::ValueRef::Null | rusqlite::types::ValueRef::Real(_) => {}
                }
            }
        }
        Ok((name, count, bytes, sum))
    };
    names.into_iter().map(of).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::load::weighed;
    use super::*;

    const LOADS: [&Load; 3] = [&FACEBOOK, &GMAIL, &ANDROBENCH];

    fn small() -> Sizes {
        Sizes {
            transactions: 30,
            ..Sizes::quick()
        }
    }

    #[test]
    fn each_load_is_done_with_a_rollback_journal_and_a_log() {
        for load in LOADS {
            for journal in [SqliteJournal::Rollback, SqliteJournal::Wal] {
                let dir = tempfile::tempdir().unwrap();
                let target = Target::new("here", dir.path()).with_sqlite(journal);
                let outcome = run(&target, dir.path(), &small(), load).unwrap();
                assert!(outcome[0].value > 0.0, "{}", load.title);
            }
        }
    }

    #[test]
    fn a_journal_where_there_is_to_be_none_is_told() {
        assert_eq!(is_missing(), None);
        let dir = tempfile::tempdir().unwrap();
        let target = Target::new("here", dir.path()).with_sqlite(SqliteJournal::None);
        let error = run(&target, dir.path(), &small(), &FACEBOOK).unwrap_err();
        assert!(error.to_string().contains("the option atomic"), "{error:#}");
    }

    #[test]
    fn a_transaction_that_is_lost_is_found() {
        for load in LOADS {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("data.db");
            let db = open(&path, SqliteJournal::Rollback).unwrap();
            let mut rng = fastrand::Rng::with_seed(SEED);
            load.begin(&db, &mut rng).unwrap();
            load.work(&db, &mut rng, 60).unwrap();
            drop(db);
            load.check(&path, 60).unwrap();
            assert!(load.check(&path, 61).is_err(), "{}", load.title);
        }
    }

    #[test]
    fn what_is_chosen_is_as_often_as_it_is_to_be() {
        let mut rng = fastrand::Rng::with_seed(1);
        let count = (0..10_000)
            .filter(|_| weighed(&mut rng, &[('a', 3), ('b', 1)]) == Some('a'))
            .count();
        assert!((7_200..7_800).contains(&count), "{count}");
        assert_eq!(weighed::<char>(&mut rng, &[]), None);
    }
}
