//! Each translation layer against a plain array, with power cuts at any step.
use std::collections::HashMap;

use stetfs_flash::ftl::{
    Ageing, Bast, Fast, Ftl, FtlError, FtlKind, Geometry, Merges, PAGE, PageMap, PhysOp,
    ShareLimits, Sink, Tally,
};

/// The content of a physical page: logical page, and number of the write.
type Content = (u32, u32);

/// The content of the flash, moved by the layer's steps.
#[derive(Default)]
struct Flash {
    pages: HashMap<u32, Content>,
    block_pages: u32,
    /// The number of the present write.
    version: u32,
    steps: u64,
}

impl Sink for Flash {
    fn op(&mut self, op: PhysOp) {
        self.steps += 1;
        match op {
            PhysOp::Read { page } => {
                assert!(self.pages.contains_key(&page), "page {page} is erased")
            }
            PhysOp::Program { page, lpn } => {
                let old = self.pages.insert(page, (lpn, self.version));
                assert_eq!(old, None, "page {page} was not erased");
            }
            PhysOp::Copy { from, to } => {
                let content = self.pages[&from];
                assert_eq!(
                    self.pages.insert(to, content),
                    None,
                    "page {to} was not erased"
                );
            }
            PhysOp::Erase { block } => {
                let first = block * self.block_pages;
                (first..first + self.block_pages).for_each(|p| {
                    self.pages.remove(&p);
                });
            }
            PhysOp::ProgramMap | PhysOp::EraseMap => {}
        }
    }
}

/// A layer, its flash, and the expected content of each logical page (`None`: zeros).
struct World {
    ftl: Box<dyn Ftl>,
    flash: Flash,
    model: Vec<Option<Content>>,
    /// Other possible content of pages after a restart, because of unflushed trims.
    trimmed: HashMap<u64, Vec<Option<Content>>>,
}

impl World {
    fn new(ftl: Box<dyn Ftl>) -> World {
        World {
            flash: Flash {
                block_pages: ftl.geometry().block_pages,
                ..Flash::default()
            },
            model: vec![None; ftl.capacity() as usize],
            trimmed: HashMap::new(),
            ftl,
        }
    }

    fn now(&self, lpn: u64) -> Option<Content> {
        self.ftl.lookup(lpn).map(|page| self.flash.pages[&page])
    }

    #[track_caller]
    fn compare(&self) {
        self.ftl.check().unwrap();
        for (lpn, want) in (0..).zip(&self.model) {
            assert_eq!(self.now(lpn), *want, "page {lpn}");
        }
    }

    fn write(&mut self, lpn: u64, n: u64) {
        self.flash.version += 1;
        self.ftl.write(lpn, n, &mut self.flash).unwrap();
        for lpn in lpn..lpn + n {
            self.model[lpn as usize] = Some((lpn as u32, self.flash.version));
            self.trimmed.remove(&lpn);
        }
    }

    fn trim(&mut self, lpn: u64, n: u64) {
        self.ftl.trim(lpn, n, &mut self.flash).unwrap();
        for lpn in lpn..lpn + n {
            let old = std::mem::take(&mut self.model[lpn as usize]);
            self.trimmed.entry(lpn).or_default().push(old);
        }
    }

    fn flush(&mut self) {
        self.ftl.flush(&mut self.flash);
        self.trimmed.clear();
    }

    fn share(&mut self, pairs: &[(u64, u64)]) -> Result<(), FtlError> {
        let before = self.model.clone();
        self.ftl.sharing().unwrap().share(pairs, &mut self.flash)?;
        if !pairs.is_empty() {
            self.trimmed.clear();
        }
        for (dst, src) in pairs {
            self.model[*dst as usize] = before[*src as usize];
        }
        Ok(())
    }

    /// Cuts the power between two requests.
    fn restart(&mut self) {
        self.ftl.restart(&mut self.flash);
        self.ftl.check().unwrap();
        for (lpn, others) in std::mem::take(&mut self.trimmed) {
            let now = self.now(lpn);
            let model = &mut self.model[lpn as usize];
            assert!(
                now == *model || others.contains(&now),
                "page {lpn}: {now:?}"
            );
            *model = now;
        }
        self.compare();
    }

