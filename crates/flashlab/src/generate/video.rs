//! Streaming: files of some MiB that are written in sequence over and over, with updates of
//! metadata and of a small database between the chunks.

use std::ops::RangeInclusive;

use super::maker::Maker;

/// The parameters of a phone's player.
pub(super) struct Params {
    /// Pages of a file.
    file: u64,
    /// Pages of a chunk.
    chunk: RangeInclusive<u64>,
    /// Probability that a chunk ends within a page.
    within: f64,
    /// Number of chunks per update of the database.
    updates: u64,
}

pub(super) const PARAMS: Params = Params {
    file: 2560,
    chunk: 16..=64,
    within: 0.5,
    updates: 8,
};

/// Downloads: longer files in longer chunks, fewer updates.
pub(super) const HELD_OUT: Params = Params {
    file: 16_384,
    chunk: 32..=256,
    within: 0.8,
    updates: 24,
};

pub(super) fn make(m: &mut Maker, params: &Params) {
    let file_pages = params.file;
    let mut next = 0;
    let inodes = Maker::region(&mut next, 256);
    let bitmaps = Maker::region(&mut next, 64);
    let database = Maker::region(&mut next, 1024);
    let rollback = Maker::region(&mut next, 256);
    let log = Maker::region(&mut next, 1024);
    let files = (m.range - next) / file_pages;
    m.read(inodes.start, 16);
    let mut logged = 0;
    while !m.is_done() {
        let file = next + m.random.u64(..files) * file_pages;
        let (mut at, mut chunks) = (0, 0);
        while at < file_pages && !m.is_done() {
            let pages = m.random.u64(params.chunk.clone()).min(file_pages - at);
            m.write(file + at, pages);
            // The chunk ends within a page, so the next chunk begins with that page.
            at += pages;
            if at < file_pages && m.chance(params.within) {
                at -= 1;
            }
            chunks += 1;
            let inode = inodes.start + file / file_pages % 8;
            m.write(inode, 1);
            if m.chance(0.5) {
                let bitmap = m.skewed(bitmaps.clone(), 3.0);
                m.write(bitmap, 1);
            }
            if chunks % params.updates == 0 {
                m.write(rollback.start, 1);
                let pages = m.random.u64(1..=4);
                m.write(rollback.start + 1, pages);
                for _ in 0..pages {
                    let page = m.skewed(database.clone(), 2.0);
                    m.write(page, 1);
                }
                m.write(log.start + logged % 1024, 1);
                logged += m.random.u64(0..=1);
            }
            if m.chance(0.002) {
                let page = m.skewed(database.clone(), 2.0);
                m.read(page, 1);
            }
        }
        // The rest of the reads, at the end of the trace, is small in any case.
        if m.write_left == 0 {
            let left = m.read_left;
            m.read(database.start, left);
        }
    }
}
