//! Tests of the numbered rules: each rule is defined once, is held by an assertion or a test that
//! cites it, and is in the index.
//!
//! A definition is an item `* **tag** …` of the docs of a module or a type, where a tag is a
//! subject, a dot, a letter and a number. A rule is held where the tag stands in the text of an
//! assertion or of an error, or in the comment directly above an assertion or a test. References to
//! decisions must name a page of `docs/decisions`.
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::sources::{Source, root, sources};

/// Most lines between the beginning of an assertion or an error and its text.
const CALL: usize = 8;

struct Rule {
    /// The text of the rule, up to the end of the first sentence.
    text: String,
    path: String,
}

/// All files below these places with this ending, except this file, whose texts are examples.
fn others(places: &[&str], end: &str) -> Vec<Source> {
    let mut found = sources(places, end);
    found.retain(|source| source.path != "crates/cli/tests/rules.rs");
    found
}

/// Whether the word is a letter and a number, as the rules of one subject are counted.
fn is_count(word: &str) -> bool {
    let digits = word.strip_prefix(|c: char| c.is_ascii_uppercase());
    digits.is_some_and(|d| !d.is_empty() && d.bytes().all(|b| b.is_ascii_digit()))
}

fn is_tag(word: &str) -> bool {
    word.split_once('.').is_some_and(|(subject, count)| {
        !subject.is_empty() && subject.bytes().all(|b| b.is_ascii_lowercase()) && is_count(count)
    })
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    let between = |c: char| !(c.is_ascii_alphanumeric() || c == '.' || c == '_');
    text.split(between).map(|word| word.trim_matches('.'))
}

/// The comment of a line.
fn comment(line: &str) -> &str {
    line.find("//").map_or("", |at| &line[at..])
}

/// The text of a line of docs.
fn docs(line: &str) -> Option<&str> {
    let line = line.trim_start();
    line.strip_prefix("//! ")
        .or_else(|| line.strip_prefix("/// "))
}

fn definition(line: &str) -> Option<(&str, &str)> {
    docs(line)?.strip_prefix("* **")?.split_once("** ")
}

fn first_sentence(source: &Source, at: usize, text: &str) -> String {
    let mut all = text.to_string();
    let more = source.lines[at + 1..]
        .iter()
        .map_while(|l| docs(l)?.strip_prefix("  "));
    more.for_each(|l| write!(all, " {}", l.trim()).unwrap());
    let sentence = all.split(". ").next().unwrap().trim_end_matches('.');
    sentence.replace("[`", "`").replace("`]", "`")
}

fn definitions(sources: &[Source], wrong: &mut Vec<String>) -> BTreeMap<String, Rule> {
    let mut rules: BTreeMap<String, Rule> = BTreeMap::new();
    for source in sources {
        for (at, line) in source.lines.iter().enumerate() {
            let Some((tag, text)) = definition(line) else {
                continue;
            };
            let path = source.path.clone();
            if is_count(tag) {
                wrong.push(format!("{path}: {tag} has no subject"));
            }
            if !is_tag(tag) {
                continue;
            }
            let text = first_sentence(source, at, text);
            if let Some(other) = rules.insert(tag.into(), Rule { text, path }) {
                wrong.push(format!(
                    "{tag} is defined in {} and {}",
                    other.path, source.path
                ));
            }
        }
    }
    rules
}

fn asserts(line: &str) -> bool {
    let code = line.split("//").next().unwrap();
    code.contains("assert") && code.contains('!') || code.contains("panic!(")
}

fn errors(line: &str) -> bool {
    line.contains("Aborted(") || line.contains("FsError::corrupt(")
}

/// Whether a rule cited in this line is held there.
fn holds(source: &Source, at: usize) -> bool {
    let lines = &source.lines;
    if comment(&lines[at]).is_empty() {
        let call = &lines[at.saturating_sub(CALL)..=at];
        return call.iter().any(|l| asserts(l) || errors(l));
    }
    let is_above = |l: &&String| ["//", "#["].iter().any(|s| l.trim().starts_with(s));
    let above = lines[at..].iter().take_while(is_above).count();
    let is_test = |l: &String| l.trim() == "#[test]";
    lines[at..at + above].iter().any(is_test) || lines.get(at + above).is_some_and(|l| asserts(l))
}