    /// Cuts the power within `request`, after `steps` steps, and again in the restart, after
    /// `again` steps. Each page that the request changes is then old or new.
    fn cut(
        &mut self,
        steps: u64,
        again: Option<u64>,
        request: impl FnOnce(&mut World),
    ) -> (Vec<Option<Content>>, Vec<Option<Content>>) {
        let before = self.model.clone();
        let trimmed = self.trimmed.clone();
        self.ftl.cut_after(steps);
        request(self);
        let after = self.model.clone();
        if let Some(again) = again {
            self.ftl.cut_after(again);
            self.ftl.restart(&mut self.flash);
        }
        self.ftl.restart(&mut self.flash);
        self.ftl.check().unwrap();
        let now: Vec<_> = (0..).take(before.len()).map(|lpn| self.now(lpn)).collect();
        for (lpn, now) in (0..).zip(&now) {
            let at = lpn as usize;
            let before_that = [trimmed.get(&lpn), self.trimmed.get(&lpn)];
            let earlier = before_that.into_iter().flatten().any(|o| o.contains(now));
            let right = *now == before[at] || *now == after[at] || earlier;
            assert!(
                right,
                "page {lpn}: {now:?}, {:?} before, {:?} after",
                before[at], after[at]
            );
        }
        self.model = now;
        self.trimmed.clear();
        (before, after)
    }
}

/// A geometry of `pages` pages in blocks of `block_pages`, with `spare` percent of spare blocks.
fn geometry(pages: u64, block_pages: u64, spare: u32) -> Geometry {
    Geometry::new(pages * PAGE, block_pages * PAGE, spare).unwrap()
}

/// Small devices of all kinds; some have a partial last block.
fn layers() -> Vec<Box<dyn Ftl>> {
    let sizes = [(64, 4, 15), (100, 8, 30), (37, 2, 0), (48, 16, 100)];
    let each = |(pages, block, spare)| {
        let geometry = geometry(pages, block, spare);
        let few = ShareLimits {
            pairs: 5,
            references: 3,
        };
        let limited = PageMap::new(geometry).with_limits(few);
        let all: [Box<dyn Ftl>; 6] = [
            Box::new(PageMap::new(geometry)),
            Box::new(Fast::new(geometry)),
            Box::new(Fast::new(geometry).with_log(1)),
            Box::new(Bast::new(geometry, 1)),
            Box::new(Bast::new(geometry, 4)),
            Box::new(limited),
        ];
        all
    };
    sizes.into_iter().flat_map(each).collect()
}

/// A range of pages: mostly short, sometimes whole blocks in sequence.
fn run(rng: &mut fastrand::Rng, capacity: u64) -> (u64, u64) {
    let lpn = rng.u64(..capacity);
    let n = if rng.u8(..4) == 0 {
        rng.u64(..40)
    } else {
        rng.u64(1..4)
    };
    // Half of the ranges begin at a block boundary.
    let lpn = if rng.bool() { lpn / 8 * 8 } else { lpn };
    (lpn, n.min(capacity - lpn))
}

fn pairs(rng: &mut fastrand::Rng, world: &World) -> Vec<(u64, u64)> {
    let capacity = world.ftl.capacity();
    let n = rng.usize(..7);
    (0..n)
        .map(|_| (rng.u64(..capacity), rng.u64(..capacity)))
        .collect()
}

/// Runs a random request; a refused share must have changed nothing.
fn step(rng: &mut fastrand::Rng, world: &mut World) -> Option<Vec<(u64, u64)>> {
    let (lpn, n) = run(rng, world.ftl.capacity());
    match rng.u8(..16) {
        0..9 => world.write(lpn, n),
        9..11 => world.trim(lpn, n),
        11 => world.flush(),
        12..16 if world.ftl.sharing().is_some() => {
            let pairs = pairs(rng, world);
            if world.share(&pairs).is_ok() {
                return Some(pairs);
            }
        }
        _ => world.write(lpn, n),
    }
    None
}

#[test]
fn every_layer_is_an_array() {
    for seed in 0..40 {
        for ftl in layers() {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut world = World::new(ftl);
            for _ in 0..300 {
                step(&mut rng, &mut world);
                world.compare();
                if rng.u8(..20) == 0 {
                    world.restart();
                }
            }
            let counters = world.ftl.counters();
            assert!(counters.erases > 0 && counters.waf() >= 1.0);
        }
    }
}

#[test]
fn the_power_goes_at_any_step() {
    for seed in 0..60 {
        for ftl in layers() {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut world = World::new(ftl);
            for _ in 0..150 {
                if rng.u8(..3) > 0 {
                    step(&mut rng, &mut world);
                    continue;
                }
                let mut shared = None;
                let (steps, again) = (rng.u64(..12), rng.bool().then(|| rng.u64(..6)));
                let request = |world: &mut World| shared = step(&mut rng, world);
                let (before, after) = world.cut(steps, again, request);
                // A batch is shared whole or not at all.
                let Some(pairs) = shared else {
                    continue;
                };
                let changed = pairs.iter().map(|(dst, _)| *dst as usize);
                let changed: Vec<_> = changed.filter(|at| before[*at] != after[*at]).collect();
                let new = changed.iter().filter(|at| world.model[**at] == after[**at]);
                let new = new.count();
                assert!(
                    new == 0 || new == changed.len(),
                    "{new} of {}",
                    changed.len()
                );
            }
            world.compare();
        }
    }
}

