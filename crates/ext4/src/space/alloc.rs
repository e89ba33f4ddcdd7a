//! Allocation of blocks: at a goal, in the file's window, or in the nearest long run.

use stetfs_journal::Handle;
use stetfs_ondisk::ext4::bitmap;

use super::allocator::Allocator;
use super::bitmaps::Bitmap;
use super::group::{Counts, GroupState};
use super::parts::Around;
use super::scan::{FreeMap, Overlay, find_run};
use super::window::Sizes;
use super::{AllocFor, BlockRun};
use crate::content;
use crate::error::{FsError, Result};
use crate::state::inode::Inode;
use crate::types::{BlockNr, Ino};

/// The number of bitmaps that one pass searches for a long run before it accepts a shorter one.
const LOOKS: usize = 4;

/// The size of the pieces of a long write, bytes: more data may follow a write of this size.
const WHOLE_WRITE: usize = 1 << 20;

/// The request of one allocation.
struct Ask<'a> {
    inode: &'a Inode,
    /// The longest run to return, clusters.
    want: u32,
    purpose: AllocFor,
}

impl Ask<'_> {
    /// The owner of the window that may be used. Metadata keeps off its own file's window, too.
    fn owner(&self) -> Option<u32> {
        (self.purpose == AllocFor::Data).then_some(self.inode.ino)
    }
}

impl Allocator {
    /// Allocates up to `want` clusters (blocks, without `bigalloc`) in one run: at `goal` if that
    /// is free, else in the file's window, else in the nearest long run (`parts`). Marks the
    /// clusters in use in `h` (`credits::ALLOC_BLOCKS`, one more in a group that was never used).
    /// Clusters for [`AllocFor::Later`] are not marked, only kept from other files. The caller has
    /// reserved the space.
    ///
    /// # Errors
    /// ENOSPC when no block is free.
    pub(crate) fn alloc_blocks(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        goal: Option<BlockNr>,
        want: u32,
        purpose: AllocFor,
    ) -> Result<BlockRun> {
        inode.check_alive()?;
        let ask = Ask {
            inode,
            want: want.max(1),
            purpose,
        };
        let goal = goal.and_then(|nr| self.group_of(nr).ok());
        if let Some((group, bit)) = goal
            && self.groups.available(group) > 0
            && let Some(run) = self.alloc_at(h, group, bit, &ask)?
        {
            return Ok(run);
        }
        if purpose == AllocFor::Data
            && let Some(run) = self.alloc_in_window(h, &ask)?
        {
            return Ok(run);
        }
        if purpose == AllocFor::Data {
            self.leave_window(inode);
        }
        let (group, bit) = goal.unwrap_or_else(|| (self.home_group(inode), 0));
        let around = self.around(h, group);
        let bit = if around.first == group { bit } else { 0 };
        self.alloc_near(h, &around, bit, &ask)
    }

    /// The group in which a file without blocks begins: the group of its inode.
    fn home_group(&self, inode: &Inode) -> u32 {
        self.vol
            .geo
            .layout
            .locate_inode(inode.ino)
            .map_or(0, |(g, _)| g)
    }

    /// A run that begins exactly at `bit`, if that is free and in no other file's window.
    fn alloc_at(
        &self,
        h: &Handle<'_>,
        group: u32,
        bit: u32,
        ask: &Ask<'_>,
    ) -> Result<Option<BlockRun>> {
        self.in_group(h, group, ask, |map, st| {
            let end = map.run_end(bit, bit.saturating_add(ask.want));
            let end = st.windows.limit(ask.owner(), bit, end);
            (end > bit).then_some((bit, end))
        })
    }

    /// A run from the start of the file's window.
    fn alloc_in_window(&self, h: &Handle<'_>, ask: &Ask<'_>) -> Result<Option<BlockRun>> {
        let Some(group) = ask.inode.window.lock().group else {
            return Ok(None);
        };
        self.in_group(h, group, ask, |map, st| {
            let (start, end) = st.windows.of(ask.inode.ino)?;
            let start = map.next_free(start, end)?;
            Some((
                start,
                map.run_end(start, end.min(start.saturating_add(ask.want))),
            ))
        })
    }

