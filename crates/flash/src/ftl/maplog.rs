//! What of the mapping does not stand beside the pages themselves: trims and shares, and parts of
//! the table that replace them.
//!
//! 1. A page of the log is programmed as a whole or not: its changes are atomic.
//! 2. Trims wait in memory for a flush. They are logged before any block is erased: what they
//!    unmapped may be the newest of its logical page, and without it an older one would come back.
//! 3. When the log is full the parts of the table that its changes touch are programmed, and the
//!    log begins anew. A part stands for everything before its stamp.

use std::collections::{BTreeMap, BTreeSet};

use super::nand::{NONE, Nand};
use super::tables::{TABLE_ENTRIES, Tables};
use super::{PAGE, Sink};

/// Changes that a page of the log has room for: 8 bytes each, beside 32 of its own.
pub(super) const CHANGES: usize = (PAGE as usize - 32) / 8;

/// Pages of the log.
const LOG_PAGES: usize = 256;

/// A change of the map.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// These logical pages are mapped no longer.
    Trim {
        /// The first.
        lpn: u32,
        /// How many.
        pages: u32,
    },
    /// A logical page is mapped to a page that was programmed for another.
    Share {
        /// Which.
        lpn: u32,
        /// To where.
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
    /// Of [`TABLE_ENTRIES`] logical pages, less at the end.
    map: Vec<u32>,
}

#[derive(Clone, Default)]
pub(super) struct MapLog {
    /// On the flash.
    records: Vec<Record>,
    /// On the flash, by number.
    parts: BTreeMap<u32, Part>,
    /// In memory: what was trimmed since the last record. Pages that are mapped again are no
    /// longer meant.
    trims: Vec<(u32, u32)>,
    /// In memory: parts that the records touch.
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

    /// Logs what was trimmed, if it is as much as a page takes.
    pub(super) fn flush_if_long(&mut self, nand: &mut Nand, tables: &Tables, ops: &mut dyn Sink) {
        if self.trims.len() >= CHANGES {
            self.flush(nand, tables, ops);
        }
    }

    /// Logs what was trimmed (2).
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

    /// Logs changes that one page has room for: all or none of them stand (1). `tables` is the map
    /// before them.
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

    /// Programs the parts of the table that the records touch, and begins the log anew (3).
    fn fold(&mut self, nand: &mut Nand, tables: &Tables, ops: &mut dyn Sink) {
        for part in std::mem::take(&mut self.touched) {
            let first = part * TABLE_ENTRIES;
            let end = (first + TABLE_ENTRIES).min(nand.geometry.logical_pages);
            let Some(stamp) = nand.program_map(ops) else {
                // Without power the records stand.
                return;
            };
            let map = tables.map(first..end).to_vec();
            self.parts.insert(part, Part { stamp, map });
        }
        self.records.clear();
    }

    /// Forgets what is not on the flash.
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

    /// The map as the flash says it: the parts of the table, and over them pages and records in the
    /// order of their stamps.
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

/// A map that is made anew.
struct Rebuilt {
    map: Vec<u32>,
    /// By part of the table: what stands for everything before.
    stamps: Vec<u64>,
}

impl Rebuilt {
    /// As the parts say.
    fn new(log: &MapLog, nand: &Nand) -> Rebuilt {
        let pages = nand.geometry.logical_pages;
        let mut map = vec![NONE; pages as usize];
        let mut stamps = vec![0; pages.div_ceil(TABLE_ENTRIES) as usize];
        for (number, part) in &log.parts {
            stamps[*number as usize] = part.stamp;
            let first = (number * TABLE_ENTRIES) as usize;
            for (entry, page) in map[first..].iter_mut().zip(&part.map) {
                // A page that was erased since is not what was meant; what was is elsewhere, with a
                // later stamp.
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
