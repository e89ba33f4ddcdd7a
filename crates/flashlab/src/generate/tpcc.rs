//! TPC-C on InnoDB: pages of 16 KiB behind a buffer pool of its own. Transactions append to the redo log; pages are flushed in
//! batches, first into the doublewrite buffer, then to their places: hot rows, the ends of growing tables, all others;
//! sometimes with neighbours of the same extent. Reads are what the buffer pool missed.

use std::ops::Range;

use super::Maker;

/// Pages of 4 KiB of a page of InnoDB, and of an extent.
const INNODB: u64 = 4;
const EXTENT: u64 = 256;

struct Tables {
    all: Range<u64>,
    hot: Range<u64>,
    /// Growing tables: where each ends.
    ends: [u64; 4],
}

impl Tables {
    /// A page of some table, aligned.
    fn page(&mut self, m: &mut Maker) -> u64 {
        let kind = m.random.u64(..100);
        let page = match kind {
            0..25 => {
                let which = m.random.usize(..4);
                if m.chance(0.3) {
                    self.ends[which] += INNODB;
                }
                self.ends[which]
            }
            25..70 => m.skewed(self.hot.clone(), 1.5),
            _ => m.skewed(self.all.clone(), 1.0),
        };
        page / INNODB * INNODB
    }
}

pub(super) fn make(m: &mut Maker) {
    let mut next = 0;
    let doublewrite = Maker::region(&mut next, 512);
    let undo = Maker::region(&mut next, 16_384);
    let redo = Maker::region(&mut next, 24_576);
    let binlog = m.range - 131_072..m.range;
    let all = next..binlog.start - 1024;
    let width = all.end - all.start;
    let at = |part: f64| all.start + (width as f64 * part) as u64;
    let mut tables = Tables {
        hot: at(0.3)..at(0.38),
        ends: [at(0.1), at(0.5), at(0.7), at(0.9)],
        all: all.clone(),
    };
    let (mut logged, mut binlogged) = (0, 0);
    while !m.is_done() {
        // Commits: the last page of the log is written again by the next one.
        for _ in 0..m.random.u64(4..24) {
            let pages = m.random.u64(1..=2);
            let room = redo.end - redo.start;
            let at = logged % room;
            m.write(redo.start + at, pages.min(room - at));
            logged += pages - m.random.u64(0..=1);
            if m.chance(0.3) {
                m.write(binlog.start + binlogged % 131_072, 1);
                binlogged += m.random.u64(0..=1);
            }
        }
        for _ in 0..m.random.u64(4..20) {
            let page = tables.page(m);
            m.read(page, INNODB);
        }
        let mut batch = Vec::new();
        for _ in 0..m.random.u64(8..48) {
            if m.chance(0.1) {
                batch.push(m.skewed(undo.clone(), 2.0) / INNODB * INNODB);
                continue;
            }
            let page = tables.page(m);
            batch.push(page);
            if m.chance(0.2) {
                let extent = page / EXTENT * EXTENT;
                for _ in 0..m.random.u64(1..=3) {
                    batch.push(extent + m.random.u64(..EXTENT / INNODB) * INNODB);
                }
            }
        }
        batch.sort_unstable();
        batch.dedup();
        m.write(doublewrite.start, (batch.len() as u64 * INNODB).min(512));
        for page in batch {
            m.write(page, INNODB);
        }
    }
}
