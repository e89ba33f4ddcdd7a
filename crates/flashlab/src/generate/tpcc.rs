//! TPC-C on InnoDB: pages of 16 KiB behind InnoDB's own buffer pool. Transactions append to the
//! redo log. Pages are flushed in batches, first into the doublewrite buffer, and then to their
//! places: hot rows, the ends of growing tables, and all others, sometimes with neighbours of the
//! same extent. Reads are the misses of the buffer pool.

use std::ops::Range;

use super::maker::Maker;

/// Pages of 4 KiB in a page of InnoDB, and in an extent.
const INNODB: u64 = 4;
const EXTENT: u64 = 256;

/// The parameters of the database.
pub(super) struct Params {
    /// The range of the hot rows, in parts of the whole.
    hot: [f64; 2],
    /// Exponent that makes the first hot rows hotter.
    heat: f64,
    /// Frequency of pages in percent: ends of growing tables, and hot rows; the rest is anywhere.
    pages: [u64; 2],
    /// Probability of writing neighbours as well.
    neighbours: f64,
}

pub(super) const PARAMS: Params = Params {
    hot: [0.3, 0.38],
    heat: 1.5,
    pages: [25, 45],
    neighbours: 0.2,
};

/// More hot rows, hotter at one end; fewer writes to the ends of tables; more neighbours.
pub(super) const HELD_OUT: Params = Params {
    hot: [0.55, 0.8],
    heat: 3.0,
    pages: [10, 70],
    neighbours: 0.5,
};

struct Tables {
    all: Range<u64>,
    hot: Range<u64>,
    /// The ends of the growing tables.
    ends: [u64; 4],
}

impl Tables {
    /// A random page of a table, aligned to pages of InnoDB.
    fn page(&mut self, m: &mut Maker, params: &Params) -> u64 {
        let kind = m.random.u64(..100);
        let [ends, hot] = params.pages;
        let page = match kind {
            _ if kind < ends => {
                let which = m.random.usize(..4);
                if m.chance(0.3) {
                    self.ends[which] += INNODB;
                }
                self.ends[which]
            }
            _ if kind < ends + hot => m.skewed(self.hot.clone(), params.heat),
            _ => m.skewed(self.all.clone(), 1.0),
        };
        page / INNODB * INNODB
    }
}

pub(super) fn make(m: &mut Maker, params: &Params) {
    let mut next = 0;
    let doublewrite = Maker::region(&mut next, 512);
    let undo = Maker::region(&mut next, 16_384);
    let redo = Maker::region(&mut next, 24_576);
    let binlog = m.range - 131_072..m.range;
    let all = next..binlog.start - 1024;
    let width = all.end - all.start;
    let at = |part: f64| all.start + (width as f64 * part) as u64;
    let mut tables = Tables {
        hot: at(params.hot[0])..at(params.hot[1]),
        ends: [at(0.1), at(0.5), at(0.7), at(0.9)],
        all: all.clone(),
    };
    let (mut logged, mut binlogged) = (0, 0);
    while !m.is_done() {
        // Each commit rewrites the last page of the log.
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
            let page = tables.page(m, params);
            m.read(page, INNODB);
        }
        let mut batch = Vec::new();
        for _ in 0..m.random.u64(8..48) {
            if m.chance(0.1) {
                batch.push(m.skewed(undo.clone(), 2.0) / INNODB * INNODB);
                continue;
            }
            let page = tables.page(m, params);
            batch.push(page);
            if m.chance(params.neighbours) {
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
