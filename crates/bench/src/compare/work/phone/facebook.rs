//! A load like Facebook's: a feed's pictures are recorded, and marked when they have arrived.
//!
//! The mix is that of Facebook's news feed in the public traces of DICL
//! (github.com/DICL/mobile-traces, commit 94e1b0e): of 1,929 statements that write, 950 insert or
//! replace a record of about 430 bytes, 970 update a state, 8 delete; each is a transaction of its
//! own. Only these numbers and the shape of the tables are taken from the traces.

use std::ops::RangeInclusive;

use rusqlite::{Connection, params};

use super::load::{Load, letters, weighed};

pub(in super::super) const FACEBOOK: Load = Load {
    title: "Facebook-like",
    fill,
    transaction,
};

const STORIES: i64 = 30;
const PICTURES: i64 = 500;
/// Length of the address of a picture, bytes.
const ADDRESS: RangeInclusive<usize> = 250..=330;
/// Length of the content of a story, bytes.
const STORY: RangeInclusive<usize> = 1200..=1200;

#[derive(Clone, Copy)]
enum Kind {
    Note,
    Mark,
    SeeStory,
    Forget,
}

/// The kinds of transactions, per thousand.
const KINDS: [(Kind, u32); 4] = [
    (Kind::Note, 492),
    (Kind::Mark, 472),
    (Kind::SeeStory, 32),
    (Kind::Forget, 4),
];

fn fill(db: &Connection, rng: &mut fastrand::Rng) -> rusqlite::Result<()> {
    db.execute_batch(
        "CREATE TABLE stories(feed TEXT, key TEXT, cursor TEXT, sort_key TEXT, seen INTEGER,
             data BLOB, PRIMARY KEY (feed, key));
         CREATE INDEX stories_cursor ON stories(cursor);
         CREATE INDEX stories_sort_key ON stories(sort_key);
         CREATE INDEX stories_seen ON stories(seen);
         CREATE TABLE media(key TEXT, type TEXT, state INTEGER, address TEXT,
             PRIMARY KEY (key, type, address));
         CREATE INDEX media_key ON media(key);",
    )?;
    let mut insert = db.prepare("INSERT INTO stories VALUES('feed', ?1, ?2, ?3, 0, ?4)")?;
    for n in 0..STORIES {
        let [cursor, sort_key] = [40, 80].map(|bytes| letters(rng, bytes..=bytes));
        insert.execute(params![story(n), cursor, sort_key, letters(rng, STORY)])?;
    }
    for n in 0..PICTURES {
        note(db, rng, n)?;
    }
    Ok(())
}

fn transaction(
    db: &Connection,
    rng: &mut fastrand::Rng,
    _n: u32,
    _of: u32,
) -> rusqlite::Result<()> {
    match weighed(rng, &KINDS) {
        Some(Kind::Note) | None => {
            let next = "SELECT max(rowid) FROM media";
            let n: i64 = db.query_row(next, [], |row| row.get(0))?;
            db.execute_batch("BEGIN EXCLUSIVE")?;
            note(db, rng, n)?;
            db.execute_batch("COMMIT")
        }
        Some(Kind::Mark) => {
            let some = db.query_row("SELECT max(rowid) FROM media", [], |row| row.get(0))?;
            let address = "SELECT address FROM media WHERE rowid >= ?1 ORDER BY rowid LIMIT 1";
            let at = rng.i64(1..=some);
            let address: String = db.query_row(address, [at], |row| row.get(0))?;
            // As in the trace, by a column without an index.
            let mark = "UPDATE media SET state = state + 1 WHERE type = 'PHOTO' AND address = ?1";
            db.execute(mark, [address]).map(drop)
        }
        Some(Kind::SeeStory) => {
            let see = "UPDATE stories SET seen = seen + 1 WHERE feed = 'feed' AND key = ?1";
            let key = story(rng.i64(..STORIES));
            db.execute(see, [key]).map(drop)
        }
        Some(Kind::Forget) => {
            let oldest = "DELETE FROM media WHERE rowid = (SELECT min(rowid) FROM media)";
            db.execute(oldest, []).map(drop)
        }
    }
}

fn story(n: i64) -> String {
    format!("story {n:019}")
}

/// Records a picture of the `n`th story, or one that is already there.
fn note(db: &Connection, rng: &mut fastrand::Rng, n: i64) -> rusqlite::Result<()> {
    let insert = "INSERT OR REPLACE INTO media VALUES(?1, 'PHOTO', 0, ?2)";
    let address = letters(rng, ADDRESS);
    let key = format!("{:019}", n / 4);
    db.execute(insert, [key, address]).map(drop)
}
