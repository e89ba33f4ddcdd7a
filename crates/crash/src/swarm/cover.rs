//! Pairwise plans: each two values of two dimensions meet within few runs.
//!
//! Each plan is made for a pair that has not met. Its other dimensions get, one after the other,
//! the value that has not met most of the values chosen before (Cohen et al., "The AETG System",
//! IEEE Transactions on Software Engineering 1997). Values that exclude each other are settled as
//! in any plan. A pair that does not come about is tried alone with random other values, and then
//! given up.

use std::collections::BTreeMap;

use super::dimension::{Dimension, dimensions};
use super::plan::{Fixed, Plan};

/// A value of a dimension: index of the dimension, index of the value.
type Value = (usize, usize);
/// Two values; that of the lower dimension comes first.
type Pair = (Value, Value);

/// Number of tries for a pair.
const TRIES: u8 = 4;

/// The pairs that have not met.
#[derive(Debug)]
pub struct Cover {
    all: &'static [Dimension],
    with: Vec<Fixed>,
    /// Pairs that have not met, with the number of tries.
    missing: BTreeMap<Pair, u8>,
    /// Number of runs whose volume could not carry the pair.
    refused: BTreeMap<Pair, u8>,
    /// Number of pairs that were given up.
    never: u64,
}

fn pair(a: Value, b: Value) -> Pair {
    (a.min(b), a.max(b))
}

impl Cover {
    /// All pairs that can be drawn with the fixed values.
    pub fn new(with: &[Fixed]) -> Cover {
        let all = dimensions();
        let mut values: Vec<Value> = Vec::new();
        for (i, dimension) in all.iter().enumerate().filter(|(_, d)| d.is_drawn()) {
            let fixed = with.iter().find(|(name, _)| *name == dimension.name);
            let is_open = |value: &str| fixed.is_none_or(|(_, fixed)| fixed == value);
            let open = dimension.values.iter().enumerate();
            let open = open.filter(|(_, (value, weight))| *weight > 0 && is_open(value));
            values.extend(open.map(|(v, _)| (i, v)));
        }
        let mut missing = BTreeMap::new();
        for (n, a) in values.iter().enumerate() {
            let others = values.iter().skip(n + 1).filter(|b| b.0 != a.0);
            missing.extend(others.map(|b| ((*a, *b), 0)));
        }
        Cover {
            all,
            with: with.to_vec(),
            missing,
            refused: BTreeMap::new(),
            never: 0,
        }
    }

    /// Number of pairs left, and number of pairs given up.
    pub fn left(&self) -> (u64, u64) {
        (self.missing.len() as u64, self.never)
    }

    fn named(&self, (dimension, value): Value) -> Option<Fixed> {
        let dimension = self.all.get(dimension)?;
        let (value, _) = dimension.values.get(value)?;
        Some((dimension.name.clone(), value.clone()))
    }

    /// The next plan; `None` if no pair is left.
    pub fn next(&mut self, seed: u64) -> Option<Plan> {
        loop {
            let least = self.missing.iter().min_by_key(|(_, tries)| **tries);
            let (target, tries) = least.map(|(pair, tries)| (*pair, *tries))?;
            if tries == TRIES {
                self.missing.remove(&target);
                self.never += 1;
                continue;
            }
            self.missing.insert(target, tries + 1);
            let chosen = match tries {
                0 => self.choose(target, seed),
                _ => vec![target.0, target.1],
            };
            let mut fixed = self.with.clone();
            fixed.extend(chosen.into_iter().filter_map(|value| self.named(value)));
            let plan = Plan::draw(seed.wrapping_add(u64::from(tries) << 32), &fixed).ok()?;
            let pairs = self.pairs(&plan);
            if pairs.contains(&target) {
                // These pairs count as met while the run is under way.
                for pair in pairs {
                    self.missing.remove(&pair);
                }
                return Some(plan);
            }
        }
    }

