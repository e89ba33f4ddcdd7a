//! Repeated builds of a large program. Four compilers work side by side; each reads a source and
//! the common headers, and writes an object. Then all objects are read and linked. Each further
//! build compiles some directories again, in place.

use super::maker::Maker;

const DIRECTORIES: u64 = 300;
/// Number of files in a directory.
const FILES: u64 = 40;
/// Pages of space for a source, and for an object.
const SOURCE: u64 = 16;
const OBJECT: u64 = 40;
/// Pages of the headers, and of the linked program.
const HEADERS: u64 = 8192;
const LINKED: u64 = 12_288;
/// Number of compilers.
const COMPILERS: usize = 4;
/// Most pages of a request.
const PIECE: u64 = 32;

/// The places of everything. Sources and headers are only read; they lie beyond the range that is
/// written.
struct Places {
    inodes: u64,
    objects: u64,
    /// Pages from the objects of one directory to those of the next.
    apart: u64,
    linked: u64,
    headers: u64,
    sources: u64,
}

impl Places {
    fn new(range: u64) -> Places {
        let objects = DIRECTORIES * 4;
        let linked = range - LINKED;
        Places {
            inodes: 0,
            objects,
            apart: (linked - objects) / DIRECTORIES,
            linked,
            headers: range,
            sources: range + HEADERS,
        }
    }

    fn object(&self, file: u64) -> u64 {
        self.objects + file / FILES * self.apart + file % FILES * OBJECT
    }
}

/// The state of a compiler.
struct Compiler {
    file: u64,
    /// Pages of its object that are written, and pages in all.
    at: u64,
    pages: u64,
}

/// The length of a file in pages, at most `room`; always the same for a file.
fn length(file: u64, room: u64) -> u64 {
    let mixed = (file + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
    1 + mixed % room * (mixed % 7) / 6
}

fn start(m: &mut Maker, places: &Places, file: u64) -> Compiler {
    m.read(places.sources + file * SOURCE, length(file, SOURCE));
    for _ in 0..m.random.u64(4..24) {
        let page = m.skewed(places.headers..places.headers + HEADERS - 4, 4.0);
        let pages = m.random.u64(1..=4);
        m.read(page, pages);
    }
    Compiler {
        file,
        at: 0,
        pages: length(file, OBJECT),
    }
}

/// Writes the next piece of an object; true if it was the last one.
fn go_on(m: &mut Maker, places: &Places, c: &mut Compiler) -> bool {
    let pages = m.random.u64(1..=PIECE).min(c.pages - c.at);
    m.write(places.object(c.file) + c.at, pages);
    c.at += pages;
    if c.at < c.pages {
        return false;
    }
    // These are the inode, the directory and the bitmap.
    let metadata = places.inodes + c.file / FILES * 4;
    let inode = metadata + c.file % 2;
    for page in [inode, metadata + 2, metadata + 3] {
        m.write(page, 1);
    }
    true
}

fn compile(m: &mut Maker, places: &Places, files: &[u64]) {
    let mut waiting = files.iter().copied();
    let mut busy: Vec<Compiler> = Vec::new();
    while !m.is_done() {
        while busy.len() < COMPILERS
            && let Some(file) = waiting.next()
        {
            busy.push(start(m, places, file));
        }
        if busy.is_empty() {
            return;
        }
        let which = m.random.usize(..busy.len());
        if go_on(m, places, &mut busy[which]) {
            busy.swap_remove(which);
        }
    }
}

fn link(m: &mut Maker, places: &Places) {
    let each = LINKED / (DIRECTORIES * FILES);
    for file in 0..DIRECTORIES * FILES {
        m.read(places.object(file), length(file, OBJECT));
        m.write(places.linked + file * each, each);
    }
    // The header is written last.
    m.write(places.linked, 1);
}

pub(super) fn make(m: &mut Maker) {
    let places = Places::new(m.range);
    let mut part = 1.0;
    while !m.is_done() {
        let mut files = Vec::new();
        for directory in 0..DIRECTORIES {
            if m.chance(part) {
                files.extend(directory * FILES..(directory + 1) * FILES);
            }
        }
        compile(m, &places, &files);
        link(m, &places);
        part = 0.2;
    }
}
