//! Simplifying a plan: the plainest plan that still shows a failure.

use std::time::Instant;

use super::dimension::dimensions;
use super::plan::{Fixed, Plan};

/// Sets one dimension after the other to its plain value, as long as `shows` says that the failure
/// stays.
pub(super) fn shrink(plan: &Plan, deadline: Instant, shows: &mut dyn FnMut(&Plan) -> bool) -> Plan {
    let mut best = plan.clone();
    let mut is_smaller = true;
    // After a later step an earlier one may succeed.
    while std::mem::take(&mut is_smaller) {
        for (name, value) in plainer() {
            if Instant::now() >= deadline {
                return best;
            }
            if best.is(&name, &value) || !is_less(&best, &name, &value) {
                continue;
            }
            let mut fixed: Vec<Fixed> = best.fixed().to_vec();
            fixed.retain(|(known, _)| *known != name);
            fixed.push((name, value));
            let Ok(less) = Plan::draw(best.seed, &fixed) else {
                continue;
            };
            // Another value may need this one, so that the plan stays the same.
            if !same_values(&less, &best) && shows(&less) {
                best = less;
                is_smaller = true;
            }
        }
    }
    best
}

/// The steps to try, the largest first.
fn plainer() -> Vec<Fixed> {
    let first = [
        ("mounts", "1"),
        ("threads", "1"),
        ("length", "60"),
        ("length", "15"),
    ];
    let mut all: Vec<Fixed> = first.map(|(n, v)| (n.into(), v.into())).into();
    let plain = dimensions().iter().filter(|d| d.name != "length");
    all.extend(plain.map(|d| (d.name.clone(), d.plain().to_owned())));
    all
}

fn is_less(plan: &Plan, name: &str, value: &str) -> bool {
    let number = |text: &str| text.parse::<u64>().unwrap_or(0);
    name != "length" || number(value) < number(plan.get(name))
}

fn same_values(a: &Plan, b: &Plan) -> bool {
    a.values().eq(b.values())
}
