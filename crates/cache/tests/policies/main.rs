//! Every policy against a slow, obvious version of itself, over random uses, write-backs and
//! removals.
#![allow(clippy::unwrap_used, unreachable_pub, missing_docs)]

mod slow_blocks;
mod slow_clocks;
mod slow_costs;
mod slow_lists;

use std::collections::BTreeMap;

use proptest::prelude::*;
use stetfs_cache::{Access, Choice, Costs, Frame, PolicyKind, Shape};

/// The slow version of a policy. It keeps its own list of the cached blocks.
pub trait Slow {
    fn insert(&mut self, frame: Frame, write: bool);
    fn used(&mut self, nr: u64, write: bool);
    fn written(&mut self, nr: u64);
    fn removed(&mut self, nr: u64);
    /// The blocks to evict, in order.
    fn choose(&mut self) -> Vec<u64>;
    /// The blocks to write back and keep; called before `choose`.
    fn write(&self) -> Vec<u64> {
        Vec::new()
    }
}

fn slow(kind: PolicyKind, shape: Shape) -> Box<dyn Slow> {
    let size = shape.erase_block;
    match kind {
        PolicyKind::Lru => Box::new(slow_lists::Lru::default()),
        PolicyKind::Clock => Box::new(slow_clocks::Clock::default()),
        PolicyKind::Clock68 => Box::new(slow_clocks::Clock::textbook()),
        PolicyKind::Linux2q => Box::new(slow_lists::Linux2q::default()),
        PolicyKind::Cflru => Box::new(slow_lists::Cflru::new(shape.capacity)),
        PolicyKind::Fab => Box::new(slow_blocks::Fab::new(size)),
        PolicyKind::LbClock => Box::new(slow_blocks::LbClock::new(size)),
        PolicyKind::SpClock => Box::new(slow_clocks::SpClock::default()),
        PolicyKind::TsClock => Box::new(slow_clocks::TsClock::new(size)),
        PolicyKind::GdErase => Box::new(slow_costs::GdErase::new(shape)),
    }
}

#[derive(Clone, Debug)]
enum Step {
    Read(u64),
    Write(u64),
    /// A block is written back in the background.
    Home(u64),
    /// A block is forgotten.
    Forget(u64),
}

fn step() -> impl Strategy<Value = Step> {
    // Low numbers are hot.
    let nr = prop_oneof![0..12u64, 0..40u64, 0..90u64];
    prop_oneof![
        6 => nr.clone().prop_map(Step::Read),
        6 => nr.clone().prop_map(Step::Write),
        1 => nr.clone().prop_map(Step::Home),
        1 => nr.prop_map(Step::Forget),
    ]
}

