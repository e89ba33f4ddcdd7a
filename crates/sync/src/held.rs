//! The ranks that the calling thread holds (debug builds only).

use crate::rank::Rank;

#[cfg(debug_assertions)]
mod check {
    use crate::rank::Rank;
    use std::cell::RefCell;

    crate::plain::thread_local! {
        static HELD: RefCell<Vec<Rank>> = const { RefCell::new(Vec::new()) };
    }

    pub(super) fn push(rank: Rank, nested: bool, checked: bool) {
        HELD.with(|held| {
            let mut held = held.borrow_mut();
            if checked && let Some(top) = held.iter().max() {
                let fine = if nested { *top <= rank } else { *top < rank };
                assert!(fine, "lock order: {rank:?} taken while {top:?} is held");
            }
            held.push(rank);
        });
    }

    pub(super) fn pop(rank: Rank) {
        HELD.with(|held| {
            let mut held = held.borrow_mut();
            if let Some(at) = held.iter().rposition(|r| *r == rank) {
                held.remove(at);
            }
        });
    }
}

/// A mark that this thread holds something of a rank, until dropped. It serves things that order
/// like a lock without being one, such as a journal handle. It must be dropped by the thread that
/// made it.
pub struct Held {
    #[cfg(debug_assertions)]
    rank: Rank,
    /// Not `Send`: ranks are counted per thread.
    _thread: std::marker::PhantomData<*const ()>,
}

impl Held {
    #[cfg_attr(not(debug_assertions), allow(unused_variables))]
    pub(crate) fn unchecked(rank: Rank) -> Held {
        #[cfg(debug_assertions)]
        check::push(rank, true, false);
        Held {
            #[cfg(debug_assertions)]
            rank,
            _thread: std::marker::PhantomData,
        }
    }
}

/// Marks that this thread holds `rank`. With `nested`, others of the same rank may be held.
///
/// # Panics
/// In debug builds, when something of a later rank is held.
#[cfg_attr(not(debug_assertions), allow(unused_variables))]
pub fn hold(rank: Rank, nested: bool) -> Held {
    #[cfg(debug_assertions)]
    check::push(rank, nested, true);
    Held {
        #[cfg(debug_assertions)]
        rank,
        _thread: std::marker::PhantomData,
    }
}

#[cfg(debug_assertions)]
impl Drop for Held {
    fn drop(&mut self) {
        check::pop(self.rank);
    }
}
