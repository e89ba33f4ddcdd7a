//! Space set aside for growing files, so that writers side by side stay contiguous.
//!
//! A window exists in memory only: a run of free bits of one group with an owner. Others keep off
//! it until space is short; then it is taken from the owner without asking.

use std::collections::VecDeque;

use parking_lot::Mutex;

use crate::types::Ino;

/// An inode's side of its window: which group holds it, and how large the next one will be.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// The group, if there is a window (it may have been taken away meanwhile).
    pub(super) group: Option<u32>,
    /// Clusters of the next window.
    pub(super) next: u32,
    /// None is set aside yet: nobody would tell of the file's end, and it has not shown that it
    /// grows.
    pub(crate) waits: bool,
}

/// Windows of files that nobody holds open here, at most: the oldest goes back.
const MOST_UNHELD: usize = 32;

/// Files with a window that nobody holds open here, and whose close nobody tells of. The one
/// written last is the last.
#[derive(Debug, Default)]
pub(super) struct Unheld(Mutex<VecDeque<Ino>>);

impl Unheld {
    /// `ino` has a window and was written; gives the file whose window is to go.
    pub(super) fn written(&self, ino: Ino) -> Option<Ino> {
        let mut all = self.0.lock();
        if all.back() == Some(&ino) {
            return None;
        }
        if let Some(at) = all.iter().position(|i| *i == ino) {
            all.remove(at);
        }
        all.push_back(ino);
        match all.len() > MOST_UNHELD {
            true => all.pop_front(),
            false => None,
        }
    }
}

/// First window of a file, bytes.
const FIRST_BYTES: u32 = 256 << 10;
/// Each further one is so many times as large.
const GROWTH: u32 = 4;
/// Largest window, bytes.
const MAX_BYTES: u32 = 16 << 20;
/// A window takes one part in so many of the volume's free space at most: as space gets short, less
/// is set aside.
const SHARE: u64 = 64;
/// Windows that one group keeps; more would make every search in it slow.
const PER_GROUP: usize = 32;

/// How large windows can be on a volume now, in clusters.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    first: u32,
    max: u32,
}

impl Sizes {
    pub(super) fn new(cluster_size: u32, free_clusters: u64) -> Sizes {
        let share = u32::try_from(free_clusters / SHARE).unwrap_or(u32::MAX);
        let max = (MAX_BYTES / cluster_size).min(share).max(1);
        Sizes {
            first: (FIRST_BYTES / cluster_size).clamp(1, max),
            max,
        }
    }
}

impl Window {
    /// Whether nothing is set aside.
    pub(crate) fn is_none(&self) -> bool {
        self.group.is_none()
    }

    /// Whether the file has had no window yet: it may be about to end, as most files do.
    pub(super) fn is_first(&self) -> bool {
        self.next == 0
    }

    /// The size of the next window, clusters.
    pub(super) fn size(&self, sizes: Sizes) -> u32 {
        self.next.clamp(sizes.first, sizes.max)
    }

    /// [`size`](Self::size); the window after it is larger.
    pub(super) fn grow(&mut self, sizes: Sizes) -> u32 {
        let size = self.size(sizes);
        self.next = size.saturating_mul(GROWTH);
        size
    }
}

/// The windows of one group.
#[derive(Debug, Default)]
pub(super) struct Windows(Vec<Held>);

#[derive(Clone, Copy, Debug)]
struct Held {
    ino: Ino,
    start: u32,
    end: u32,
}

impl Windows {
    /// The window of `ino`.
    pub(super) fn of(&self, ino: Ino) -> Option<(u32, u32)> {
        self.0
            .iter()
            .find(|w| w.ino == ino)
            .map(|w| (w.start, w.end))
    }

    /// Sets the window of `ino`; an empty one goes away. Whether there is one now.
    pub(super) fn set(&mut self, ino: Ino, start: u32, end: u32) -> bool {
        self.0.retain(|w| w.ino != ino);
        if start >= end || self.0.len() >= PER_GROUP {
            return false;
        }
        let at = self.0.partition_point(|w| w.start < start);
        self.0.insert(at, Held { ino, start, end });
        true
    }

    /// Runs that `me` keeps off, in order. `None` keeps off all.
    pub(super) fn avoid(&self, me: Option<Ino>) -> Vec<(u32, u32)> {
        self.0
            .iter()
            .filter(|w| Some(w.ino) != me)
            .map(|w| (w.start, w.end))
            .collect()
    }

    /// Where `me`, growing from `start`, meets somebody else's window; at most `end`.
    pub(super) fn limit(&self, me: Option<Ino>, start: u32, end: u32) -> u32 {
        self.0
            .iter()
            .filter(|w| Some(w.ino) != me && w.start < end && w.end > start)
            .map(|w| w.start.max(start))
            .fold(end, u32::min)
    }

    /// Takes away every window that touches the run.
    pub(super) fn steal(&mut self, start: u32, end: u32, me: Option<Ino>) {
        self.0
            .retain(|w| Some(w.ino) == me || w.end <= start || w.start >= end);
    }
}
