//! A phone: one of some applications at a time, each with a database in rollback mode, a rollback
//! file and small cached files; photos in sequence; metadata. What is read besides are the
//! applications themselves, beyond the range that is written.

use std::ops::Range;

use super::maker::Maker;

/// What one phone does.
pub(super) struct Params {
    /// Applications.
    apps: u64,
    /// How much more often the first ones are used.
    popularity: f64,
    /// How hot the hot rows of a database are.
    heat: f64,
    /// Of a hundred things that an application does: transactions, cached files, reads of these,
    /// reads of rows; photos are the rest.
    does: [u64; 4],
}

pub(super) const PARAMS: Params = Params {
    apps: 12,
    popularity: 1.7,
    heat: 2.5,
    does: [40, 25, 15, 18],
};

/// More applications, used more alike, flatter databases, more files and photos.
pub(super) const HELD_OUT: Params = Params {
    apps: 20,
    popularity: 1.2,
    heat: 1.6,
    does: [25, 35, 20, 14],
};

struct App {
    database: Range<u64>,
    rollback: Range<u64>,
    /// Cached files.
    files: Range<u64>,
    /// Where the next file goes.
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
    // Files are spread: another one is being replaced, not always the next.
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
        // It starts: parts of its package are read in sequence.
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
