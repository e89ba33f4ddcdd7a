//! Dbench: clients that run in random order. Each has some files in block groups of its own, spread
//! over the volume. A client writes a file in pieces of up to 64 KiB, reads it or another one back,
//! and later replaces it in the same place.

use super::maker::Maker;

/// The parameters of the clients.
pub(super) struct Params {
    clients: u64,
    /// Number of files of a client.
    files: usize,
    /// Exponent that makes long files rare.
    shortness: f64,
    /// Probability of writing a file out of turn.
    jumps: f64,
}

pub(super) const PARAMS: Params = Params {
    clients: 48,
    files: 120,
    shortness: 7.0,
    jumps: 0.3,
};

/// Fewer clients, with more and shorter files that are more often written out of turn.
pub(super) const HELD_OUT: Params = Params {
    clients: 20,
    files: 300,
    shortness: 11.0,
    jumps: 0.6,
};

/// Pages of a block group (128 MiB).
const GROUP: u64 = 32_768;
/// Most pages of a request.
const PIECE: u64 = 16;

struct File {
    start: u64,
    pages: u64,
}

enum Doing {
    Writing,
    Reading,
}

struct Client {
    group: u64,
    files: Vec<File>,
    file: usize,
    at: u64,
    doing: Doing,
}

fn client(m: &mut Maker, group: u64, params: &Params) -> Client {
    let mut start = group + 1024;
    let files = (0..params.files).map(|_| {
        // Lengths are 1 page to 2 MiB, 64 pages on average.
        let pages = m.skewed(1..513, params.shortness);
        let file = File { start, pages };
        start += pages + m.random.u64(..32);
        file
    });
    Client {
        group,
        files: files.collect(),
        file: 0,
        at: 0,
        doing: Doing::Writing,
    }
}

/// Writes the inode, the directory and the bitmap.
fn metadata(m: &mut Maker, group: u64) {
    let bitmap = group + m.random.u64(..2);
    let inode = m.skewed(group + 2..group + 34, 1.0);
    let directory = m.skewed(group + 514..group + 520, 1.0);
    for page in [bitmap, inode, directory] {
        m.write(page, 1);
    }
}

fn step(m: &mut Maker, c: &mut Client, params: &Params) {
    let files = c.files.len();
    let Some(file) = c.files.get(c.file) else {
        return;
    };
    let pages = m.random.u64(1..=PIECE).max(m.random.u64(1..=PIECE));
    let pages = pages.min(file.pages - c.at);
    match c.doing {
        Doing::Writing => m.write(file.start + c.at, pages),
        Doing::Reading => m.read(file.start + c.at, pages),
    }
    c.at += pages;
    if c.at < file.pages {
        return;
    }
    c.at = 0;
    if matches!(c.doing, Doing::Writing) {
        metadata(m, c.group);
    }
    // Reads are as likely as their share of the remaining work; they are of the last file or of one
    // near it.
    if m.reads() {
        c.doing = Doing::Reading;
        if m.chance(0.5) {
            let back = m.skewed(0..files as u64, 3.0) as usize;
            c.file = (c.file + files - back) % files;
        }
    } else {
        c.doing = Doing::Writing;
        c.file = match m.chance(params.jumps) {
            true => m.skewed(0..files as u64, 1.0) as usize,
            false => (c.file + 1) % files,
        };
    }
}

pub(super) fn make(m: &mut Maker, params: &Params) {
    let groups = m.range / GROUP;
    let mut clients: Vec<Client> = (0..params.clients)
        .map(|i| client(m, i * (groups - 1) / (params.clients - 1) * GROUP, params))
        .collect();
    while !m.is_done() {
        let which = m.random.usize(..clients.len());
        if let Some(c) = clients.get_mut(which) {
            step(m, c, params);
        }
        // A log in the last group, like a journal, marks the end of the range.
        if m.chance(0.002) {
            let last = m.range - 1 - m.random.u64(..64);
            m.write(last, 1);
        }
    }
}
