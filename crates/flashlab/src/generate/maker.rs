//! The builder of generated traces.

use std::ops::Range;

use fastrand::Rng;

use crate::trace::{Op, Request};

/// A trace under construction. Requests that would exceed the sizes are left out.
pub(super) struct Maker {
    pub(super) random: Rng,
    pub(super) requests: Vec<Request>,
    /// Time in microseconds.
    pub(super) now: u64,
    pub(super) read_left: u64,
    pub(super) write_left: u64,
    pub(super) range: u64,
}

impl Maker {
    pub(super) fn is_done(&self) -> bool {
        self.read_left == 0 && self.write_left == 0
    }

    pub(super) fn request(&mut self, op: Op, page: u64, pages: u64) {
        let left = match op {
            Op::Read => &mut self.read_left,
            Op::Write => &mut self.write_left,
        };
        let pages = pages.min(*left);
        *left -= pages;
        if pages > 0 {
            self.now += 50 + self.random.u64(..200);
            self.requests.push(Request {
                time: self.now,
                op,
                page,
                pages: pages as u32,
            });
        }
    }

    pub(super) fn write(&mut self, page: u64, pages: u64) {
        self.request(Op::Write, page, pages);
    }

    pub(super) fn read(&mut self, page: u64, pages: u64) {
        self.request(Op::Read, page, pages);
    }

    /// A random number of `range`; the first ones are most likely. It is the `skew`-th power of a
    /// uniform number, so 1 is uniform.
    pub(super) fn skewed(&mut self, range: Range<u64>, skew: f64) -> u64 {
        let width = range.end - range.start;
        let at = (self.random.f64().powf(skew) * width as f64) as u64;
        range.start + at.min(width - 1)
    }

    pub(super) fn chance(&mut self, probability: f64) -> bool {
        self.random.f64() < probability
    }

    /// Whether to read next, with the probability of the share of reads in the remaining work.
    pub(super) fn reads(&mut self) -> bool {
        let left = (self.read_left + self.write_left).max(1);
        self.chance(self.read_left as f64 / left as f64)
    }

    /// A region of `pages` pages at `*next`; moves `*next` behind it.
    pub(super) fn region(next: &mut u64, pages: u64) -> Range<u64> {
        let start = *next;
        *next += pages;
        start..*next
    }
}
