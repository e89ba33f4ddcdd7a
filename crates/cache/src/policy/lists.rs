//! Doubly linked lists of slots, as indices in one vector: every step is O(1), and only new slots
//! allocate.

/// `N` circular lists. A slot is in one of them at most.
pub(super) struct Lists<const N: usize> {
    /// The first `N` places are the heads; slot `s` is at `N + s`. A slot that is in no list
    /// points at itself.
    links: Vec<Link>,
}

#[derive(Clone, Copy)]
struct Link {
    next: u32,
    prev: u32,
}

impl<const N: usize> Lists<N> {
    pub(super) fn new() -> Lists<N> {
        let mut lists = Lists { links: Vec::new() };
        lists.grow(N);
        lists
    }

    fn grow(&mut self, len: usize) {
        for at in self.links.len()..len {
            let at = at as u32;
            self.links.push(Link { next: at, prev: at });
        }
    }

    fn at(slot: u32) -> usize {
        slot as usize + N
    }

    fn slot(at: u32) -> Option<u32> {
        at.checked_sub(N as u32)
    }

    /// Puts `slot` between `before` and its successor.
    fn link(&mut self, slot: u32, before: usize) {
        let at = Self::at(slot);
        self.grow(at + 1);
        let next = self.links[before].next;
        self.links[at] = Link {
            next,
            prev: before as u32,
        };
        self.links[before].next = at as u32;
        self.links[next as usize].prev = at as u32;
    }

    /// Puts `slot` at the front of `list`.
    pub(super) fn push_front(&mut self, list: usize, slot: u32) {
        self.link(slot, list);
    }

    /// Puts `slot` in front of `of`, or at the back of `list` when there is none.
    pub(super) fn push_before(&mut self, list: usize, slot: u32, of: Option<u32>) {
        let of = of.map_or(list, Self::at);
        self.link(slot, self.links[of].prev as usize);
    }

    /// Puts `slot` behind `of`, or at the front of `list` when there is none.
    pub(super) fn push_after(&mut self, list: usize, slot: u32, of: Option<u32>) {
        self.link(slot, of.map_or(list, Self::at));
    }

    /// Takes `slot` out of its list.
    pub(super) fn remove(&mut self, slot: u32) {
        let at = Self::at(slot);
        let Some(Link { next, prev }) = self.links.get(at).copied() else {
            return;
        };
        self.links[prev as usize].next = next;
        self.links[next as usize].prev = prev;
        let at = at as u32;
        self.links[at as usize] = Link { next: at, prev: at };
    }

    pub(super) fn front(&self, list: usize) -> Option<u32> {
        Self::slot(self.links[list].next)
    }

    pub(super) fn back(&self, list: usize) -> Option<u32> {
        Self::slot(self.links[list].prev)
    }

    /// The neighbour towards the back.
    pub(super) fn next(&self, slot: u32) -> Option<u32> {
        Self::slot(self.links[Self::at(slot)].next)
    }

    /// The neighbour towards the front.
    pub(super) fn prev(&self, slot: u32) -> Option<u32> {
        Self::slot(self.links[Self::at(slot)].prev)
    }

    /// The next slot, continuing at the front after the end of `list`.
    pub(super) fn next_around(&self, list: usize, slot: u32) -> Option<u32> {
        self.next(slot).or_else(|| self.front(list))
    }

    /// The slots of `list` from the back to the front.
    pub(super) fn backwards(&self, list: usize) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(self.back(list), |slot| self.prev(*slot))
    }
}

/// A value for each slot, the default for slots not seen yet.
pub(super) struct PerSlot<T>(Vec<T>);

impl<T: Copy + Default> PerSlot<T> {
    pub(super) fn new() -> PerSlot<T> {
        PerSlot(Vec::new())
    }

    pub(super) fn get(&self, slot: u32) -> T {
        self.0.get(slot as usize).copied().unwrap_or_default()
    }

    pub(super) fn at(&mut self, slot: u32) -> &mut T {
        let slot = slot as usize;
        if slot >= self.0.len() {
            self.0.resize(slot + 1, T::default());
        }
        &mut self.0[slot]
    }
}
