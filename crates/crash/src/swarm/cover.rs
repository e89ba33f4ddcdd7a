//! Plans by which each two values of two dimensions meet in few runs.
//!
//! Each plan is for a pair that has not met. Its other dimensions get, one after the other, the
//! value that has not met most of those chosen before (Cohen and others, "The AETG System", IEEE
//! Transactions on Software Engineering 1997). What does not go together is settled as ever, so a
//! pair that does not come about is tried alone, with the rest drawn, and then given up.

use std::collections::BTreeMap;

use super::dimension::{Dimension, dimensions};
use super::plan::{Fixed, Plan};

/// A value of a dimension, by their places.
type Value = (usize, usize);
/// Two values, of the dimension that comes first the first.
type Pair = (Value, Value);

/// A pair is tried so often.
const TRIES: u8 = 4;

/// The pairs that have not met.
#[derive(Debug)]
pub struct Cover {
    all: &'static [Dimension],
    with: Vec<Fixed>,
    /// How often each was tried.
    missing: BTreeMap<Pair, u8>,
    /// How often no volume carried them.
    refused: BTreeMap<Pair, u8>,
    /// Pairs that were given up.
    never: u64,
}

fn pair(a: Value, b: Value) -> Pair {
    (a.min(b), a.max(b))
}

impl Cover {
    /// All pairs that can be drawn beside what is fixed.
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

    /// Pairs that are left, and those that do not come about.
    pub fn left(&self) -> (u64, u64) {
        (self.missing.len() as u64, self.never)
    }

    fn named(&self, (dimension, value): Value) -> Option<Fixed> {
        let dimension = self.all.get(dimension)?;
        let (value, _) = dimension.values.get(value)?;
        Some((dimension.name.clone(), value.clone()))
    }

    /// The next plan; none when no pair is left.
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
                // They count as met while the run is under way.
                for pair in pairs {
                    self.missing.remove(&pair);
                }
                return Some(plan);
            }
        }
    }

    /// What a run did that was to be `planned`: the volume may not have carried all.
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

    /// A value for each dimension.
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

    /// The pairs of a plan, in order.
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

    /// Runs that carry all that is planned meet each pair that can meet.
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
        // Half of the dimensions, at most, are by chance as they were planned.
        let other = all - left_after(&|_| Plan::draw(5, &[]).unwrap());
        assert!(other > 0 && other <= pairs, "{other} of {pairs}");
    }
}
