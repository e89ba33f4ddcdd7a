//! Tests of the language of comments, documents and names: a block begins with its subject, a noun,
//! and names are the standard terms of the field.
//!
//! A block that begins with a headless clause ("Who changes a block …", "What is asked of …") has
//! to be read twice.

use crate::sources::{Source, sources};

/// First words of headless clauses. A question may begin with one.
const HEADLESS: [&str; 10] = [
    "Who",
    "Whoever",
    "Whom",
    "Whose",
    "What",
    "Whatever",
    "Whichever",
    "Where",
    "Wherever",
    "Those",
];
/// Second words that make a headless clause of "One".
const OF_ONE: [&str; 4] = ["of", "that", "who", "whose"];

fn is_headless(text: &str) -> bool {
    let text = text.replace(['*', '#'], "");
    let mut words = text.split_whitespace();
    let (first, second) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    if text.ends_with('?') {
        return false;
    }
    HEADLESS.contains(&first) || first == "One" && OF_ONE.contains(&second)
}

/// The first lines of the comment blocks of a Rust source, each with its line number.
fn comment_heads(text: &str) -> Vec<(usize, &str)> {
    let (mut heads, mut before) = (Vec::new(), None);
    for (at, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let kind = ["///", "//!", "//"]
            .into_iter()
            .find(|k| line.starts_with(k));
        let body = kind.map_or("", |k| line[k.len()..].trim());
        if kind.is_some() && !body.is_empty() && before != kind {
            heads.push((at + 1, body));
        }
        // An empty line of documentation begins a paragraph, and a heading ends where it stands.
        before = kind.filter(|_| !body.is_empty() && !body.starts_with("# "));
    }
    heads
}

/// The lines of comments that begin with a sentence behind another one, each with its line number.
fn comment_sentences(text: &str) -> Vec<(usize, &str)> {
    let (mut sentences, mut ended) = (Vec::new(), false);
    for (at, line) in text.lines().enumerate() {
        let body = line.trim_start().strip_prefix("//");
        let body = body.map_or("", |body| body.trim_start_matches(['/', '!']).trim());
        if ended && !body.is_empty() {
            sentences.push((at + 1, body));
        }
        ended = body.ends_with('.');
    }
    sentences
}

/// The first lines of the paragraphs, items and headings of a document, each with its line number.
fn document_heads(text: &str) -> Vec<(usize, &str)> {
    let (mut heads, mut in_code, mut before) = (Vec::new(), false, "");
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with("```") {
            in_code = !in_code;
        } else if !in_code {
            let item = line.trim_start_matches(|c: char| c.is_ascii_digit());
            let item = ["* ", "- ", "+ ", ". "]
                .iter()
                .find_map(|m| item.strip_prefix(m));
            if before.is_empty() || item.is_some() || line.starts_with('#') {
                heads.push((at + 1, item.unwrap_or(line)));
            }
        }
        before = line;
    }
    heads
}

#[test]
fn blocks_begin_with_their_subject() {
    let pages = [
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "SECURITY.md",
        "crates",
        "docs",
    ];
    let (mut wrong, mut seen) = (Vec::new(), 0);
    let mut look = |source: &Source, heads: fn(&str) -> Vec<(usize, &str)>| {
        let text = source.lines.join("\n");
        let heads = heads(&text);
        seen += heads.len();
        let heads = heads.into_iter().filter(|(_, head)| is_headless(head));
        wrong.extend(heads.map(|(at, head)| format!("{}:{at}: {head}", source.path)));
    };
    for source in sources(&["crates"], ".rs") {
        look(&source, |text| {
            [comment_heads(text), comment_sentences(text)].concat()
        });
    }
    for source in sources(&pages, ".md") {
        look(&source, document_heads);
    }
    assert!(seen > 10_000, "the comments were found, not {seen}");
    assert!(wrong.is_empty(), "{} blocks: {wrong:#?}", wrong.len());
}

#[test]
fn the_scanner_finds_headless_clauses() {
    let text = "/// Who changes it.\n/// More.\n///\n/// A block.\nfn a() {}\n// What for?\n//! One of them";
    let heads = comment_heads(text);
    let lines: Vec<usize> = heads.iter().map(|(at, _)| *at).collect();
    assert_eq!(lines, [1, 4, 6, 7]);
    let headless = heads.iter().filter(|(_, head)| is_headless(head));
    assert_eq!(headless.map(|(at, _)| *at).collect::<Vec<_>>(), [1, 7]);
    let text = "/// # Errors\n/// Those of it.\n/// Where it is.\nlet x = 1.;\nWho";
    let headless = |heads: Vec<(usize, &str)>| {
        let headless = heads.iter().filter(|(_, head)| is_headless(head));
        headless.map(|(at, _)| *at).collect::<Vec<_>>()
    };
    assert_eq!(headless(comment_heads(text)), [2]);
    assert_eq!(headless(comment_sentences(text)), [3]);
    let text =
        "# Where it is\n\nA page\nWho reads on\n* **Those** of it\n1. One lane\n```\nWho\n```\n";
    let heads = document_heads(text);
    let headless = heads.iter().filter(|(_, head)| is_headless(head));
    assert_eq!(headless.map(|(at, _)| *at).collect::<Vec<_>>(), [1, 5]);
}

/// Names that have a standard term, each with that.
const NOT: [(&str, &str); 12] = [
    ("bring_home", "write_home"),
    ("goes_home", "is_written_home"),
    ("go_home", "write_home"),
    ("home_write", "checkpoint"),
    ("home_writes", "checkpoint"),
    ("flush_files", "write_back_files"),
    ("flusher", "write_back"),
    ("chain_one_way", "one_directional_edge"),
    ("walkers", "readdirplus_hint"),
    ("lately", "busy_window"),
    ("lead", "leader"),
    ("mended", "a switch of Canary"),
];

/// Functions, fields, types and files of the product have the standard terms.
#[test]
fn names_are_the_standard_terms() {
    let sources = sources(&["crates"], ".rs");
    assert!(sources.len() > 1000, "the sources were found");
    let mut wrong = Vec::new();
    for Source { path, lines } in &sources {
        for (name, better) in NOT {
            let declares = |line: &String| {
                let heads = ["fn ", "mod ", "struct ", "enum ", "const "];
                heads.iter().any(|head| {
                    let named = line.split_once(head).map(|(_, rest)| rest);
                    let named = named.and_then(|rest| rest.strip_prefix(name));
                    named.is_some_and(|rest| rest.starts_with(['(', '<', ';', ' ', ':']))
                })
            };
            let is_file = path.ends_with(&format!("/{name}.rs"));
            if is_file || lines.iter().any(declares) {
                wrong.push(format!("{path}: {name} is {better}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