    /// The best run near `bit` of the first group: first a run with room for a window, then half as
    /// long a run, and so on; at last any block, also out of windows of other files. Of the long
    /// runs, the nearest group's is taken at any distance. But a file that has no window yet first
    /// looks in the group of its directory.
    fn alloc_near(
        &self,
        h: &Handle<'_>,
        around: &Around,
        bit: u32,
        ask: &Ask<'_>,
    ) -> Result<BlockRun> {
        let mut need = ask.want;
        if ask.purpose == AllocFor::Data {
            let window = ask.inode.window.lock();
            need = need.max(window.size(self.window_sizes()));
            if window.is_first() {
                drop(window);
                for need in [need, ask.want] {
                    if let Some(run) = self.alloc_in(h, around.first, bit, need, ask)? {
                        return Ok(run);
                    }
                }
            }
        }
        loop {
            if let Some(run) = self.alloc_pass(h, around, bit, need, ask)? {
                return Ok(run);
            }
            if need <= 1 {
                break;
            }
            need = (need / 2).min(self.groups.longest_of_all()).max(1);
        }
        self.alloc_stealing(h, around, ask)?
            .ok_or(FsError::Errno(libc::ENOSPC))
    }

    fn window_sizes(&self) -> Sizes {
        Sizes::new(self.vol.geo.cluster_size(), self.groups.free_blocks())
    }

    /// Searches the groups that may have a run of `need` blocks.
    fn alloc_pass(
        &self,
        h: &Handle<'_>,
        around: &Around,
        bit: u32,
        need: u32,
        ask: &Ask<'_>,
    ) -> Result<Option<BlockRun>> {
        let mut looks = 0;
        for groups in around.ranges() {
            let mut at = groups.start;
            while let Some(group) = self.groups.next_with_run(at, need)
                && group < groups.end
            {
                if looks == LOOKS {
                    return Ok(None);
                }
                looks += 1;
                let from = if group == around.first { bit } else { 0 };
                if let Some(run) = self.alloc_in(h, group, from, need, ask)? {
                    return Ok(Some(run));
                }
                at = group + 1;
            }
        }
        Ok(None)
    }

    /// A run of `need` blocks in this group, from `from` on if possible.
    fn alloc_in(
        &self,
        h: &Handle<'_>,
        group: u32,
        from: u32,
        need: u32,
        ask: &Ask<'_>,
    ) -> Result<Option<BlockRun>> {
        if self.groups.longest(group) < need {
            return Ok(None);
        }
        self.in_group(h, group, ask, |map, st| {
            let avoid = st.windows.avoid(ask.owner());
            let found = find_run(map, &avoid, (st.first_free, from), need, ask.want);
            match found.filter(|(start, end)| end - start >= need) {
                Some((start, end)) => Some((start, end.min(start.saturating_add(ask.want)))),
                None => {
                    st.longest = map.longest();
                    None
                }
            }
        })
    }

    /// Takes blocks out of the windows of other files, when no other blocks are left.
    fn alloc_stealing(
        &self,
        h: &Handle<'_>,
        around: &Around,
        ask: &Ask<'_>,
    ) -> Result<Option<BlockRun>> {
        for group in around.ranges().into_iter().flatten() {
            if self.groups.available(group) == 0 {
                continue;
            }
            let run = self.in_group(h, group, ask, |map, st| {
                let (start, end) = find_run(map, &[], (st.first_free, 0), ask.want, ask.want)?;
                let end = end.min(start.saturating_add(ask.want));
                st.windows.steal(start, end, None);
                Some((start, end))
            })?;
            if run.is_some() {
                return Ok(run);
            }
        }
        Ok(None)
    }

