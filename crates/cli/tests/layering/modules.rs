//! The modules of a crate, and which of them imports which, read off the sources.
//!
//! A module is a file. It imports what its `use` trees and its qualified paths name; a name that
//! another module only passes on (`pub use`) counts as the module's that declares it. What is
//! called as a method cannot be seen. Tests, comments and texts are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A path of modules and, perhaps, an item behind them.
type Names = Vec<String>;

/// The modules of a crate.
pub(super) struct Modules {
    files: BTreeMap<Names, File>,
}

/// What a file says of others.
#[derive(Default)]
struct File {
    /// Names that `use` brings: what they are called here, and what they are.
    uses: Vec<Use>,
    /// Qualified paths outside of these, as they are written.
    paths: Vec<Names>,
    /// All other words.
    words: BTreeSet<String>,
}

struct Use {
    name: String,
    path: Names,
    /// It is passed on to others.
    public: bool,
}

impl Modules {
    /// Those below a folder of sources.
    pub(super) fn read(src: &Path) -> Modules {
        let mut files = BTreeMap::new();
        read_folder(src, &mut Vec::new(), &mut files);
        Modules { files }
    }

    /// The circles: the modules of each that import each other, directly or by way of others.
    pub(super) fn circles(&self) -> Vec<BTreeSet<String>> {
        let edges = self.edges();
        let above = |from: &String| {
            let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
            while let Some(module) = next.pop() {
                for to in edges.get(module).into_iter().flatten() {
                    if seen.insert(to.clone()) {
                        next.push(to);
                    }
                }
            }
            seen
        };
        let reach: BTreeMap<&String, _> = edges.keys().map(|m| (m, above(m))).collect();
        let mut circles = BTreeSet::new();
        for (module, reached) in reach.iter().filter(|(m, reached)| reached.contains(**m)) {
            let back = |other: &&String| reach.get(*other).is_some_and(|r| r.contains(*module));
            circles.insert(reached.iter().filter(back).cloned().collect());
        }
        circles.into_iter().collect()
    }

    /// What each module imports.
    pub(super) fn edges(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (module, file) in &self.files {
            let used = file.uses.iter();
            // Who only passes a name on does not need it.
            let used = used.filter(|u| !u.public || file.words.contains(&u.name));
            for path in used.map(|u| &u.path).chain(&file.paths) {
                let Some(to) = self.declares(module, path, 0) else {
                    continue;
                };
                if to != *module {
                    edges.entry(shown(module)).or_default().insert(shown(&to));
                }
            }
        }
        edges
    }

    /// The module that declares what a path in `module` names; `None` if it is no module of the
    /// crate.
    fn declares(&self, module: &Names, path: &[String], depth: usize) -> Option<Names> {
        // Two modules may pass one name on to each other.
        let (first, rest) = path.split_first().filter(|_| depth < 8)?;
        let mut at = module.clone();
        let mut rest = rest;
        match first.as_str() {
            "crate" => at.clear(),
            "self" => {}
            "super" => {
                at.pop()?;
                while let Some(more) = rest.strip_prefix(&["super".to_owned()]) {
                    at.pop()?;
                    rest = more;
                }
            }
            child => {
                at.push(child.to_owned());
                self.files.get(&at)?;
            }
        }
        while let Some((next, more)) = rest.split_first() {
            at.push(next.clone());
            if !self.files.contains_key(&at) {
                at.pop();
                let passed = self.files.get(&at)?.uses.iter();
                let mut passed = passed.filter(|u| u.name == *next);
                let on = passed.find_map(|u| {
                    let onward: Names = u.path.iter().chain(more).cloned().collect();
                    self.declares(&at, &onward, depth + 1)
                });
                return Some(on.unwrap_or(at));
            }
            rest = more;
        }
        Some(at)
    }
}

/// A module as a reader knows it.
fn shown(module: &Names) -> String {
    match &module[..] {
        [] => "crate".into(),
        names => names.join("::"),
    }
}

fn read_folder(folder: &Path, module: &mut Names, files: &mut BTreeMap<Names, File>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if name == "testing" || name.ends_with("tests") {
            continue;
        }
        let is_own = ["mod", "lib", "main"].contains(&name.as_str());
        if !is_own {
            module.push(name);
        }
        if path.is_dir() {
            read_folder(&path, module, files);
        } else {
            let text = std::fs::read_to_string(&path).unwrap();
            files.insert(module.clone(), File::parse(&text));
        }
        if !is_own {
            module.pop();
        }
    }
}

impl File {
    fn parse(text: &str) -> File {
        let words = without_tests(&words(text));
        let mut words = Words(&words);
        let (mut file, mut before) = (File::default(), "");
        while let Some(word) = words.next() {
            // Who may see something (`pub(in path)`) imports nothing.
            if word == "pub" && words.peek() == "(" {
                while !["", ")"].contains(&words.peek()) {
                    words.next();
                }
            }
            // `use<'a>` says what a type captures.
            if word == "use" && words.peek() != "<" {
                file.add_tree(&mut words, &[], ["pub", ")"].contains(&before));
            } else if is_name(word) {
                file.words.insert(word.to_owned());
                let mut path = vec![word.to_owned()];
                while words.peek() == "::" && is_name(words.behind()) {
                    words.next();
                    path.extend(words.next().map(str::to_owned));
                }
                if path.len() > 1 {
                    file.paths.push(path);
                }
            }
            before = word;
        }
        file
    }

