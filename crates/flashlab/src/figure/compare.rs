//! Comparison of policies over cuts, seeds and cache sizes, with the paper's claims.

use std::fmt;

use stetfs_cache::PolicyKind;

use super::points::{Place, Point};

/// The other policies of the paper.
pub(super) const RIVALS: [PolicyKind; 7] = [
    PolicyKind::Lru,
    PolicyKind::Clock68,
    PolicyKind::Linux2q,
    PolicyKind::Cflru,
    PolicyKind::Fab,
    PolicyKind::LbClock,
    PolicyKind::SpClock,
];

/// A value of a run that is compared; less is better.
pub(super) type Value = fn(&Point) -> f64;

/// The runs of all policies at one place.
#[derive(Clone)]
pub(super) struct Group<'a> {
    pub(super) place: &'a Place,
    points: Vec<&'a Point>,
}

impl<'a> Group<'a> {
    /// Groups the points by place.
    pub(super) fn all(points: &'a [Point]) -> Vec<Group<'a>> {
        let mut groups: Vec<Group<'a>> = Vec::new();
        for point in points {
            match groups.iter_mut().find(|g| *g.place == point.place) {
                Some(group) => group.points.push(point),
                None => groups.push(Group {
                    place: &point.place,
                    points: vec![point],
                }),
            }
        }
        groups
    }

    /// A policy's value; NaN if there is none.
    pub(super) fn of(&self, policy: PolicyKind, value: Value) -> f64 {
        let mut points = self.points.iter();
        let point = points.find(|p| p.policy == policy.name());
        point.map_or(f64::NAN, |p| value(p))
    }

    fn fold(&self, policies: &[PolicyKind], value: Value, of: fn(f64, f64) -> f64) -> f64 {
        let values = policies.iter().map(|p| self.of(*p, value));
        values.fold(f64::NAN, of)
    }

    /// The least value of some policies.
    pub(super) fn best(&self, policies: &[PolicyKind], value: Value) -> f64 {
        self.fold(policies, value, f64::min)
    }

    /// The greatest value of some policies.
    pub(super) fn worst(&self, policies: &[PolicyKind], value: Value) -> f64 {
        self.fold(policies, value, f64::max)
    }

    /// The mean value of some policies.
    pub(super) fn mean(&self, policies: &[PolicyKind], value: Value) -> f64 {
        let values = policies.iter().map(|p| self.of(*p, value));
        values.sum::<f64>() / policies.len() as f64
    }
}

/// The percentage by which `ours` is less than `theirs`.
pub(super) fn below(ours: f64, theirs: f64) -> f64 {
    100.0 * (1.0 - ours / theirs)
}

/// The percentage by which `theirs` is greater than `ours`; for erasures, the gain of life.
pub(super) fn beyond(ours: f64, theirs: f64) -> f64 {
    100.0 * (theirs / ours - 1.0)
}

/// The paper's claim about some percentages.
#[derive(Clone, Copy, Debug)]
pub(super) enum Says {
    /// The greatest is this.
    UpTo(f64),
    /// The average is this.
    OnAverage(f64),
    /// All are positive.
    Always,
    /// All are small, at most this.
    Alike(f64),
    /// No claim.
    Nothing,
}

impl Says {
    fn holds(self, percents: &[f64]) -> Option<bool> {
        let most = percents.iter().copied().fold(f64::NAN, f64::max);
        let least = percents.iter().copied().fold(f64::NAN, f64::min);
        match self {
            Says::UpTo(n) => Some(most >= n),
            Says::OnAverage(n) => Some(percents.iter().sum::<f64>() >= n * percents.len() as f64),
            Says::Always => Some(least > 0.0),
            Says::Alike(n) => Some(most <= n),
            Says::Nothing => None,
        }
    }
}

impl fmt::Display for Says {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Says::UpTo(n) => write!(f, "up to {n} %"),
            Says::OnAverage(n) => write!(f, "{n} % on average"),
            Says::Always => f.write_str("in all cases"),
            Says::Alike(_) => f.write_str("all alike"),
            Says::Nothing => f.write_str("-"),
        }
    }
}

/// The median of sorted values.
pub(super) fn median(sorted: &[f64]) -> f64 {
    let half = sorted.len() / 2;
    match sorted {
        [] => f64::NAN,
        _ if sorted.len() % 2 == 1 => sorted[half],
        _ => f64::midpoint(sorted[half - 1], sorted[half]),
    }
}

/// A row of the table: the comparison, the paper's claim, and the median with the range and whether
/// the claim holds.
pub(super) fn row(what: String, says: Says, percents: impl Iterator<Item = f64>) -> [String; 3] {
    let mut sorted: Vec<f64> = percents.filter(|p| p.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let (Some(least), Some(most)) = (sorted.first(), sorted.last()) else {
        return [what, says.to_string(), "not measured".into()];
    };
    let mut ours = format!("{:.1} %", median(&sorted));
    if sorted.len() > 1 {
        let above = sorted.iter().filter(|p| **p > 0.0).count();
        ours += &format!(
            " ({least:.1} to {most:.1}; above 0 in {above} of {})",
            sorted.len()
        );
    }
    match says.holds(&sorted) {
        Some(true) => ours += ": holds",
        Some(false) => ours += ": does not hold here",
        None => (),
    }
    [what, says.to_string(), ours]
}

/// For each policy the distance from the best of all, and the place where it is greatest.
pub(super) fn nearness(groups: &[Group<'_>], what: &str, value: Value) -> Vec<[String; 3]> {
    let behind = |group: &Group<'_>, policy: PolicyKind| {
        let best = group.best(&PolicyKind::ALL, value);
        100.0 * (group.of(policy, value) / best - 1.0)
    };
    let of = |policy: PolicyKind| {
        let mut all: Vec<(f64, &Place)> = groups
            .iter()
            .map(|g| (behind(g, policy), g.place))
            .collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        let near = all.iter().filter(|(percent, _)| *percent <= 3.0).count();
        let percents: Vec<f64> = all.iter().map(|(percent, _)| *percent).collect();
        let worst = all.last().map_or_else(String::new, |(percent, place)| {
            let Place {
                workload,
                cache,
                seed,
                cut,
                ..
            } = place;
            format!(
                "{percent:.1} % ({workload}, {cache} MiB, seed {seed}, {} % of it)",
                *cut as f64 / 10.0
            )
        });
        [
            format!("{policy}: {what} behind the best"),
            "-".into(),
            format!(
                "within 3 % in {near} of {}; median {:.1} %, at worst {worst}",
                all.len(),
                median(&percents)
            ),
        ]
    };
    PolicyKind::ALL.map(of).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_what_holds() {
        let percents = [30.0, -2.0, 10.0, f64::NAN];
        let ours = |says| row("a".into(), says, percents.into_iter())[2].clone();
        let range = "10.0 % (-2.0 to 30.0; above 0 in 2 of 3)";
        assert_eq!(ours(Says::UpTo(30.0)), format!("{range}: holds"));
        assert_eq!(
            ours(Says::UpTo(31.0)),
            format!("{range}: does not hold here")
        );
        assert_eq!(ours(Says::Always), format!("{range}: does not hold here"));
        assert_eq!(ours(Says::OnAverage(12.0)), format!("{range}: holds"));
        assert_eq!(ours(Says::Nothing), range);
        assert_eq!(
            row("a".into(), Says::Always, [].into_iter())[2],
            "not measured"
        );
        assert!((median(&[1.0, 2.0, 4.0, 9.0]) - 3.0).abs() < 1e-9);
    }
}
