//! Which pairs of values met: of each two values of two dimensions the runs and the crash states
//! that had both.

use std::collections::BTreeMap;

use serde::Serialize;

use super::dimension::{Dimension, dimensions};
use super::plan::Plan;

/// A value of a dimension.
type Value = (usize, usize);

/// What met.
#[derive(Debug)]
pub struct Coverage {
    all: &'static [Dimension],
    met: BTreeMap<(Value, Value), Meetings>,
}

/// How often a pair met.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Meetings {
    /// In so many runs.
    pub runs: u64,
    /// In so many crash states.
    pub states: u64,
}

/// What met, in numbers.
#[derive(Clone, Debug, Serialize)]
pub struct Covered {
    /// Pairs that there are.
    pub pairs: u64,
    /// Of these, those that met in a run.
    pub met: u64,
    /// Those that had a crash state.
    pub judged: u64,
    /// The fewest crash states of a pair that had one.
    pub fewest: u64,
    /// Pairs that never met, `a=b c=d`.
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
    /// Counts a run.
    pub fn add(&mut self, plan: &Plan, states: u64) {
        let value = |(i, dimension): (usize, &Dimension)| {
            let is = |(value, _): &(String, u32)| plan.is(&dimension.name, value);
            Some((i, dimension.values.iter().position(is)?))
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

    fn shown(&self, (dimension, value): Value) -> String {
        let dimension = &self.all[dimension];
        format!("{}={}", dimension.name, dimension.values[value].0)
    }

    /// What met so far.
    pub fn covered(&self) -> Covered {
        let mut values: Vec<Value> = Vec::new();
        for (i, dimension) in self.all.iter().enumerate() {
            values.extend((0..dimension.values.len()).map(|v| (i, v)));
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
                    let pair = format!("{} {}", self.shown(*a), self.shown(*b));
                    covered.never.push(pair);
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
        let before = coverage.covered();
        assert_eq!(before.pairs as usize, before.never.len());
        coverage.add(&Plan::draw(1, &[]).unwrap(), 5);
        let one = coverage.covered();
        let n = dimensions().len() as u64;
        assert_eq!(
            (one.met, one.judged, one.fewest),
            (n * (n - 1) / 2, n * (n - 1) / 2, 5)
        );
        coverage.add(&Plan::draw(1, &[]).unwrap(), 7);
        assert_eq!(coverage.covered().fewest, 12);
    }
}
