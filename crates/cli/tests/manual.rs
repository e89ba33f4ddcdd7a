//! The options of docs/mounting.md are those that this binary has: the rows of its tables and the
//! parts of its journals.
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use stetfs::low::options::{OptionRow, Remount, VOLUME_OPTIONS};
use stetfs::low::{Preset, options_help};
use stetfs_cli::MOUNT_OPTIONS;

/// Parts and presets of the crate `lanes`, which is not part of releases.
const FOR_TESTS: [&str; 2] = ["threads", "lanes"];

/// The name of an option and its possible values: for `copies=on-write|proactive` two.
fn words(usage: &str) -> Option<(String, BTreeSet<String>)> {
    let (name, values) = usage.split_once('=')?;
    let values = values.split('|').filter(|v| !FOR_TESTS.contains(v));
    Some((name.into(), values.map(String::from).collect()))
}

fn text() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/mounting.md");
    std::fs::read_to_string(path).unwrap()
}

/// The options in the first cells of the tables, with their values.
fn manual() -> BTreeMap<String, BTreeSet<String>> {
    let text = text();
    let cells = text
        .lines()
        .filter_map(|l| l.strip_prefix("| `")?.split_once("` |"));
    let usages = cells.map(|(cell, _)| cell.replace("\\|", "|"));
    let mut manual = BTreeMap::new();
    for (name, values) in usages.filter_map(|usage| words(&usage)) {
        // Later tables show options with a single value.
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
    // `custom` is not a preset: it stands for the options themselves.
    let names: BTreeSet<_> = names.chain(["custom"]).map(String::from).collect();
    assert_eq!(manual()["journal"], names);
}

/// The text between two headings or words.
fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let (_, rest) = text.split_once(from).unwrap_or_else(|| panic!("{from}"));
    rest.split_once(to).unwrap_or_else(|| panic!("{to}")).0
}

#[test]
fn the_manual_has_every_row_of_the_tables() {
    let text = text();
    let section = between(&text, "\n## Mount options\n", "\n### The journal\n");
    let cells = section
        .lines()
        .filter_map(|l| l.strip_prefix("| `")?.split_once("` |"));
    let cells = cells.map(|(cell, _)| cell.replace("\\|", "|").replace('`', ""));
    // The presets have a test of their own.
    let cells = cells.map(|cell| match cell.starts_with("journal=") {
        true => "journal=NAME".to_owned(),
        false => cell,
    });
    let of_volume = VOLUME_OPTIONS.iter().map(OptionRow::usage);
    let rows: BTreeSet<_> = of_volume
        .chain(MOUNT_OPTIONS.iter().map(OptionRow::usage))
        .collect();
    assert_eq!(cells.collect::<BTreeSet<_>>(), rows);
    assert!(rows.len() > 40);
}

/// The names of rows whose remount `is_so`.
fn remounted<T>(
    rows: &'static [OptionRow<T>],
    is_so: fn(&Remount<T>) -> bool,
) -> impl Iterator<Item = &'static str> {
    let rows = rows.iter().filter(move |row| is_so(&row.remount));
    rows.flat_map(|row| row.words).map(|(name, _)| *name)
}

#[test]
fn the_manual_says_what_a_remount_does_not_change() {
    let text = text();
    let told = |from: &str| -> BTreeSet<String> {
        let names = between(
            between(&text, from, "\nThe volume is written back"),
            "(",
            ")",
        );
        let names = names.split(',').map(|name| name.trim().replace('`', ""));
        names.collect()
    };
    let kept = remounted(VOLUME_OPTIONS, |r| matches!(r, Remount::Keeps(_)));
    let kept = kept.chain(remounted(MOUNT_OPTIONS, |r| matches!(r, Remount::Keeps(_))));
    let kept: BTreeSet<_> = kept.filter(|name| *name != "noallow_other").collect();
    assert_eq!(told("`remount` changes every option but"), owned(kept));
    let refused = remounted(VOLUME_OPTIONS, |r| matches!(r, Remount::Refuses));
    let refused = refused.chain(remounted(MOUNT_OPTIONS, |r| matches!(r, Remount::Refuses)));
    assert_eq!(told("It is refused where"), owned(refused.collect()));
}

fn owned(names: BTreeSet<&str>) -> BTreeSet<String> {
    names.into_iter().map(str::to_owned).collect()
}
