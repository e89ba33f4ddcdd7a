//! Coverage of pairs: for each two values of two dimensions the number of runs and of crash states
//! that had both.

use std::collections::BTreeMap;

use serde::Serialize;

use super::dimension::{Dimension, dimensions};
use super::plan::{Fixed, Plan};

/// A value of a dimension: index of the dimension, index of the value.
type Value = (usize, usize);

/// The pairs of values that met.
#[derive(Debug)]
pub struct Coverage {
    all: &'static [Dimension],
    met: BTreeMap<(Value, Value), Meetings>,
}

/// The meetings of a pair.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Meetings {
    /// Number of runs with both values.
    pub runs: u64,
    /// Number of crash states with both values.
    pub states: u64,
}

/// The coverage in numbers.
#[derive(Clone, Debug, Serialize)]
pub struct Covered {
    /// Number of pairs that are possible.
    pub pairs: u64,
    /// Pairs that met in a run.
    pub met: u64,
    /// Pairs that met in a crash state.
    pub judged: u64,
    /// Fewest crash states of a pair that met in one.
    pub fewest: u64,
    /// Pairs that are possible and never met, written `a=b c=d`; empty unless they are asked for.
    pub never: Vec<String>,
}

impl Default for Coverage {
    fn default() -> Coverage {
        Coverage {
            all: dimensions(),
            met: BTreeMap::new(),
        }
    }
}

impl Coverage {
    /// Adds a run.
    pub fn add(&mut self, plan: &Plan, states: u64) {
        let value = |(i, dimension): (usize, &Dimension)| {
            let is = |(value, _): &(String, u32)| plan.is(&dimension.name, value);
            let value = dimension.values.iter().position(is)?;
            dimension.is_drawn().then_some((i, value))
        };
        let values: Vec<Value> = self.all.iter().enumerate().filter_map(value).collect();
        for (n, a) in values.iter().enumerate() {
            for b in &values[n + 1..] {
                let meetings = self.met.entry((*a, *b)).or_default();
                meetings.runs += 1;
                meetings.states += states;
            }
        }
    }

    fn named(&self, (dimension, value): Value) -> Fixed {
        let dimension = &self.all[dimension];
        (dimension.name.clone(), dimension.values[value].0.clone())
    }

    /// The coverage so far; with `never` also the pairs that never met.
    pub fn covered(&self, never: bool) -> Covered {
        let mut values: Vec<Value> = Vec::new();
        for (i, dimension) in self.all.iter().enumerate().filter(|(_, d)| d.is_drawn()) {
            let drawn = dimension.values.iter().enumerate();
            let drawn = drawn.filter(|(_, (_, weight))| *weight > 0);
            values.extend(drawn.map(|(v, _)| (i, v)));
        }
        let mut covered = Covered {
            pairs: 0,
            met: self.met.len() as u64,
            judged: 0,
            fewest: u64::MAX,
            never: Vec::new(),
        };
        for (n, a) in values.iter().enumerate() {
            for b in values[n + 1..].iter().filter(|b| b.0 != a.0) {
                covered.pairs += 1;
                let Some(meetings) = self.met.get(&(*a, *b)) else {
                    let pair = [self.named(*a), self.named(*b)];
                    if never && Plan::can_have(&pair) {
                        let pair = pair.map(|(name, value)| format!("{name}={value}"));
                        covered.never.push(pair.join(" "));
                    }
                    continue;
                };
                if meetings.states > 0 {
                    covered.judged += 1;
                    covered.fewest = covered.fewest.min(meetings.states);
                }
            }
        }
        if covered.judged == 0 {
            covered.fewest = 0;
        }
        covered
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn pairs_are_counted_once_a_run() {
        let mut coverage = Coverage::default();
        assert_eq!(coverage.covered(false).met, 0);
        coverage.add(&Plan::draw(1, &[]).unwrap(), 5);
        let one = coverage.covered(false);
        let n = dimensions().iter().filter(|d| d.is_drawn()).count() as u64;
        assert_eq!(
            (one.met, one.judged, one.fewest),
            (n * (n - 1) / 2, n * (n - 1) / 2, 5)
        );
        coverage.add(&Plan::draw(1, &[]).unwrap(), 7);
        assert_eq!(coverage.covered(false).fewest, 12);
    }

    #[test]
    fn what_cannot_meet_is_not_missed() {
        let pair = |a: (&str, &str), b: (&str, &str)| {
            Plan::can_have(&[a, b].map(|(name, value)| (name.into(), value.into())))
        };
        assert!(!pair(("map", "blocks"), ("width", "64")));
        assert!(!pair(("quota", "no"), ("op-limit", "some")));
        assert!(pair(("preset", "stet"), ("fullness", "full")));
    }
}
