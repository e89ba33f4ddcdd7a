//! A phone that uses one of some applications at a time. Each has a database in rollback mode, a
//! rollback file and small cached files. There are photos, written in sequence, and metadata. Reads
//! are also of the applications themselves, which lie beyond the range that is written.

use std::ops::Range;

use super::maker::Maker;

/// The parameters of a phone.
pub(super) struct Params {
    /// Number of applications.
    apps: u64,
    /// Exponent that makes the first applications more popular.
    popularity: f64,
    /// Exponent that makes some rows of a database hotter.
    heat: f64,
    /// Frequency of an application's actions in percent: transactions, cached files, reads of
    /// these, reads of rows; the rest are photos.
    does: [u64; 4],
}

pub(super) const PARAMS: Params = Params {
    apps: 12,
    popularity: 1.7,
    heat: 2.5,
    does: [40, 25, 15, 18],
};

/// More applications with more equal use, flatter databases, more files and photos.
pub(super) const HELD_OUT: Params = Params {
    apps: 20,
    popularity: 1.2,
    heat: 1.6,
    does: [25, 35, 20, 14],
};

struct App {
    database: Range<u64>,
    rollback: Range<u64>,
    /// Space of the cached files.
    files: Range<u64>,
    /// Place of the next file.
    next: u64,
    package: Range<u64>,
}

fn transaction(m: &mut Maker, app: &App, inodes: &Range<u64>, heat: f64) {
    let pages = m.skewed(1..9, 2.0);
    for _ in 0..pages {
        let page = m.skewed(app.database.clone(), 2.0);
        m.read(page, 1);
    }
    m.write(app.rollback.start, 1);
    m.write(app.rollback.start + 1, pages);
    for _ in 0..pages {
        let page = m.skewed(app.database.clone(), heat);
        m.write(page, 1);
    }
    m.write(app.rollback.start, 1);
    let inode = m.skewed(inodes.clone(), 3.0);
    m.write(inode, 1);
}

fn cached_file(m: &mut Maker, app: &mut App, inodes: &Range<u64>, bitmaps: &Range<u64>) {
    let pages = m.skewed(1..33, 2.0);
    if app.next + pages > app.files.end {
        app.next = app.files.start;
    }
    // Files are spread: sometimes another file than the next one is replaced.
    if m.chance(0.3) {
        app.next = m.skewed(app.files.start..app.files.end - pages, 1.0);
    }
    m.write(app.next, pages);
    app.next += pages;
    let inode = m.skewed(inodes.clone(), 1.5);
    m.write(inode, 1);
    let bitmap = m.skewed(bitmaps.clone(), 2.0);
    m.write(bitmap, 1);
}

pub(super) fn make(m: &mut Maker, params: &Params) {
    let mut next = 0;
    let inodes = Maker::region(&mut next, 512);
    let bitmaps = Maker::region(&mut next, 32);
    let mut apps: Vec<App> = Vec::new();
    for i in 0..params.apps {
        let database = Maker::region(&mut next, 256 << (i % 3));
        let rollback = Maker::region(&mut next, 32);
        let files = Maker::region(&mut next, 1024);
        let package = m.range + i * 5632..m.range + (i + 1) * 5632;
        apps.push(App {
            database,
            rollback,
            next: files.start,
            files,
            package,
        });
    }
    let photos = next..m.range;
    let mut photo = photos.start;
    while !m.is_done() {
        let which = m.skewed(0..params.apps, params.popularity) as usize;
        let Some(app) = apps.get_mut(which) else {
            continue;
        };
        // The application starts: parts of its package are read in sequence.
        for _ in 0..m.random.u64(2..8) {
            let pages = m.random.u64(16..=128);
            let at = m.skewed(app.package.start..app.package.end - pages, 2.0);
            m.read(at, pages);
        }
        for _ in 0..m.random.u64(10..80) {
            let mut left = m.random.u64(..100);
            let kind = params.does.iter().position(|part| {
                let chosen = left < *part;
                left = left.saturating_sub(*part);
                chosen
            });
            match kind {
                Some(0) => transaction(m, app, &inodes, params.heat),
                Some(1) => cached_file(m, app, &inodes, &bitmaps),
                Some(2) => {
                    let pages = m.skewed(1..33, 2.0);
                    let at = m.skewed(app.files.start..app.files.end - pages, 1.0);
                    m.read(at, pages);
                }
                Some(_) => {
                    let page = m.skewed(app.database.clone(), 2.0);
                    m.read(page, 1);
                }
                None => {
                    let pages = m.random.u64(100..400).min(photos.end - photo);
                    m.write(photo, pages);
                    photo += pages;
                    if photo == photos.end {
                        photo = photos.start;
                    }
                }
            }
        }
    }
}