    /// Counts the pairs of a run. `done` may lack pairs of `planned` that the volume could not
    /// carry.
    pub fn done(&mut self, planned: &Plan, done: &Plan) {
        let met = self.pairs(done);
        for pair in self.pairs(planned) {
            if met.binary_search(&pair).is_err() {
                let tries = self.refused.entry(pair).or_default();
                *tries = (*tries + 1).min(TRIES);
                self.missing.insert(pair, *tries);
            }
        }
        for pair in met {
            self.missing.remove(&pair);
        }
    }

    /// Chooses a value for each dimension.
    fn choose(&self, target: Pair, seed: u64) -> Vec<Value> {
        let mut chosen = vec![target.0, target.1];
        let is_fixed = |d: &Dimension| self.with.iter().any(|(name, _)| *name == d.name);
        let mut others: Vec<usize> = (0..self.all.len()).collect();
        others.retain(|i| *i != target.0.0 && *i != target.1.0);
        let mut rng = fastrand::Rng::with_seed(seed);
        rng.shuffle(&mut others);
        for i in others {
            let Some(dimension) = self.all.get(i) else {
                continue;
            };
            if !dimension.is_drawn() || is_fixed(dimension) {
                continue;
            }
            let new = |v: usize| {
                let news = |other: &&Value| self.missing.contains_key(&pair((i, v), **other));
                chosen.iter().filter(news).count()
            };
            let best = (0..dimension.values.len()).max_by_key(|v| (new(*v), rng.u32(..)));
            if let Some(v) = best.filter(|v| new(*v) > 0) {
                chosen.push((i, v));
            }
        }
        chosen
    }

    /// The pairs of a plan, sorted.
    fn pairs(&self, plan: &Plan) -> Vec<Pair> {
        let drawn = self.all.iter().enumerate().filter(|(_, d)| d.is_drawn());
        let values = drawn.filter_map(|(i, dimension)| {
            let is = |(value, _): &(String, u32)| plan.is(&dimension.name, value);
            Some((i, dimension.values.iter().position(is)?))
        });
        let values: Vec<Value> = values.collect();
        let each = values.iter().enumerate();
        let mut pairs: Vec<Pair> = each
            .flat_map(|(n, a)| values.iter().skip(n + 1).map(|b| pair(*a, *b)))
            .collect();
        pairs.sort_unstable();
        pairs
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::coverage::Coverage;
    use super::*;

    /// The plans meet each possible pair if each run carries its whole plan.
    #[test]
    fn few_plans_meet_all_pairs() {
        let mut cover = Cover::new(&[]);
        let mut coverage = Coverage::default();
        let mut plans = 0;
        while let Some(plan) = cover.next(plans) {
            coverage.add(&plan, 1);
            cover.done(&plan, &plan);
            plans += 1;
        }
        let (left, never) = cover.left();
        let covered = coverage.covered(false);
        assert_eq!(left, 0);
        println!("{plans} plans, {} pairs, {never} do not meet", covered.met);
        assert!(plans < 600, "{plans}");
        assert!(covered.met + never >= covered.pairs * 9 / 10);
    }

    #[test]
    fn what_is_fixed_stays() {
        let with = [("preset".to_owned(), "stet".to_owned())];
        let mut cover = Cover::new(&with);
        let all = Cover::new(&[]).left().0;
        assert!(cover.left().0 < all);
        for seed in 0..20 {
            assert_eq!(cover.next(seed).unwrap().get("preset"), "stet");
        }
    }

    #[test]
    fn what_a_volume_does_not_carry_is_tried_again() {
        let left_after = |done: &dyn Fn(&Plan) -> Plan| {
            let mut cover = Cover::new(&[]);
            let plan = cover.next(1).unwrap();
            cover.done(&plan, &done(&plan));
            cover.left().0
        };
        let all = Cover::new(&[]).left().0;
        let pairs = all - left_after(&Plan::clone);
        // With fixed values at most half of the pairs meet, by chance.
        let other = all - left_after(&|_| Plan::draw(5, &[]).unwrap());
        assert!(other > 0 && other <= pairs, "{other} of {pairs}");
    }
}
