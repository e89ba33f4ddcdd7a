//! Measures a step of each policy in caches of rising size: nanoseconds a use, most of which evict
//! a block. Run with `--release`.

use std::time::Instant;

use stetfs_cache::{Access, Choice, Costs, Frame, PolicyKind, Shape};

/// Uses that are measured.
const USES: u64 = 1_000_000;

fn cost(kind: PolicyKind, capacity: usize) -> f64 {
    let shape = Shape {
        capacity,
        erase_block: 1024,
        costs: Costs::default(),
    };
    let mut policy = kind.build(shape);
    let mut choice = Choice::default();
    let mut pages = vec![0; capacity];
    let mut free: Vec<u32> = (0..capacity as u32).rev().collect();
    // Random block numbers from a range four times the cache's size.
    let range = 4 * capacity as u64;
    let mut slots: Vec<Option<u32>> = vec![None; range as usize];
    let mut step = |i: u64| {
        let mixed = (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let nr = ((mixed ^ mixed >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 20) % range;
        let access = if i.is_multiple_of(2) {
            Access::Write
        } else {
            Access::Read
        };
        if let Some(slot) = slots[nr as usize] {
            policy.used(Frame { slot, nr }, access);
            return;
        }
        if free.is_empty() {
            choice.clear();
            policy.choose(&mut |_| true, &mut choice);
            for slot in &choice.evict {
                let nr = pages[*slot as usize];
                policy.removed(Frame { slot: *slot, nr });
                slots[nr as usize] = None;
                free.push(*slot);
            }
        }
        let Some(slot) = free.pop() else { return };
        pages[slot as usize] = nr;
        slots[nr as usize] = Some(slot);
        policy.inserted(Frame { slot, nr }, access);
    };
    (0..4 * capacity as u64).for_each(&mut step);
    let begin = Instant::now();
    (USES..2 * USES).for_each(&mut step);
    begin.elapsed().as_nanos() as f64 / USES as f64
}

fn main() {
    let sizes = [10, 13, 16, 19].map(|shift| 1 << shift);
    println!(
        "policy      {}",
        sizes.map(|s: usize| format!("{s:>10}")).concat()
    );
    for kind in PolicyKind::ALL {
        let costs = sizes.map(|size| format!("{:10.0}", cost(kind, size)));
        println!("{kind:11} {}", costs.concat());
    }
}
