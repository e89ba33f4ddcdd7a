//! A load like Gmail's: mails, their labels and their properties, several statements per
//! transaction.
//!
//! No statements of Gmail are public. The number of statements per transaction is that of Google's
//! services on phones, which Gmail uses (github.com/DICL/mobile-traces, commit 94e1b0e,
//! `google-play`: of 2,276 transactions that write, 950 have one statement without BEGIN, 1,077
//! have eight). Their kinds are as on phones at large (Kennedy and others, "Pocket Data", TPCTC
//! 2015, where Gmail is third of all applications by its statements): INSERT OR REPLACE is more
//! frequent than INSERT and UPDATE together. Records of 150 to 400 bytes are those of the trace;
//! mail bodies of 1 to 4 KiB are an assumption.

use std::ops::RangeInclusive;

use rusqlite::{Connection, params};

use super::load::{Load, letters, weighed};

pub(in super::super) const GMAIL: Load = Load {
    title: "Gmail-like",
    fill,
    transaction,
};

const MAILS: i64 = 1000;
const PROPERTIES: u32 = 2000;
/// Length of a mail, bytes.
const BODY: RangeInclusive<usize> = 1 << 10..=4 << 10;
/// Length of a property, bytes.
const PROPERTY: RangeInclusive<usize> = 150..=400;

/// Numbers of statements per transaction, with their frequencies per thousand.
const STATEMENTS: [(u32, u32); 6] = [(1, 428), (2, 40), (3, 36), (8, 478), (12, 9), (20, 9)];

#[derive(Clone, Copy)]
enum Kind {
    Put,
    Receive,
    Label,
    Forget,
}

/// The kinds of statements, per hundred.
const KINDS: [(Kind, u32); 4] = [
    (Kind::Put, 63),
    (Kind::Receive, 17),
    (Kind::Label, 9),
    (Kind::Forget, 11),
];

fn fill(db: &Connection, rng: &mut fastrand::Rng) -> rusqlite::Result<()> {
    db.execute_batch(
        "CREATE TABLE mails(id INTEGER PRIMARY KEY, conversation INTEGER, sender TEXT, subject TEXT,
             snippet TEXT, body TEXT, labels INTEGER);
         CREATE INDEX mails_conversation ON mails(conversation);
         CREATE TABLE properties(name TEXT PRIMARY KEY, value TEXT);",
    )?;
    for _ in 0..MAILS {
        receive(db, rng)?;
    }
    for n in 0..PROPERTIES {
        put(db, rng, n)?;
    }
    Ok(())
}

fn transaction(
    db: &Connection,
    rng: &mut fastrand::Rng,
    _n: u32,
    _of: u32,
) -> rusqlite::Result<()> {
    let statements = weighed(rng, &STATEMENTS).unwrap_or(1);
    if statements == 1 {
        return statement(db, rng);
    }
    db.execute_batch("BEGIN EXCLUSIVE")?;
    for _ in 0..statements {
        statement(db, rng)?;
    }
    db.execute_batch("COMMIT")
}

fn statement(db: &Connection, rng: &mut fastrand::Rng) -> rusqlite::Result<()> {
    match weighed(rng, &KINDS) {
        Some(Kind::Put) | None => {
            let n = rng.u32(..PROPERTIES);
            put(db, rng, n)
        }
        Some(Kind::Receive) => receive(db, rng),
        Some(Kind::Label) => {
            let label = "UPDATE mails SET labels = labels + 1 WHERE id =
                 (SELECT id FROM mails WHERE id <= ?1 ORDER BY id DESC LIMIT 1)";
            let id = some_mail(db, rng)?;
            db.execute(label, [id]).map(drop)
        }
        Some(Kind::Forget) => {
            let oldest = "DELETE FROM mails WHERE id = (SELECT min(id) FROM mails)";
            db.execute(oldest, []).map(drop)
        }
    }
}

fn put(db: &Connection, rng: &mut fastrand::Rng, n: u32) -> rusqlite::Result<()> {
    let put = "INSERT OR REPLACE INTO properties VALUES(?1, ?2)";
    let value = letters(rng, PROPERTY);
    let name = format!("property {n:010}");
    db.execute(put, [name, value]).map(drop)
}

fn receive(db: &Connection, rng: &mut fastrand::Rng) -> rusqlite::Result<()> {
    let insert = "INSERT INTO mails(conversation, sender, subject, snippet, body, labels)
         VALUES(?1, ?2, ?3, ?4, ?5, 1)";
    let [sender, subject, snippet] = [30, 60, 120].map(|bytes| letters(rng, bytes..=bytes));
    let body = letters(rng, BODY);
    let conversation = rng.i64(..MAILS / 4);
    let values = params![conversation, sender, subject, snippet, body];
    db.execute(insert, values).map(drop)
}

/// The id of a mail that exists or existed.
fn some_mail(db: &Connection, rng: &mut fastrand::Rng) -> rusqlite::Result<i64> {
    const ENDS: &str = "SELECT (SELECT min(id) FROM mails), (SELECT max(id) FROM mails)";
    let ends = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    let (least, most): (i64, i64) = db.query_row(ENDS, [], ends)?;
    Ok(rng.i64(least..=most))
}
