//! Streaming: files of 10 MiB that are written in sequence over and over, with the updates of metadata and of a small database
//! between the chunks.

use super::Maker;

/// Pages of a file.
const FILE: u64 = 2560;

pub(super) fn make(m: &mut Maker) {
    let mut next = 0;
    let inodes = Maker::region(&mut next, 256);
    let bitmaps = Maker::region(&mut next, 64);
    let database = Maker::region(&mut next, 1024);
    let rollback = Maker::region(&mut next, 256);
    let log = Maker::region(&mut next, 1024);
    let files = (m.range - next) / FILE;
    m.read(inodes.start, 16);
    let mut logged = 0;
    while !m.is_done() {
        let file = next + m.random.u64(..files) * FILE;
        let (mut at, mut chunks) = (0, 0);
        while at < FILE && !m.is_done() {
            let pages = m.random.u64(16..=64).min(FILE - at);
            m.write(file + at, pages);
            // A chunk ends within a page, so the next one begins with it.
            at += pages;
            if at < FILE && m.chance(0.5) {
                at -= 1;
            }
            chunks += 1;
            let inode = inodes.start + file / FILE % 8;
            m.write(inode, 1);
            if m.chance(0.5) {
                let bitmap = m.skewed(bitmaps.clone(), 3.0);
                m.write(bitmap, 1);
            }
            if chunks % 8 == 0 {
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
        // What was read at the end of the trace is little in any case.
        if m.write_left == 0 {
            let left = m.read_left;
            m.read(database.start, left);
        }
    }
}
