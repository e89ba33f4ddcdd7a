//! Space set aside for growing files, so that writers side by side stay contiguous.
//!
//! A window exists in memory only: a run of free bits of one group with an owner. Others keep off it
//! until space is short; then it is taken from the owner without asking.

use crate::types::Ino;

/// An inode's side of its window: which group holds it, and how large the next one will be.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// The group, if there is a window (it may have been taken away meanwhile).
    pub(super) group: Option<u32>,
    /// Clusters of the next window.
    pub(super) next: u32,
}

/// First window of a file, bytes.
const FIRST_BYTES: u32 = 64 << 10;
/// Largest window, bytes.
const MAX_BYTES: u32 = 8 << 20;
/// Windows that one group keeps; more would make every search in it slow.
const PER_GROUP: usize = 32;

impl Window {
    /// Whether nothing is set aside.
    pub(crate) fn is_none(&self) -> bool {
        self.group.is_none()
    }

    /// The size of the next window, clusters of `cluster_size` bytes.
    pub(super) fn size(&self, cluster_size: u32) -> u32 {
        self.next.max(FIRST_BYTES / cluster_size).max(1)
    }

    /// [`size`](Self::size); the window after it is twice as large.
    pub(super) fn grow(&mut self, cluster_size: u32) -> u32 {
        let size = self.size(cluster_size);
        self.next = size
            .saturating_mul(2)
            .min((MAX_BYTES / cluster_size).max(1));
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
