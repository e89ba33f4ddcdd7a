//! The table of open files: from the handle number that the kernel sends to the open file. It is
//! empty where files are opened without a request.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;

use crate::api::ops::Fh;

const SHARDS: usize = 16;

struct Shard<T> {
    slots: Vec<Option<T>>,
    free: Vec<usize>,
}

/// Open files by number. Numbers are reused after [`Handles::remove`].
pub(crate) struct Handles<T> {
    shards: [RwLock<Shard<T>>; SHARDS],
    next: AtomicUsize,
}

impl<T: Clone> Handles<T> {
    pub(crate) fn new() -> Handles<T> {
        Handles {
            shards: std::array::from_fn(|_| {
                RwLock::new(Shard {
                    slots: Vec::new(),
                    free: Vec::new(),
                })
            }),
            next: AtomicUsize::new(0),
        }
    }

    pub(crate) fn insert(&self, value: T) -> Fh {
        let at = self.next.fetch_add(1, Ordering::Relaxed) % SHARDS;
        let mut shard = self.shards[at].write();
        let slot = match shard.free.pop() {
            Some(slot) => {
                shard.slots[slot] = Some(value);
                slot
            }
            None => {
                shard.slots.push(Some(value));
                shard.slots.len() - 1
            }
        };
        Fh(NonZeroU64::MIN.saturating_add((slot * SHARDS + at) as u64))
    }

    fn place(fh: Fh) -> (usize, usize) {
        let n = usize::try_from(fh.0.get() - 1).unwrap_or(usize::MAX);
        (n % SHARDS, n / SHARDS)
    }

    pub(crate) fn get(&self, fh: Fh) -> Option<T> {
        let (at, slot) = Self::place(fh);
        self.shards[at].read().slots.get(slot)?.clone()
    }

    pub(crate) fn remove(&self, fh: Fh) -> Option<T> {
        let (at, slot) = Self::place(fh);
        let mut shard = self.shards[at].write();
        let value = shard.slots.get_mut(slot)?.take()?;
        shard.free.push(slot);
        Some(value)
    }

    /// Whether `is` holds for any value.
    pub(crate) fn any(&self, is: impl Fn(&T) -> bool) -> bool {
        let one = |shard: &RwLock<Shard<T>>| shard.read().slots.iter().flatten().any(&is);
        self.shards.iter().any(one)
    }

    /// Replaces every value by the result of `with`; stops at the first error, and drops the rest.
    pub(crate) fn replace_all<E>(&self, mut with: impl FnMut(T) -> Result<T, E>) -> Result<(), E> {
        let mut result = Ok(());
        for shard in &self.shards {
            for slot in &mut shard.write().slots {
                if let (Some(value), Ok(())) = (slot.take(), &result) {
                    match with(value) {
                        Ok(value) => *slot = Some(value),
                        Err(e) => result = Err(e),
                    }
                }
            }
        }
        result
    }

    /// Takes out all values.
    pub(crate) fn drain(&self) -> Vec<T> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.write();
            shard.free.clear();
            all.extend(std::mem::take(&mut shard.slots).into_iter().flatten());
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_finds_its_value_until_it_is_removed() {
        let table = Handles::new();
        let all: Vec<(Fh, usize)> = (0..100).map(|n| (table.insert(n), n)).collect();
        for (fh, n) in &all {
            assert_eq!(table.get(*fh), Some(*n));
        }
        assert_eq!(table.remove(all[7].0), Some(7));
        assert_eq!(table.get(all[7].0), None);
        assert_eq!(table.remove(all[7].0), None);
        let again: Vec<Fh> = (0..SHARDS).map(|n| table.insert(1000 + n)).collect();
        assert!(again.contains(&all[7].0), "a free number is used again");
        assert_eq!(table.get(Fh(NonZeroU64::MAX)), None);
        assert_eq!(table.drain().len(), 99 + SHARDS);
        assert_eq!(table.get(all[0].0), None);
    }
}
