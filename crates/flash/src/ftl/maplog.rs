//! The log of the mapping: changes that are not noted beside the pages themselves (trims and
//! shares), and parts of the table that replace older changes.
//!
//! 1. A page of the log is programmed whole or not at all, so its changes are atomic.
//! 2. Trims wait in memory for a flush. They are logged before any block is erased: a trimmed page
//!    may be the newest copy of its logical page, and without the trim an older copy would come
//!    back.
//! 3. When the log is full, the parts of the table that its changes touch are programmed, and the
//!    log starts anew. A part replaces everything before its stamp.

use std::collections::{BTreeMap, BTreeSet};

use super::nand::{NONE, Nand};
use super::tables::{TABLE_ENTRIES, Tables};
use super::{PAGE, Sink};

/// Most changes in a page of the log: 8 bytes each, after 32 bytes of its own.
pub(super) const CHANGES: usize = (PAGE as usize - 32) / 8;

/// Number of pages of the log.
const LOG_PAGES: usize = 256;

/// A change of the map.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// Logical pages are unmapped.
    Trim {
        /// The first.
        lpn: u32,
        /// Their number.
        pages: u32,
    },
    /// A logical page is mapped to a page that was programmed for another.
    Share {
        /// The logical page.
        lpn: u32,
        /// The physical page.
        page: u32,
    },
}

/// A page of the log.
#[derive(Clone)]
struct Record {
    stamp: u64,
    changes: Vec<Change>,
}

/// A part of the table.
#[derive(Clone)]
struct Part {
    stamp: u64,
    /// The map of [`TABLE_ENTRIES`] logical pages; the last part may have fewer.
    map: Vec<u32>,
}

#[derive(Clone, Default)]
pub(super) struct MapLog {
    /// Pages of the log, on the flash.
    records: Vec<Record>,
    /// Parts of the table by number, on the flash.
    parts: BTreeMap<u32, Part>,
    /// Trims since the last record, in memory. Pages that have been mapped again since are not
    /// meant.
    trims: Vec<(u32, u32)>,
    /// Parts of the table that the records touch, in memory.
    touched: BTreeSet<u32>,
}

impl MapLog {
    /// Notes a trim.
    pub(super) fn trim(&mut self, lpn: u32, pages: u32) {
        match self.trims.last_mut() {
            Some((first, n)) if *first + *n == lpn => *n += pages,
            _ => self.trims.push((lpn, pages)),
        }
    }

    /// Logs the trims if they fill a page.
    pub(super) fn flush_if_long(&mut self, nand: &mut Nand, tables: &Tables, ops: &mut dyn Sink) {
        if self.trims.len() >= CHANGES {
            self.flush(nand, tables, ops);
        }
    }

    /// Logs the trims (2).
    pub(super) fn flush(&mut self, nand: &mut Nand, tables: &Tables, ops: &mut dyn Sink) {
        if self.trims.is_empty() {
            return;
        }
        let mut changes = Vec::new();
        for (first, n) in std::mem::take(&mut self.trims) {
            let mut lpn = first;
            for run in tables
                .map(first..first + n)
                .chunk_by(|a, b| (*a == NONE) == (*b == NONE))
            {
                let pages = run.len() as u32;
                if run.first() == Some(&NONE) {
                    changes.push(Change::Trim { lpn, pages });
                }
                lpn += pages;
            }
        }
        for some in changes.chunks(CHANGES) {
            self.append(some, nand, tables, ops);
        }
    }

    /// Logs changes that fit in one page; they are atomic (1). `tables` is the map before them.
    pub(super) fn append(
        &mut self,
        changes: &[Change],
        nand: &mut Nand,
        tables: &Tables,
        ops: &mut dyn Sink,
    ) {
        debug_assert!(changes.len() <= CHANGES);
        if self.records.len() >= LOG_PAGES {
            self.fold(nand, tables, ops);
        }
        if let Some(stamp) = nand.program_map(ops) {
            let changes = changes.to_vec();
            self.records.push(Record { stamp, changes });
        }
        for change in changes {
            let lpns = match *change {
                Change::Trim { lpn, pages } => lpn..lpn + pages,
                Change::Share { lpn, .. } => lpn..lpn + 1,
            };
            if lpns.start < lpns.end {
                let parts = lpns.start / TABLE_ENTRIES..=(lpns.end - 1) / TABLE_ENTRIES;
                self.touched.extend(parts);
            }
        }
    }

