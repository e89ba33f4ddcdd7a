//! The plainest plan that still shows what another showed.

use std::time::Instant;

use super::dimension::dimensions;
use super::plan::{Fixed, Plan};

/// Makes one dimension after the other plain, as long as `shows` says that the plan still shows it.
pub(super) fn shrink(plan: &Plan, deadline: Instant, shows: &mut dyn FnMut(&Plan) -> bool) -> Plan {
    let mut best = plan.clone();
    let mut is_smaller = true;
    // A late drop may let more be dropped.
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
            // It may be that something else needs it.
            if !same_values(&less, &best) && shows(&less) {
                best = less;
                is_smaller = true;
            }
        }
    }
    best
}

/// The drops to try, the largest first.
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
