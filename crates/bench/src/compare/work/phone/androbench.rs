//! A load like AndroBench's (Kim and Kim, "AndroBench", 2012): rows of a table of 17 columns are
//! inserted, then updated, then deleted, each in a transaction of its own.
//!
//! 11 of the columns are integers and 6 are short texts, as later papers describe the table. The
//! program itself was not available.

use std::ops::RangeInclusive;

use rusqlite::{Connection, ToSql, params_from_iter};

use super::load::{Load, letters};

pub(in super::super) const ANDROBENCH: Load = Load {
    title: "AndroBench-like",
    fill,
    transaction,
};

/// Number of rows before the start, so that the table has some depth.
const ROWS: u32 = 1000;
const INTEGERS: usize = 11;
const TEXTS: usize = 6;
/// Length of a text, bytes.
const TEXT: RangeInclusive<usize> = 24..=24;

fn fill(db: &Connection, rng: &mut fastrand::Rng) -> rusqlite::Result<()> {
    let integers = (1..INTEGERS).map(|n| format!(", i{n} INTEGER"));
    let texts = (0..TEXTS).map(|n| format!(", t{n} TEXT"));
    let columns: String = integers.chain(texts).collect();
    db.execute_batch(&format!(
        "CREATE TABLE contacts(id INTEGER PRIMARY KEY{columns})"
    ))?;
    (0..ROWS).try_for_each(|id| insert(db, rng, id))
}

/// A third of the transactions for each phase; the rows that are deleted are those that were
/// inserted.
fn transaction(db: &Connection, rng: &mut fastrand::Rng, n: u32, of: u32) -> rusqlite::Result<()> {
    let each = of.div_ceil(3);
    let id = ROWS + n % each;
    match n / each {
        0 => insert(db, rng, id),
        1 => {
            let update = "UPDATE contacts SET i1 = ?1, t0 = ?2 WHERE id = ?3";
            let (number, text) = (rng.u32(..), letters(rng, TEXT));
            db.execute(update, (number, text, id)).map(drop)
        }
        _ => {
            let delete = "DELETE FROM contacts WHERE id = ?1";
            db.execute(delete, [id]).map(drop)
        }
    }
}

fn insert(db: &Connection, rng: &mut fastrand::Rng, id: u32) -> rusqlite::Result<()> {
    let integers = (1..INTEGERS).map(|_| rng.u32(..)).collect::<Vec<_>>();
    let texts = (0..TEXTS).map(|_| letters(rng, TEXT)).collect::<Vec<_>>();
    let values = std::iter::once(&id as &dyn ToSql)
        .chain(integers.iter().map(|n| n as &dyn ToSql))
        .chain(texts.iter().map(|t| t as &dyn ToSql));
    let marks = vec!["?"; INTEGERS + TEXTS].join(",");
    let insert = format!("INSERT INTO contacts VALUES({marks})");
    db.execute(&insert, params_from_iter(values)).map(drop)
}