fn compare(kind: PolicyKind, shape: Shape, steps: &[Step]) -> Result<(), TestCaseError> {
    let (mut fast, mut slow) = (kind.build(shape), slow(kind, shape));
    let mut slots: BTreeMap<u64, u32> = BTreeMap::new();
    let mut dirty = std::collections::BTreeSet::new();
    let mut free: Vec<u32> = (0..shape.capacity as u32).rev().collect();
    for step in steps {
        let (nr, write) = match *step {
            Step::Read(nr) => (nr, false),
            Step::Write(nr) => (nr, true),
            Step::Home(nr) => {
                if dirty.remove(&nr) {
                    let slot = slots[&nr];
                    fast.written(Frame { slot, nr });
                    slow.written(nr);
                }
                continue;
            }
            Step::Forget(nr) => {
                dirty.remove(&nr);
                if let Some(slot) = slots.remove(&nr) {
                    fast.removed(Frame { slot, nr });
                    slow.removed(nr);
                    free.push(slot);
                }
                continue;
            }
        };
        let access = if write { Access::Write } else { Access::Read };
        if let Some(slot) = slots.get(&nr).copied() {
            fast.used(Frame { slot, nr }, access);
            slow.used(nr, write);
        } else {
            if free.is_empty() {
                let mut choice = Choice::default();
                fast.choose(&mut |_| true, &mut choice);
                let number = |slot: &u32| *slots.iter().find(|(_, s)| *s == slot).unwrap().0;
                let gone: Vec<u64> = choice.evict.iter().map(number).collect();
                let home: Vec<u64> = choice.write.iter().map(number).collect();
                prop_assert_eq!(&home, &slow.write(), "{} at {:?}", kind, step);
                prop_assert_eq!(&gone, &slow.choose(), "{} at {:?}", kind, step);
                for (nr, slot) in home.into_iter().zip(choice.write) {
                    prop_assert!(dirty.remove(&nr));
                    fast.written(Frame { slot, nr });
                    slow.written(nr);
                }
                prop_assert!(!gone.is_empty());
                for (nr, slot) in gone.into_iter().zip(choice.evict) {
                    fast.removed(Frame { slot, nr });
                    slow.removed(nr);
                    slots.remove(&nr);
                    dirty.remove(&nr);
                    free.push(slot);
                }
            }
            let frame = Frame {
                slot: free.pop().unwrap(),
                nr,
            };
            slots.insert(nr, frame.slot);
            fast.inserted(frame, access);
            slow.insert(frame, write);
        }
        if write {
            dirty.insert(nr);
        }
        // The suggested blocks are dirty, and each is suggested once.
        let mut suggested = Vec::new();
        fast.to_write(5, &mut suggested);
        prop_assert!(suggested.len() <= 5);
        let number = |slot: &u32| *slots.iter().find(|(_, s)| *s == slot).unwrap().0;
        let mut numbers: Vec<u64> = suggested.iter().map(number).collect();
        prop_assert!(
            numbers.iter().all(|nr| dirty.contains(nr)),
            "policy.P2: {} suggests {:?}",
            kind,
            numbers
        );
        numbers.sort_unstable();
        numbers.dedup();
        prop_assert_eq!(numbers.len(), suggested.len(), "{}", kind);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn fast_and_slow_agree(
        capacity in 1..40usize,
        erase_block in 1..12u64,
        visit in 0..40u32,
        rest in 0..30u32,
        steps in proptest::collection::vec(step(), 1..400),
    ) {
        let costs = Costs { read: 1, write: 3, visit, rest };
        let shape = Shape { capacity, erase_block, costs };
        for kind in PolicyKind::ALL {
            compare(kind, shape, &steps)?;
        }
    }
}

/// Blocks that may not leave are never chosen, dirty ones among them are suggested, and a search
/// over many of them ends soon. (policy.P4)
#[test]
fn what_may_not_go_stays() {
    for kind in PolicyKind::ALL {
        let shape = Shape {
            capacity: 5000,
            erase_block: 64,
            costs: Costs::default(),
        };
        let mut policy = kind.build(shape);
        for slot in 0..5000 {
            let nr = u64::from(slot) * 7 % 5003;
            policy.inserted(Frame { slot, nr }, Access::Write);
        }
        let (mut asked, mut choice) = (0, Choice::default());
        policy.choose(
            &mut |_| {
                asked += 1;
                false
            },
            &mut choice,
        );
        assert!(choice.evict.is_empty(), "{kind}");
        assert!((1..=64).contains(&asked), "{kind} asked {asked} times");
        assert!(!choice.write.is_empty(), "{kind} tells the flusher");
        // Half of them may leave.
        for _ in 0..1000 {
            choice.clear();
            policy.choose(&mut |slot| slot % 2 == 0, &mut choice);
            assert!(!choice.evict.is_empty(), "{kind}");
            for slot in &choice.evict {
                assert_eq!(slot % 2, 0, "{kind}");
                let nr = u64::from(*slot) * 7 % 5003;
                policy.removed(Frame { slot: *slot, nr });
                policy.inserted(Frame { slot: *slot, nr }, Access::Read);
            }
        }
    }
}