    /// Programs the parts of the table that the records touch, and starts the log anew (3).
    fn fold(&mut self, nand: &mut Nand, tables: &Tables, ops: &mut dyn Sink) {
        for part in std::mem::take(&mut self.touched) {
            let first = part * TABLE_ENTRIES;
            let end = (first + TABLE_ENTRIES).min(nand.geometry.logical_pages);
            let Some(stamp) = nand.program_map(ops) else {
                // Without power the old records stay valid.
                return;
            };
            let map = tables.map(first..end).to_vec();
            self.parts.insert(part, Part { stamp, map });
        }
        self.records.clear();
    }

    /// Drops everything that is not on the flash.
    pub(super) fn restart(&mut self) {
        self.trims.clear();
        self.touched.clear();
        for record in &self.records {
            for change in &record.changes {
                let (first, pages) = match *change {
                    Change::Trim { lpn, pages } => (lpn, pages),
                    Change::Share { lpn, .. } => (lpn, 1),
                };
                let last = first + pages.saturating_sub(1);
                self.touched
                    .extend(first / TABLE_ENTRIES..=last / TABLE_ENTRIES);
            }
        }
    }

    /// The map by the flash: the parts of the table, then pages and records in the order of their
    /// stamps.
    pub(super) fn map(&self, nand: &Nand) -> Vec<u32> {
        let mut map = Rebuilt::new(self, nand);
        let mut records = self.records.iter().peekable();
        for page in nand.in_order() {
            let stamp = nand.stamp(page);
            while let Some(record) = records.next_if(|r| r.stamp < stamp) {
                map.record(record, nand);
            }
            for lpn in nand.lpns(page) {
                map.set(lpn, page, stamp);
            }
        }
        for record in records {
            map.record(record, nand);
        }
        map.map
    }
}

/// A map that is being rebuilt.
struct Rebuilt {
    map: Vec<u32>,
    /// For each part of the table the stamp up to which it replaces everything.
    stamps: Vec<u64>,
}

impl Rebuilt {
    /// The map by the parts of the table.
    fn new(log: &MapLog, nand: &Nand) -> Rebuilt {
        let pages = nand.geometry.logical_pages;
        let mut map = vec![NONE; pages as usize];
        let mut stamps = vec![0; pages.div_ceil(TABLE_ENTRIES) as usize];
        for (number, part) in &log.parts {
            stamps[*number as usize] = part.stamp;
            let first = (number * TABLE_ENTRIES) as usize;
            for (entry, page) in map[first..].iter_mut().zip(&part.map) {
                // A page that was erased since does not have the content any more; that is
                // elsewhere, with a later stamp.
                let meant =
                    *page != NONE && !nand.is_erased(*page) && nand.stamp(*page) < part.stamp;
                *entry = if meant { *page } else { NONE };
            }
        }
        Rebuilt { map, stamps }
    }

    fn set(&mut self, lpn: u32, page: u32, stamp: u64) {
        if stamp > self.stamps[(lpn / TABLE_ENTRIES) as usize] {
            self.map[lpn as usize] = page;
        }
    }

    fn record(&mut self, record: &Record, nand: &Nand) {
        for change in &record.changes {
            match *change {
                Change::Trim { lpn, pages } => {
                    (lpn..lpn + pages).for_each(|lpn| self.set(lpn, NONE, record.stamp));
                }
                Change::Share { lpn, page } => {
                    let meant = !nand.is_erased(page) && nand.stamp(page) < record.stamp;
                    self.set(lpn, if meant { page } else { NONE }, record.stamp);
                }
            }
        }
    }
}
