//! What docs/mounting.md says of the journal's options is what this binary has.
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use stetfs::low::{Preset, options_help};

/// Parts and presets of the crate `lanes`, which releases do not have.
const FOR_TESTS: [&str; 2] = ["threads", "lanes"];

/// The words of an option, by its name: of `copies=on-write|proactive` two.
fn words(usage: &str) -> Option<(String, BTreeSet<String>)> {
    let (name, values) = usage.split_once('=')?;
    let values = values.split('|').filter(|v| !FOR_TESTS.contains(v));
    Some((name.into(), values.map(String::from).collect()))
}

/// The first cell of each row of a table, as the option that it shows.
fn manual() -> BTreeMap<String, BTreeSet<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/mounting.md");
    let text = std::fs::read_to_string(path).unwrap();
    let cells = text
        .lines()
        .filter_map(|l| l.strip_prefix("| `")?.split_once("` |"));
    let usages = cells.map(|(cell, _)| cell.replace("\\|", "|"));
    let mut manual = BTreeMap::new();
    for (name, values) in usages.filter_map(|usage| words(&usage)) {
        // Later tables show options with one value.
        manual.entry(name).or_insert(values);
    }
    manual
}

#[test]
fn the_manual_has_every_journal_option_with_its_values() {
    let manual = manual();
    let mut wrong = Vec::new();
    for option in options_help() {
        let (name, values) = words(&option.usage).unwrap();
        if manual.get(&name) != Some(&values) {
            wrong.push(format!("{name}: {values:?}, not {:?}", manual.get(&name)));
        }
    }
    assert!(wrong.is_empty(), "docs/mounting.md: {wrong:#?}");
}

#[test]
fn the_manual_has_every_preset() {
    let names = Preset::all().into_iter().map(Preset::name);
    let names = names.filter(|name| !FOR_TESTS.contains(name));
    // No preset: what the options say.
    let names: BTreeSet<_> = names.chain(["custom"]).map(String::from).collect();
    assert_eq!(manual()["journal"], names);
}