    /// Locks a group, lets `choose` pick a run of free bits, and takes it. A group with a damaged
    /// bitmap is reported, and not used from then on.
    fn in_group(
        &self,
        h: &Handle<'_>,
        group: u32,
        ask: &Ask<'_>,
        choose: impl FnOnce(&FreeMap<'_>, &mut GroupState) -> Option<(u32, u32)>,
    ) -> Result<Option<BlockRun>> {
        let mut guard = self.groups.lock(group)?;
        let st = &mut *guard;
        let before = Counts::of(st);
        let bitmap = match self.block_bitmap(h, group, st) {
            Ok(bitmap) => bitmap,
            Err(e @ FsError::Corrupt { .. }) => {
                self.out_of_use(group, before, guard, &e);
                return Ok(None);
            }
            Err(e) => return Err(e),
        };
        let page = content::page(&bitmap.block)?;
        let clusters = self.vol.geo.layout.group_clusters(group);
        let pending = st.pending.take();
        let map = FreeMap::new(&page, pending.as_deref(), clusters);
        // Clusters before `first_free` are in use: later searches skip them until one becomes free.
        st.first_free = map.next_free(st.first_free, clusters).unwrap_or(clusters);
        let chosen = choose(&map, st);
        self.groups.cost.count(&map);
        st.pending = pending;
        // The snapshot must go before the change, or the change would copy the page.
        drop(page);
        let taken = match chosen {
            Some((start, end)) if end > start => {
                if ask.purpose == AllocFor::Later {
                    Overlay::of(&mut st.pending, clusters).insert(start, end - start);
                } else {
                    self.mark_in_use(h, (group, &mut *st), &bitmap, (start, end), ask)?;
                }
                Some(BlockRun {
                    start: self.vol.geo.layout.group_first_block(group)
                        + u64::from(start) * u64::from(self.vol.geo.ratio()),
                    len: (end - start) * self.vol.geo.ratio(),
                })
            }
            _ => None,
        };
        self.groups.publish(group, before, st)?;
        Ok(taken)
    }

    /// Marks clusters of a group in use in its bitmap.
    fn mark_in_use(
        &self,
        h: &Handle<'_>,
        (group, st): (u32, &mut GroupState),
        Bitmap { block, desc }: &Bitmap,
        (start, end): (u32, u32),
        ask: &Ask<'_>,
    ) -> Result<()> {
        {
            let mut map = h.modify(block)?;
            bitmap::set_range(&mut map, start as usize..end as usize);
            st.desc
                .set_free_clusters(st.desc.free_clusters().saturating_sub(end - start));
            self.note_block_bitmap(st, &map);
            self.move_window(group, st, &map, (start, end), ask);
        }
        if self.vol.opts.canary.unlogged_bitmap {
            h.leave_out(block);
        }
        self.write_desc(h, group, st, desc.as_ref())
    }

    /// Keeps the free blocks behind the run `taken`, which was just allocated, for the same file.
    fn move_window(
        &self,
        group: u32,
        st: &mut GroupState,
        map: &[u8],
        taken: (u32, u32),
        ask: &Ask<'_>,
    ) {
        let ino = ask.inode.ino;
        if ask.purpose != AllocFor::Data {
            return;
        }
        let mut mine = ask.inode.window.lock();
        if mine.waits || mine.group.is_some_and(|g| g != group) {
            // A second write position (for example the start of a sparse file) leaves the window
            // where it is.
            return;
        }
        let (start, end) = match st.windows.of(ino) {
            // The run is inside the window: the part behind the run stays.
            Some((a, b)) if taken.0 >= a && taken.1 < b => (taken.1, b),
            Some((a, b)) if taken.1 <= a || taken.0 > b => return,
            // The window is used up, or the file continues elsewhere: the free blocks behind the
            // run.
            _ => {
                let size = mine.grow(self.window_sizes());
                let clusters = self.vol.geo.layout.group_clusters(group);
                let free = FreeMap::new(map, st.pending.as_deref(), clusters);
                let end = free.run_end(taken.1, taken.1.saturating_add(size));
                (taken.1, st.windows.limit(Some(ino), taken.1, end))
            }
        };
        mine.group = st.windows.set(ino, start, end).then_some(group);
    }

    /// Gives up a window that is no longer useful. The next window keeps the size that was planned.
    fn leave_window(&self, inode: &Inode) {
        let group = inode.window.lock().group.take();
        if let Some(group) = group
            && let Ok(mut st) = self.groups.lock(group)
        {
            st.windows.set(inode.ino, 0, 0);
        }
    }

    /// Called before `len` bytes are written to a file of `size` bytes that is not open here. Such
    /// a file gets a window only when it grows by more than one write, because most files end with
    /// their first write.
    pub(crate) fn plan_window(&self, inode: &Inode, size: u64, len: usize) {
        inode.window.lock().waits = size == 0 && len < WHOLE_WRITE;
    }

    /// Called after such a write. Returns the file whose window was unused for the longest time and
    /// is to be released, if there are too many.
    pub(crate) fn oldest_window(&self, inode: &Inode) -> Option<Ino> {
        if inode.window.lock().is_none() {
            return None;
        }
        self.groups.unheld.written(inode.ino)
    }

    /// Releases the space set aside for a file: at its last close, and when it leaves memory.
    pub(crate) fn release_window(&self, inode: &Inode) {
        self.leave_window(inode);
        let mut window = inode.window.lock();
        window.next = 0;
        window.waits = false;
    }
}
