//! The contention profile: where threads waited, and for how long.

use std::collections::HashMap;
use std::panic::Location;

/// The kind of thing that a thread waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WaitKind {
    /// A mutex that another thread held.
    Mutex,
    /// A reader-writer lock, for reading.
    Read,
    /// A reader-writer lock, for writing.
    Write,
    /// A signal, or a message of a channel.
    Signal,
    /// A cache line of an atomic or a lock, which came from another core.
    Line,
}

impl WaitKind {
    /// The kind's name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            WaitKind::Mutex => "mutex",
            WaitKind::Read => "rwlock read",
            WaitKind::Write => "rwlock write",
            WaitKind::Signal => "signal",
            WaitKind::Line => "cache line",
        }
    }
}

/// The waits of one kind at one place of the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waited {
    /// The kind.
    pub kind: WaitKind,
    /// The call that waited, `file:line`.
    pub site: String,
    /// The first words of the name of a thread that waited there.
    pub thread: String,
    /// Number of waits.
    pub count: u64,
    /// Their virtual time, nanoseconds.
    pub nanos: u64,
}

#[derive(Default)]
pub(super) struct Profile {
    sites: HashMap<(WaitKind, &'static str, u32), (String, u64, u64)>,
}

impl Profile {
    pub(super) fn add(&mut self, kind: WaitKind, site: &Location<'static>, who: &str, nanos: u64) {
        let entry = self
            .sites
            .entry((kind, site.file(), site.line()))
            .or_insert_with(|| (who.to_owned(), 0, 0));
        entry.1 += 1;
        entry.2 += nanos;
    }

    /// The waits, longest first; the profile is empty afterwards.
    pub(super) fn take(&mut self) -> Vec<Waited> {
        let mut all: Vec<Waited> = self
            .sites
            .drain()
            .map(|((kind, file, line), (thread, count, nanos))| Waited {
                kind,
                site: format!("{file}:{line}"),
                thread,
                count,
                nanos,
            })
            .collect();
        all.sort_by(|a, b| (b.nanos, &a.site, a.kind).cmp(&(a.nanos, &b.site, b.kind)));
        all
    }
}
