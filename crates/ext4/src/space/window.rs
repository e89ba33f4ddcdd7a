//! Windows: space set aside for growing files, so that files written side by side stay contiguous.
//!
//! A window exists only in memory: a run of free bits of one group with an owner. Other files keep
//! off it until space is short; then they take it without asking.

use std::collections::VecDeque;

use stetfs_sync::timed::Mutex;

use crate::state::window::Window;
use crate::types::Ino;

/// The most windows of files that are not open here; then the oldest is released.
const MOST_UNHELD: usize = 32;

/// Files with a window that are not open here, so that no close releases it. Ordered by the last
/// write, newest at the end.
#[derive(Debug, Default)]
pub(super) struct Unheld(Mutex<VecDeque<Ino>>);

impl Unheld {
    /// Notes a write to `ino`, which has a window. Returns the file whose window is to be released,
    /// if any.
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

/// Size of a file's first window, bytes.
const FIRST_BYTES: u32 = 256 << 10;
/// Factor by which each further window is larger.
const GROWTH: u32 = 4;
/// Size of the largest window, bytes.
const MAX_BYTES: u32 = 16 << 20;
/// A window takes at most one part in `SHARE` of the volume's free space: the less space, the
/// smaller the windows.
const SHARE: u64 = 64;
/// The most windows of one group; more would slow every search in it.
const PER_GROUP: usize = 32;

/// The sizes of windows on the volume at this time, clusters.
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

    /// Whether the file has had no window yet. Such a file may be complete, as most files are after
    /// their first write.
    pub(super) fn is_first(&self) -> bool {
        self.next == 0
    }

    /// The size of the next window, clusters.
    pub(super) fn size(&self, sizes: Sizes) -> u32 {
        self.next.clamp(sizes.first, sizes.max)
    }

    /// The [`size`](Self::size) of the next window; makes the one after it larger.
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

    /// Sets the window of `ino`; an empty one is removed. Returns whether there is one now.
    pub(super) fn set(&mut self, ino: Ino, start: u32, end: u32) -> bool {
        self.0.retain(|w| w.ino != ino);
        if start >= end || self.0.len() >= PER_GROUP {
            return false;
        }
        let at = self.0.partition_point(|w| w.start < start);
        self.0.insert(at, Held { ino, start, end });
        true
    }

    /// The runs that `me` must avoid, in order. With `None` all windows are avoided.
    pub(super) fn avoid(&self, me: Option<Ino>) -> Vec<(u32, u32)> {
        self.0
            .iter()
            .filter(|w| Some(w.ino) != me)
            .map(|w| (w.start, w.end))
            .collect()
    }

    /// The point where `me`, growing from `start`, meets another file's window; at most `end`.
    pub(super) fn limit(&self, me: Option<Ino>, start: u32, end: u32) -> u32 {
        self.0
            .iter()
            .filter(|w| Some(w.ino) != me && w.start < end && w.end > start)
            .map(|w| w.start.max(start))
            .fold(end, u32::min)
    }

    /// Removes every window of another file that touches the run.
    pub(super) fn steal(&mut self, start: u32, end: u32, me: Option<Ino>) {
        self.0
            .retain(|w| Some(w.ino) == me || w.end <= start || w.start >= end);
    }
}
