//! Transactions on database servers; each is durable when it returns.

mod loads;
pub(super) mod pgbench;
pub(super) mod sysbench;

use super::{Below, Measured, Outcome};
use crate::compare::report::Better;
use crate::compare::{Oltp, Target};
pub(super) use loads::{TPCB, TPCC, YCSB_A};

/// Whether a server has to protect its pages from writes that a crash tears.
fn pages_can_tear(target: &Target) -> bool {
    !target.whole_writes()
}

/// On which targets `setting`, a server's protection, is on.
fn protection(setting: &str, targets: &[Target]) -> String {
    let with = |on: bool| -> Vec<&str> {
        let same = targets.iter().filter(|t| pages_can_tear(t) == on);
        same.map(Target::name).collect()
    };
    let (on, off) = (with(true), with(false));
    let whole = "a write of a page is whole or absent after a crash";
    match (on.is_empty(), off.is_empty()) {
        (_, true) => format!("{setting} is on everywhere"),
        (true, _) => format!("{setting} is off everywhere: {whole}"),
        _ => format!(
            "{setting} is off where {whole} ({}), on elsewhere",
            off.join(", ")
        ),
    }
}

/// What a run gives.
fn done(title: &str, size: Oltp, per_second: f64, below: Below) -> Outcome {
    vec![Measured {
        title: format!("{title}, {} clients", size.clients),
        unit: "tx/s".into(),
        better: Better::Higher,
        value: per_second,
        below,
    }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_is_told() {
        let target = |name: &str, whole| Target::new(name, "/tmp").with_whole_writes(whole);
        let text = protection("it", &[target("kernel", false), target("ours", true)]);
        assert!(text.contains("(ours), on elsewhere"), "{text}");
        assert!(protection("it", &[target("a", false)]).ends_with("it is on everywhere"));
        assert!(protection("it", &[target("a", true)]).contains("off everywhere"));
    }
}
