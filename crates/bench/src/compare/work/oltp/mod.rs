//! Transaction workloads on database servers; each transaction is durable when it returns.

mod loads;
pub(super) mod pgbench;
pub(super) mod sysbench;

use super::measured::{Below, Measured, Outcome};
use crate::compare::Better;
use crate::compare::{Oltp, Target};
pub(super) use loads::{TPCB, TPCC, YCSB_A};
pub(super) use sysbench::{LINKBENCH, READ_WRITE};

/// The targets on which `setting`, a server's protection of its pages, is on.
fn protection(setting: &str, targets: &[Target]) -> String {
    let names = |wanted: fn(&Target) -> bool| -> String {
        let same = targets.iter().filter(|t| wanted(t)).map(Target::name);
        same.collect::<Vec<_>>().join(", ")
    };
    let whole = "a write of a page is whole or absent after a crash";
    let on = names(Target::protects);
    let off = names(|t| !t.protects() && t.whole_writes());
    let torn = names(|t| !t.protects() && !t.whole_writes());
    match (on.as_str(), off.as_str(), torn.as_str()) {
        (_, "", "") => format!("{setting} is on everywhere"),
        ("", _, "") => format!("{setting} is off everywhere: {whole}"),
        (_, _, "") => format!("{setting} is off where {whole} ({off}), on elsewhere"),
        _ => format!(
            "{setting} is on for {on}; off where {whole}: {off}; off to compare with, though a crash may tear pages: {torn}"
        ),
    }
}

/// The results of a run.
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
        let unsafe_one = target("torn", false).with_protection(Some(false));
        let text = protection("it", &[target("a", true), unsafe_one]);
        assert!(text.contains("after a crash: a; off to compare"), "{text}");
        assert!(text.ends_with("may tear pages: torn"), "{text}");
    }
}
