//! Random changes of names.

use super::Generator;
use super::there::There;
use crate::workload::model::Kind;
use crate::workload::op::Op;

impl Generator {
    /// A free path. Some names are long, so that directories soon need several blocks.
    pub(super) fn new_path(&mut self, there: &There<'_>) -> String {
        loop {
            let n = self.rng.u32(0..self.bounds.names);
            let (often, repeat) = if self.bounds.long { (7, 48) } else { (3, 20) };
            let name = if self.rng.u8(0..8) < often {
                format!("n{n}{}", "-long".repeat(repeat))
            } else {
                format!("n{n}")
            };
            let path = match self.pick(&there.dirs) {
                Some(dir) if self.rng.u8(0..3) > 0 && dir.matches('/').count() < 3 => {
                    format!("{dir}/{name}")
                }
                _ => name,
            };
            if there.state.find(&path).is_none() {
                return path;
            }
        }
    }

    pub(super) fn create(&mut self, there: &There<'_>) -> Option<Op> {
        let path = self.new_path(there);
        let mode = *self.rng.choice(&[0o644, 0o600, 0o755])?;
        Some(Op::Create { path, mode })
    }

    pub(super) fn mkdir(&mut self, there: &There<'_>) -> Option<Op> {
        Some(Op::Mkdir {
            path: self.new_path(there),
            mode: 0o755,
        })
    }

    pub(super) fn symlink(&mut self, there: &There<'_>) -> Option<Op> {
        let target = "t".repeat(*self.rng.choice(&[5, 59, 60, 200, 900])?);
        let path = self.new_path(there);
        Some(Op::Symlink { path, target })
    }

    pub(super) fn unlink(&mut self, there: &There<'_>) -> Option<Op> {
        let path = self.pick(&there.others)?.clone();
        Some(Op::Unlink { path })
    }

    pub(super) fn rmdir(&mut self, there: &There<'_>) -> Option<Op> {
        let path = self.pick(&there.empty)?.clone();
        Some(Op::Rmdir { path })
    }

    pub(super) fn link(&mut self, there: &There<'_>) -> Option<Op> {
        let from = self.pick(&there.others)?.clone();
        let to = self.new_path(there);
        Some(Op::Link { from, to })
    }

    pub(super) fn rename(&mut self, there: &There<'_>) -> Option<Op> {
        let from = self.pick(&there.any)?.clone();
        let to = if self.rng.bool() {
            self.new_path(there)
        } else {
            self.pick(&there.any)?.clone()
        };
        let state = there.state;
        let into_itself =
            to.starts_with(&format!("{from}/")) || from.starts_with(&format!("{to}/"));
        let fits = match (state.node(&from), state.node(&to)) {
            (Some(_), None) => true,
            (Some(a), Some(b)) if state.find(&from) != state.find(&to) => {
                a.is_dir() == b.is_dir() && !matches!(&b.kind, Kind::Dir(e) if !e.is_empty())
            }
            _ => false,
        };
        (fits && !into_itself).then_some(Op::Rename { from, to })
    }

    pub(super) fn exchange(&mut self, there: &There<'_>) -> Option<Op> {
        let a = self.pick(&there.any)?.clone();
        let b = self.pick(&there.any)?.clone();
        let below = |a: &str, b: &str| a.starts_with(&format!("{b}/"));
        let same = there.state.find(&a) == there.state.find(&b);
        let free = !same && !below(&a, &b) && !below(&b, &a);
        free.then_some(Op::Exchange { a, b })
    }

    /// Opens a file.
    pub(super) fn hold(&mut self, there: &There<'_>) -> Option<Op> {
        Some(Op::Hold {
            path: self.pick(&there.files)?.clone(),
            held: there.state.free_number(),
        })
    }

    /// Opens a file, and unlinks it.
    pub(super) fn hold_unlink(&mut self, there: &There<'_>) -> Option<Op> {
        Some(Op::HoldUnlink {
            path: self.pick(&there.files)?.clone(),
            held: there.state.free_number(),
        })
    }

    /// Links a held file, if that is allowed.
    pub(super) fn link_held(&mut self, there: &There<'_>) -> Option<Op> {
        let from = self.rng.choice(there.held)?.clone();
        let to = self.new_path(there);
        let op = Op::Link { from, to };
        there.state.allows(&op).ok().map(|()| op)
    }

    pub(super) fn close(&mut self, there: &There<'_>) -> Option<Op> {
        let held = *self.rng.choice(there.state.held.keys())?;
        Some(Op::Close { held })
    }
}