#[test]
fn limits_are_told_apart() {
    let limits = ShareLimits {
        pairs: 4,
        references: 3,
    };
    let mut ftl = PageMap::new(geometry(64, 4, 15)).with_limits(limits);
    ftl.write(0, 10, &mut ()).unwrap();
    let mut share = |pairs: &[(u64, u64)]| ftl.sharing().unwrap().share(pairs, &mut ());
    let five: Vec<_> = (0..5).map(|i| (20 + i, i)).collect();
    assert_eq!(
        share(&five),
        Err(FtlError::TooManyPairs { pairs: 5, limit: 4 })
    );
    assert_eq!(share(&five[..4]), Ok(()));
    // Page 0 has two references.
    let too_many = Err(FtlError::TooManyReferences { lpn: 0, limit: 3 });
    assert_eq!(share(&[(30, 0), (31, 0)]), too_many);
    assert_eq!(share(&[(30, 0)]), Ok(()));
    assert_eq!(share(&[(31, 0)]), too_many);
    // Sharing the same pages again adds no reference.
    assert_eq!(share(&[(30, 0), (20, 0)]), Ok(()));
    assert_eq!(
        share(&[(40, 1), (40, 2)]),
        Err(FtlError::Overlap { lpn: 40 })
    );
    assert_eq!(
        share(&[(40, 1), (41, 40)]),
        Err(FtlError::Overlap { lpn: 40 })
    );
    assert!(matches!(
        share(&[(64, 0)]),
        Err(FtlError::OutOfRange { lpn: 64, .. })
    ));
    assert_eq!(ftl.references(), 5);
    // A written page is no longer shared.
    ftl.write(0, 1, &mut ()).unwrap();
    assert_eq!(ftl.references(), 4);
    ftl.check().unwrap();
}

#[test]
fn a_long_log_of_shares_is_folded_into_the_table() {
    let mut world = World::new(Box::new(PageMap::new(geometry(64, 4, 15))));
    world.write(0, 40);
    let mut rng = fastrand::Rng::with_seed(3);
    for i in 0..1500 {
        let (dst, src) = (rng.u64(..64), rng.u64(..64));
        // The layer refuses a share of a page with itself, and one beyond the limit of references.
        let _ = world.share(&[(dst, src)]);
        if i % 7 == 0 {
            world.write(rng.u64(..64), 1);
        }
        if i % 50 == 0 {
            world.restart();
        }
    }
    let counters = world.ftl.counters();
    assert!(
        counters.map_programs > 1000 && counters.map_erases > 200,
        "{counters:?}"
    );
    world.compare();
}

#[test]
fn what_fast_merges_is_counted_by_kind() {
    let mut fast = Fast::new(geometry(64, 4, 50));
    fast.write(0, 64, &mut ()).unwrap();
    assert_eq!(fast.counters().waf(), 1.0);
    // A complete sequence is switched in.
    fast.write(0, 4, &mut ()).unwrap();
    fast.write(4, 2, &mut ()).unwrap();
    assert_eq!(
        (fast.counters().merges.switch, fast.counters().moved),
        (1, 0)
    );
    // Half a sequence is completed.
    fast.write(8, 1, &mut ()).unwrap();
    assert_eq!(
        (fast.counters().merges.partial, fast.counters().moved),
        (1, 2)
    );
    // A write beyond the next page ends a sequence: the other three pages are moved, and the
    // written page goes to the log.
    fast.write(10, 1, &mut ()).unwrap();
    assert_eq!(
        (fast.counters().merges.partial, fast.counters().moved),
        (2, 5)
    );
    fast.write(9, 1, &mut ()).unwrap();
    assert_eq!(fast.counters().merges.partial, 2);
    // Five log blocks of four pages, each page of another logical block.
    for i in 0..32 {
        fast.write(i * 4 % 64 + 2 + i / 16, 1, &mut ()).unwrap();
    }
    let counters = fast.counters();
    assert!(counters.merges.full >= 4, "{counters:?}");
    assert_eq!(counters.programs, counters.host_writes + counters.moved);
    fast.check().unwrap();
}