#[test]
fn every_rule_is_defined_once_and_held() {
    let sources = others(&["crates"], ".rs");
    let mut wrong = Vec::new();
    let rules = definitions(&sources, &mut wrong);
    assert!(rules.len() > 50, "{} rules were found", rules.len());
    let crate_of = |path: &str| path.split('/').nth(1).unwrap().to_string();
    let counted: BTreeSet<(String, &str)> = rules
        .iter()
        .map(|(tag, rule)| (crate_of(&rule.path), tag.split_once('.').unwrap().1))
        .collect();
    let mut held = BTreeSet::new();
    for source in &sources {
        for (at, line) in source.lines.iter().enumerate() {
            let place = format!("{}:{}", source.path, at + 1);
            // A short citation, without the subject: it stands for a rule if the crate has one of
            // that number.
            for word in comment(line).split(['(', ' ']).skip(1) {
                let word = word.trim_end_matches([')', ',', '.', ':', ';']);
                let cited = [
                    format!("({word})"),
                    format!("({word},"),
                    format!("nvariant {word}"),
                ];
                let is_rule = counted.contains(&(crate_of(&source.path), word));
                if is_rule && cited.iter().any(|form| line.contains(form)) {
                    wrong.push(format!("{place}: {word} is cited without its subject"));
                }
            }
            if definition(line).is_some() {
                continue;
            }
            for tag in words(line).filter(|word| is_tag(word)) {
                if !rules.contains_key(tag) {
                    wrong.push(format!("{place}: {tag} is not defined"));
                } else if holds(source, at) {
                    held.insert(tag.to_string());
                }
            }
        }
    }
    for (tag, rule) in rules.iter().filter(|(tag, _)| !held.contains(*tag)) {
        wrong.push(format!(
            "{}: no assertion and no test cites {tag}",
            rule.path
        ));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_index_has_every_rule() {
    let rules = definitions(&others(&["crates"], ".rs"), &mut Vec::new());
    let rows = |text: &str| -> Vec<String> {
        let rows = text.lines().filter(|l| l.starts_with("| "));
        rows.skip(2).map(String::from).collect()
    };
    let listed = rows(&std::fs::read_to_string(root().join("docs/rules.md")).unwrap());
    let row =
        |(tag, rule): (&String, &Rule)| format!("| {tag} | {} | `{}` |", rule.text, rule.path);
    let expected: Vec<String> = rules.iter().map(row).collect();
    let missing: Vec<_> = expected
        .iter()
        .filter(|row| !listed.contains(row))
        .collect();
    let gone: Vec<_> = listed
        .iter()
        .filter(|row| !expected.contains(row))
        .collect();
    assert!(
        missing.is_empty() && gone.is_empty(),
        "docs/rules.md lacks\n{missing:#?}\nand has\n{gone:#?}"
    );
}

/// The numbers in "decision 5", "decisions 17 to 20" and "decisions/0013".
fn decisions(line: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for (at, name) in line.to_lowercase().match_indices("decision") {
        let mut rest = &line[at + name.len()..];
        rest = rest.strip_prefix('s').unwrap_or(rest);
        let mut between: &[&str] = &[" ", "/"];
        while let Some(next) = between.iter().find_map(|b| rest.strip_prefix(b)) {
            let digits = next.bytes().take_while(u8::is_ascii_digit).count();
            let Ok(number) = next[..digits].parse() else {
                break;
            };
            found.push(number);
            rest = &next[digits..];
            between = &[" to ", " and ", ", "];
        }
    }
    found
}

#[test]
fn references_to_decisions_lead_there() {
    let numbers: BTreeSet<u32> = root()
        .join("docs/decisions")
        .read_dir()
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.get(..4)?.parse().ok())
        .collect();
    let mut all = others(&["crates"], ".rs");
    all.extend(others(
        &["docs", "README.md", "CHANGELOG.md", "crates"],
        ".md",
    ));
    let (mut followed, mut wrong) = (0, Vec::new());
    for source in &all {
        for (at, line) in source.lines.iter().enumerate() {
            let place = format!("{}:{}", source.path, at + 1);
            for number in decisions(line) {
                followed += 1;
                if !numbers.contains(&number) {
                    wrong.push(format!("{place}: there is no decision {number}"));
                }
            }
            // Other documents have numbered decisions, too.
            if ["architecture, decision", "design decision"]
                .iter()
                .any(|other| line.contains(other))
            {
                wrong.push(format!("{place}: decisions are in docs/decisions"));
            }
            let name = |at: usize| line[at..].split([')', '`', ' ', '#']).next().unwrap();
            for (from, _) in line.match_indices("decisions/0") {
                let page = name(from);
                if page.ends_with(".md") && !root().join("docs").join(page).exists() {
                    wrong.push(format!("{place}: there is no {page}"));
                }
            }
        }
    }
    assert!(followed > 50, "{followed} references were found");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_scanner_sees_what_it_is_to_see() {
    assert!(is_tag("tx.T1") && is_tag("quota.Q12"));
    assert!(!is_tag("T1") && !is_tag("tx.t1") && !is_tag("tx.T") && !is_tag("Tx.T1"));
    assert_eq!(
        decisions("by decisions 17 to 20, as decision 3."),
        [17, 20, 3]
    );
    assert_eq!(
        decisions("[decision 6](decisions/0007-x.md) (decisions)"),
        [6, 7]
    );
    let lines = [
        "// tx.T1",
        "#[test]",
        "fn a() {",
        "// tx.T2",
        "go();",
        "assert!(x, \"tx.T3\");",
    ];
    let source = Source {
        path: String::new(),
        lines: lines.map(String::from).into(),
    };
    assert!(holds(&source, 0) && !holds(&source, 3) && holds(&source, 5));
    let lines = [
        "    fn declared(",
        "        &self,",
        "    ) -> u8;",
        "    pub(crate) unsafe fn short() {}",
        "    pub(in crate::x) const fn made<T>(",
        "    ) {",
        "        if x {",
        "        }",
        "    }",
        "// an fn is not one",
    ];
    let expected = [("declared", 1, 3), ("short", 4, 1), ("made", 5, 5)];
    assert_eq!(functions(&lines.map(String::from)), expected);
}

/// Most columns of a line in a document or a comment.
const COLUMNS: usize = 100;

/// Whether a line could have been broken before the last column. A row of a table could not.
fn is_too_long(line: &str) -> bool {
    let text = line.trim_start_matches([' ', '/', '!', '*', '-', '#']);
    line.chars().count() > COLUMNS && text.contains(' ') && !text.starts_with('|')
}

/// The wrapped lines of a document, without code.
fn prose(lines: &[String]) -> impl Iterator<Item = (usize, &String)> {
    let mut code = false;
    lines.iter().enumerate().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

#[test]
fn documents_and_comments_are_wrapped() {
    let mut long = String::new();
    let mut found = |source: &Source, at: usize| {
        let _ = write!(long, "\n{}:{}", source.path, at + 1);
    };
    let pages = [
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "SECURITY.md",
    ];
    for source in others(&[&pages[..], &["docs", "crates"]].concat(), ".md") {
        let lines = prose(&source.lines).filter(|(_, line)| is_too_long(line));
        lines.for_each(|(at, _)| found(&source, at));
    }
    let scripts = ["test", "demo", ".ci/run", ".cargo", "scripts", "contrib"];
    for (places, end, begin) in [
        (&["crates", "fuzz/targets"][..], ".rs", &["//"][..]),
        (&["crates", "include"], ".h", &["/*", "*"]),
        (&["crates"], ".c", &["/*", "*"]),
        (&["crates"], ".toml", &["#"]),
        (&scripts, "", &["#"]),
    ] {
        for source in others(places, end) {
            let comments = source.lines.iter().enumerate();
            let comments =
                comments.filter(|(_, line)| begin.iter().any(|b| line.trim_start().starts_with(b)));
            let long = comments.filter(|(_, line)| is_too_long(line));
            long.for_each(|(at, _)| found(&source, at));
        }
    }
    assert!(long.is_empty(), "longer than {COLUMNS} columns:{long}");
}

/// Most lines of a file and of a function of the product: longer ones have more than one subject.
const FILE: usize = 500;
const FUNCTION: usize = 80;

/// The lines of product code: those before the tests of the file.
fn product(source: &Source) -> &[String] {
    let lines = &source.lines;
    let tests = lines.iter().position(|l| l == "mod tests {");
    &lines[..tests.unwrap_or(lines.len())]
}

/// The functions in these lines, in rustfmt's layout: name, first line, number of lines.
fn functions(lines: &[String]) -> Vec<(&str, usize, usize)> {
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let text = line.trim_start();
        let Some((before, name)) = text.split_once("fn ") else {
            continue;
        };
        let is_item = |word: &str| {
            ["const", "unsafe", "extern", "\"C\"", "in"].contains(&word)
                || word.starts_with("pub")
                || word.ends_with(')')
        };
        let name = name.split(['(', '<']).next().unwrap();
        if !before.split_whitespace().all(is_item) || name.is_empty() {
            continue;
        }
        let indent = &line[..line.len() - text.len()];
        let rest = lines[at..].iter();
        // A declaration ends without a body.
        let opens = |l: &&String| l.ends_with('{') || l.ends_with('}') || l.ends_with(';');
        let head = rest.clone().position(|l| opens(&l)).unwrap_or(0);
        let end = format!("{indent}}}");
        let body = match lines[at + head].ends_with('{') {
            true => rest.skip(head).position(|l| *l == end).unwrap_or(0),
            false => 0,
        };
        found.push((name, at + 1, head + body + 1));
    }
    found
}

#[test]
fn files_and_functions_are_short() {
    let sources = others(&["crates"], ".rs");
    let is_product = |path: &str| path.contains("/src/") && !path.contains("tests");
    let (mut long, mut seen) = (String::new(), 0);
    for source in sources.iter().filter(|s| is_product(&s.path)) {
        let lines = product(source);
        if lines.len() > FILE {
            write!(long, "\n{} has {} lines", source.path, lines.len()).unwrap();
        }
        for (name, at, length) in functions(lines) {
            seen += 1;
            if length > FUNCTION {
                let place = format!("{}:{at}", source.path);
                write!(long, "\n{place}: {name} has {length} lines").unwrap();
            }
        }
    }
    assert!(seen > 5000, "{seen} functions were found");
    assert!(
        long.is_empty(),
        "longer than {FILE} or {FUNCTION} lines:{long}"
    );
}
