//! The data that the client writes. It allows a check which transactions a database contains, and
//! whether any of them is partial.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, Transaction, TransactionBehavior};

/// The number of rows in the table; the longest body, bytes; the most rows that a transaction
/// changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ledger {
    pub(crate) rows: u64,
    pub(crate) body: usize,
    pub(crate) touched: usize,
    pub(crate) seed: u64,
}

impl Ledger {
    pub(crate) const SMALL: Ledger = Ledger {
        rows: 200,
        body: 2000,
        touched: 12,
        seed: 1,
    };

    /// The value for the client's environment variable.
    pub(crate) fn to_text(self) -> String {
        let Ledger {
            rows,
            body,
            touched,
            seed,
        } = self;
        format!("{rows} {body} {touched} {seed}")
    }

    pub(crate) fn of_text(text: &str) -> Ledger {
        let mut words = text.split(' ').map(|word| word.parse::<u64>().unwrap());
        let mut next = || words.next().unwrap();
        Ledger {
            rows: next(),
            body: next() as usize,
            touched: next() as usize,
            seed: next(),
        }
    }

    /// The rows that transaction `n` changes.
    fn rows_of(self, n: u64) -> Vec<u64> {
        let mut rng = fastrand::Rng::with_seed(self.seed.wrapping_mul(1 << 32).wrapping_add(n));
        let count = rng.usize(1..=self.touched);
        let mut rows: Vec<u64> = (0..count).map(|_| rng.u64(..self.rows)).collect();
        rows.sort_unstable();
        rows.dedup();
        rows
    }

    /// The content of row `id` after transaction `n` changed it.
    fn body_of(self, id: u64, n: u64) -> Vec<u8> {
        let mut rng = fastrand::Rng::with_seed(id.wrapping_mul(1 << 40).wrapping_add(n));
        let mut body = vec![0; rng.usize(self.body / 4..=self.body)];
        rng.fill(&mut body);
        body
    }

    /// Makes the database, with transaction 0.
    pub(crate) fn make(self, path: &Path) {
        let mut db = Connection::open(path).unwrap();
        db.pragma_update(None, "synchronous", "EXTRA").unwrap();
        let all = db.transaction().unwrap();
        let tables = "CREATE TABLE page(id INTEGER PRIMARY KEY, n INTEGER, body BLOB);
                      CREATE TABLE done(n INTEGER PRIMARY KEY)";
        all.execute_batch(tables).unwrap();
        for id in 0..self.rows {
            let body = self.body_of(id, 0);
            all.execute("INSERT INTO page VALUES(?1, 0, ?2)", (id as i64, body))
                .unwrap();
        }
        all.commit().unwrap();
    }

    /// Carries out transaction `n`.
    pub(crate) fn carry_out(self, db: &mut Connection, n: u64) -> rusqlite::Result<()> {
        let all = Transaction::new(db, TransactionBehavior::Immediate)?;
        for id in self.rows_of(n) {
            let row = (n as i64, self.body_of(id, n), id as i64);
            all.execute("UPDATE page SET n = ?1, body = ?2 WHERE id = ?3", row)?;
        }
        all.execute("INSERT INTO done VALUES(?1)", [n as i64])?;
        all.commit()
    }

    /// The last transaction in the database. All up to there must be whole, with nothing else;
    /// otherwise returns what is wrong.
    pub(crate) fn check(self, db: &Connection) -> Result<u64, String> {
        let failed = |e: rusqlite::Error| e.to_string();
        // All reads see one moment.
        let all = db.unchecked_transaction().map_err(failed)?;
        let number = |what: &str| {
            all.query_row(what, [], |row| row.get::<_, i64>(0))
                .map_err(failed)
        };
        let said: String = all
            .query_row("PRAGMA integrity_check", [], |row| row.get(0))
            .map_err(failed)?;
        if said != "ok" {
            return Err(said);
        }
        let last = number("SELECT coalesce(max(n), 0) FROM done")?;
        let count = number("SELECT count(*) FROM done")?;
        if count != last {
            return Err(format!("{count} transactions, the last of which is {last}"));
        }
        let last = last as u64;
        let mut expected = vec![0; self.rows as usize];
        for n in 1..=last {
            for id in self.rows_of(n) {
                expected[id as usize] = n;
            }
        }
        let mut rows = all
            .prepare("SELECT id, n, body FROM page ORDER BY id")
            .map_err(failed)?;
        let row = |row: &rusqlite::Row<'_>| {
            Ok((
                row.get::<_, i64>(0)?,
                row.get::<_, i64>(1)?,
                row.get::<_, Vec<u8>>(2)?,
            ))
        };
        let mut next = 0;
        for found in rows.query_map([], row).map_err(failed)? {
            let (id, n, body) = found.map_err(failed)?;
            let (id, n) = (id as u64, n as u64);
            if id != next || n != expected[id as usize] || body != self.body_of(id, n) {
                let of = expected.get(next as usize);
                return Err(format!(
                    "row {next}: {id} of transaction {n}, not {of:?}, with {last} done"
                ));
            }
            next += 1;
        }
        match next == self.rows {
            true => Ok(last),
            false => Err(format!("{next} rows")),
        }
    }
}

/// Opens a database for writing in a journal mode.
pub(crate) fn open(path: &Path, mode: &str) -> rusqlite::Result<Connection> {
    let db = Connection::open(path)?;
    db.busy_timeout(Duration::from_secs(20))?;
    db.pragma_update(None, "synchronous", "FULL")?;
    let set: String = db.query_row(&format!("PRAGMA journal_mode = {mode}"), [], |row| {
        row.get(0)
    })?;
    assert!(set.eq_ignore_ascii_case(mode), "{set}");
    Ok(db)
}