    /// Reads a tree of `use`, or one of its branches, that hangs below `above`.
    fn add_tree(&mut self, words: &mut Words<'_>, above: &[String], public: bool) {
        let mut path = above.to_vec();
        let mut name = None;
        loop {
            match words.peek() {
                "{" => {
                    words.next();
                    while !["}", ";", ""].contains(&words.peek()) {
                        self.add_tree(words, &path, public);
                        if words.peek() == "," {
                            words.next();
                        }
                    }
                    words.next();
                    return;
                }
                "," | "}" | ";" | "" => break,
                "as" => {
                    words.next();
                    name = words.next().map(str::to_owned);
                }
                "::" => drop(words.next()),
                _ => path.extend(words.next().map(str::to_owned)),
            }
        }
        path.pop_if(|last| last == "self" && !above.is_empty());
        if let Some(name) = name.or_else(|| path.last().cloned()) {
            self.uses.push(Use { name, path, public });
        }
    }
}

/// What is still to be read of a file.
struct Words<'w>(&'w [&'w str]);

impl<'w> Words<'w> {
    fn next(&mut self) -> Option<&'w str> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// The next word; nothing at the end.
    fn peek(&self) -> &'w str {
        self.0.first().copied().unwrap_or_default()
    }

    /// The one behind it.
    fn behind(&self) -> &'w str {
        self.0.get(1).copied().unwrap_or_default()
    }
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// The words and signs of a source.
fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let in_name = |c: char| c.is_alphanumeric() || c == '_';
        let mut counts = false;
        let len = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |at| at + 2)
        } else if let Some(len) = text_len(rest) {
            len
        } else {
            counts = !first.is_whitespace();
            match first {
                ':' if rest.starts_with("::") => 2,
                c if in_name(c) => rest.find(|c| !in_name(c)).unwrap_or(rest.len()),
                c => c.len_utf8(),
            }
        };
        let (word, more) = rest.split_at(len);
        if counts {
            words.push(word);
        }
        rest = more;
    }
    words
}

/// Bytes of the literal of a text or a character, if there is one.
fn text_len(rest: &str) -> Option<usize> {
    let raw = rest
        .strip_prefix('r')
        .map(|raw| raw.trim_start_matches('#'));
    if let Some(inner) = raw.and_then(|raw| raw.strip_prefix('"')) {
        let begin = rest.len() - inner.len();
        let end = format!("\"{}", "#".repeat(begin - 2));
        return Some(
            inner
                .find(&end)
                .map_or(rest.len(), |at| begin + at + end.len()),
        );
    }
    let quote = rest.chars().next().filter(|c| ['"', '\''].contains(c))?;
    let mut chars = rest.char_indices().skip(1);
    let is_lifetime =
        quote == '\'' && !rest.starts_with("'\\") && rest.chars().nth(2) != Some(quote);
    if is_lifetime {
        return None;
    }
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            c if c == quote => return Some(at + 1),
            _ => {}
        }
    }
    Some(rest.len())
}

/// Leaves out what is `#[cfg(test)]`.
fn without_tests<'w>(words: &[&'w str]) -> Vec<&'w str> {
    const MARK: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut left = Vec::new();
    let mut words = words;
    while let Some((word, rest)) = words.split_first() {
        if let Some(item) = words.strip_prefix(&MARK) {
            words = &item[item_len(item)..];
        } else {
            left.push(*word);
            words = rest;
        }
    }
    left
}

/// Words of the item, or field, that begins here.
fn item_len(words: &[&str]) -> usize {
    let mut depth = 0;
    for (at, word) in words.iter().enumerate() {
        match *word {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" => depth -= 1,
            "}" if depth == 0 => return at,
            "}" => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            ";" | "," if depth == 0 => return at + 1,
            _ => {}
        }
    }
    words.len()
}

#[test]
fn circles_are_seen_through_trees_and_what_is_passed_on() {
    let modules = |below: &str| {
        let texts = [
            ("", "mod a; mod b; mod c; pub use a::deep::Deep;"),
            (
                "a",
                "mod deep; pub(crate) use deep::Deep; const C: &str = \"crate::c::C\";",
            ),
            ("a::deep", below),
            ("b", "use crate::{a::{Deep as D}, c::C}; // crate::b"),
            (
                "c",
                "fn f(d: crate::Deep) {} #[cfg(test)] mod tests { use crate::b::B; } struct C;",
            ),
        ];
        let name = |name: &str| {
            name.split("::")
                .filter(|n| !n.is_empty())
                .map(Into::into)
                .collect()
        };
        Modules {
            files: texts.map(|(n, text)| (name(n), File::parse(text))).into(),
        }
    };
    let plain = modules("pub struct Deep;");
    let edges: Vec<_> = plain.edges().into_iter().collect();
    let set = |all: &[&str]| all.iter().map(|m| m.to_string()).collect::<BTreeSet<_>>();
    let b = ("b".to_owned(), set(&["a::deep", "c"]));
    assert_eq!(edges, [b, ("c".to_owned(), set(&["a::deep"]))]);
    assert!(plain.circles().is_empty());
    let circle = modules("pub struct Deep(super::super::c::C);").circles();
    assert_eq!(circle, [set(&["a::deep", "c"])]);
}