#[test]
fn what_bast_merges_is_counted_by_kind() {
    let mut bast = Bast::new(geometry(64, 4, 50), 2);
    let merges = |bast: &Bast| {
        let Merges {
            full,
            partial,
            switch,
        } = bast.counters().merges;
        (full, partial, switch, bast.counters().moved)
    };
    let write = |bast: &mut Bast, lpn, n| bast.write(lpn, n, &mut ()).unwrap();
    write(&mut bast, 0, 64);
    assert_eq!((merges(&bast), bast.counters().erases), ((0, 0, 0, 0), 0));
    // A complete sequence is switched in at once.
    write(&mut bast, 0, 4);
    assert_eq!((merges(&bast), bast.counters().erases), ((0, 0, 1, 0), 1));
    // Two logical blocks have log blocks, and keep them however their writes alternate.
    write(&mut bast, 0, 2);
    write(&mut bast, 4, 1);
    write(&mut bast, 2, 1);
    assert_eq!(merges(&bast), (0, 0, 1, 0));
    // A third one needs one: that of pages 4 to 7 was written last before the other, and is
    // completed.
    write(&mut bast, 9, 1);
    assert_eq!((merges(&bast), bast.counters().erases), ((0, 1, 1, 3), 2));
    // The one of pages 0 to 3 is completed next, then the one whose page 9 is out of place is put
    // together with its data block: all four pages are moved, and two blocks erased.
    write(&mut bast, 13, 1);
    assert_eq!((merges(&bast), bast.counters().erases), ((0, 2, 1, 4), 3));
    write(&mut bast, 17, 1);
    assert_eq!((merges(&bast), bast.counters().erases), ((1, 2, 1, 8), 5));
    // The fifth write of one page finds its log block full.
    (0..5).for_each(|_| write(&mut bast, 17, 1));
    assert_eq!(merges(&bast), (2, 2, 1, 12));
    assert_eq!(bast.counters().collections, 3);
    bast.check().unwrap();
}

/// FAST's log takes pages of all logical blocks; BAST's costs a merge for each logical block beyond
/// the number of its log blocks.
#[test]
fn bast_pays_for_each_further_logical_block() {
    let moved = |mut ftl: Box<dyn Ftl>, blocks: u64| {
        ftl.write(0, 64 * 16, &mut ()).unwrap();
        // Each round writes another page in each of the logical blocks.
        for round in 1..8 {
            (0..blocks).for_each(|b| ftl.write(b * 16 + round, 1, &mut ()).unwrap());
        }
        ftl.check().unwrap();
        ftl.counters().moved
    };
    let geometry = geometry(64 * 16, 16, 50);
    assert_eq!(moved(Box::new(Fast::new(geometry)), 5), 0);
    assert_eq!(moved(Box::new(Bast::new(geometry, 5)), 5), 0);
    // 35 writes, of which all but the last four lose their log block.
    assert_eq!(moved(Box::new(Bast::new(geometry, 4)), 5), 31 * 16);
}

/// The power goes after each step of each kind of merge, and then again in the restart's own steps.
#[test]
fn a_merge_of_bast_is_cut_at_each_step() {
    // Pages of the first logical block that are in its log block before another one needs it.
    for log in [&[0u64, 1][..], &[0, 1, 2], &[2, 0, 2], &[1], &[0, 0, 3, 3]] {
        for steps in 0..16 {
            for again in 0..8 {
                let mut world = World::new(Box::new(Bast::new(geometry(16, 4, 100), 1)));
                world.write(0, 16);
                log.iter().for_each(|page| world.write(*page, 1));
                world.trim(3, 1);
                world.cut(steps, Some(again), |world| world.write(9, 1));
                world.write(0, 16);
                world.compare();
            }
        }
    }
}

#[test]
fn whole_blocks_cost_nothing_more_and_wear_is_even() {
    for kind in FtlKind::ALL {
        let mut ftl = kind.make(geometry(4096, 64, 15));
        let mut tally = Tally::default();
        Ageing::FULL.run(&mut *ftl, &mut tally).unwrap();
        let aged = ftl.counters();
        assert_eq!(aged.host_writes, 8192);
        assert!(aged.waf() > 1.0, "{kind:?}");
        if matches!(kind, FtlKind::Bast { .. }) {
            // A log block that begins with a single page ends within each whole block, and stays
            // until another logical block needs one.
            ftl.trim(0, 4096, &mut ()).unwrap();
        }
        // These writes remove the remaining single pages.
        (0..4).for_each(|_| ftl.write(0, 4096, &mut ()).unwrap());
        let before = ftl.counters();
        let mut rng = fastrand::Rng::with_seed(1);
        (0..1000).for_each(|_| ftl.write(rng.u64(..64) * 64, 64, &mut ()).unwrap());
        let during = ftl.counters().since(&before);
        assert!(during.waf() < 1.01, "{kind:?}: {during:?}");
        let wear = stetfs_flash::ftl::Wear::of(&ftl.blocks());
        assert!(f64::from(wear.most) < 3.0 * wear.mean, "{kind:?}: {wear:?}");
        assert_eq!((tally.programs, tally.copies), (8192, aged.moved));
    }
}
