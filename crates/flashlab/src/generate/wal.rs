//! Databases with a write-ahead log each, as in SQLite. Transactions append frames (a header and a
//! page) to the log. After a thousand frames the pages are written to the database in order, and
//! the log begins again. Some transactions append many rows.

use std::collections::BTreeSet;
use std::ops::Range;

use super::maker::Maker;

const DATABASES: u64 = 5;
/// Number of frames in a log before a checkpoint.
const CHECKPOINT: u64 = 1000;
/// Pages of space for a log.
const LOG: u64 = 2560;
/// Bytes of a frame's header, and of a page.
const HEAD: u64 = 24;
const PAGE: u64 = crate::page::PAGE;

struct Database {
    log: u64,
    pages: Range<u64>,
    /// The page behind the last one in use.
    end: u64,
    frames: u64,
    /// The pages that are in the log.
    logged: BTreeSet<u64>,
}

impl Database {
    fn new(first: u64, end: u64) -> Database {
        let pages = first + LOG..end;
        Database {
            log: first,
            end: pages.start + (pages.end - pages.start) / 2,
            pages,
            frames: 0,
            logged: BTreeSet::new(),
        }
    }

    /// A random page with rows; the first pages are the hot ones, as the inner pages of a tree are.
    fn page(&self, m: &mut Maker) -> u64 {
        m.skewed(self.pages.start..self.end, 3.0)
    }

    /// Appends pages to the log; the page in which the last frame ended is rewritten.
    fn commit(&mut self, m: &mut Maker, changed: &[u64]) {
        let byte = |frames: u64| frames * (PAGE + HEAD);
        let first = byte(self.frames) / PAGE;
        self.frames += changed.len() as u64;
        let last = (byte(self.frames) - 1) / PAGE;
        m.write(self.log + first, last - first + 1);
        self.logged.extend(changed);
        if self.frames >= CHECKPOINT {
            for page in std::mem::take(&mut self.logged) {
                m.write(page, 1);
            }
            self.frames = 0;
        }
    }

    fn update(&mut self, m: &mut Maker) {
        let rows = m.skewed(1..9, 2.0);
        let changed: Vec<u64> = (0..rows).map(|_| self.page(m)).collect();
        self.commit(m, &changed);
    }

    /// Appends hundreds of rows to the database. When its space is full, it shrinks to half of the
    /// space.
    fn load(&mut self, m: &mut Maker) {
        let rows = m.random.u64(64..1024).min(self.pages.end - self.end);
        let changed: Vec<u64> = (self.end..self.end + rows).collect();
        self.end += rows;
        self.commit(m, &changed);
        if self.end == self.pages.end {
            self.end = self.pages.start + (self.pages.end - self.pages.start) / 2;
        }
    }
}

pub(super) fn make(m: &mut Maker) {
    let width = m.range / DATABASES;
    let mut databases: Vec<Database> = (0..DATABASES)
        .map(|i| Database::new(i * width, (i + 1) * width))
        .collect();
    while !m.is_done() {
        let which = m.skewed(0..DATABASES, 1.5) as usize;
        let Some(database) = databases.get_mut(which) else {
            continue;
        };
        if m.reads() {
            for _ in 0..m.random.u64(1..16) {
                let page = database.page(m);
                m.read(page, 1);
            }
        } else if m.chance(0.01) {
            database.load(m);
        } else {
            database.update(m);
        }
    }
}
