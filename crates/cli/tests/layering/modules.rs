//! The modules of a crate and their imports, read from the sources.
//!
//! A module is a file. It imports the targets of its `use` trees and of its qualified paths; a name
//! that another module re-exports (`pub use`) counts for the module that declares it. It calls the
//! modules that declare the methods of `self` which it calls. Tests, comments and string literals
//! are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::methods::{Method, Methods};

/// The modules that each module refers to.
pub(super) type Edges = BTreeMap<String, BTreeSet<String>>;

/// A path of modules, possibly with an item at the end.
type Names = Vec<String>;

/// The modules of a crate.
pub(super) struct Modules {
    files: BTreeMap<Names, File>,
}

/// The references of a file to other modules.
#[derive(Default)]
struct File {
    /// Names that `use` brings into scope: the local name and the path.
    uses: Vec<Use>,
    /// Qualified paths outside of `use`, as they are written.
    paths: Vec<Names>,
    methods: Methods,
    /// All other words.
    words: BTreeSet<String>,
}

struct Use {
    name: String,
    path: Names,
    /// The name is re-exported.
    public: bool,
}

impl Modules {
    /// Reads the modules below a folder of sources.
    pub(super) fn read(src: &Path) -> Modules {
        let mut files = BTreeMap::new();
        read_folder(src, &mut Vec::new(), &mut files);
        Modules { files }
    }

    /// The imports of each module.
    pub(super) fn imports(&self) -> Edges {
        let mut edges = Edges::new();
        for (module, file) in &self.files {
            let used = file.uses.iter();
            // A name that is only re-exported is not used by the module itself.
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

    /// The other modules whose methods each module calls.
    pub(super) fn calls(&self) -> Edges {
        let mut declared: BTreeMap<&Method, Vec<&Names>> = BTreeMap::new();
        for (module, file) in &self.files {
            for method in &file.methods.declared {
                declared.entry(method).or_default().push(module);
            }
        }
        let mut edges = Edges::new();
        for (module, file) in &self.files {
            let called = file.methods.called.iter();
            let common = |to: &&&Names| to.iter().zip(module).take_while(|(a, b)| a == b).count();
            // Types of one name may be in several folders: the nearest is meant.
            let called =
                called.filter_map(|method| declared.get(method)?.iter().max_by_key(common));
            for to in called.filter(|to| **to != module) {
                edges.entry(shown(module)).or_default().insert(shown(to));
            }
        }
        edges
    }

    /// The folder of a module: its own if it has one.
    pub(super) fn folder<'m>(&self, module: &'m str) -> &'m str {
        let inside = format!("{module}::");
        let has_own = self.files.keys().any(|m| shown(m).starts_with(&inside));
        match module.rsplit_once("::") {
            Some((folder, _)) if !has_own => folder,
            _ => module,
        }
    }

    /// The module that declares the target of a path in `module`; `None` if no module of the crate
    /// does.
    fn declares(&self, module: &Names, path: &[String], depth: usize) -> Option<Names> {
        // Two modules may re-export a name from each other.
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

/// The circles: sets of modules that refer to each other, directly or indirectly.
pub(super) fn circles(edges: &Edges) -> BTreeSet<BTreeSet<String>> {
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
    circles
}

/// The name of a module as a path.
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
        let mut file = File {
            methods: Methods::of(&words),
            ..File::default()
        };
        let (mut words, mut before) = (Words(&words), "");
        while let Some(word) = words.next() {
            // A visibility (`pub(in path)`) imports nothing.
            if word == "pub" && words.peek() == "(" {
                while !["", ")"].contains(&words.peek()) {
                    words.next();
                }
            }
            // `use<'a>` lists the captures of a type.
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

    /// Reads a tree of `use`, or one of its branches, below the path `above`.
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

/// The rest of a file that is still to be read.
struct Words<'w>(&'w [&'w str]);

impl<'w> Words<'w> {
    fn next(&mut self) -> Option<&'w str> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// The next word; empty at the end.
    fn peek(&self) -> &'w str {
        self.0.first().copied().unwrap_or_default()
    }

    /// The word after the next.
    fn behind(&self) -> &'w str {
        self.0.get(1).copied().unwrap_or_default()
    }
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// The words and signs of a source text.
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

/// The length of a string or character literal at the start, bytes; `None` if there is none.
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

/// Removes items with `#[cfg(test)]`.
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

/// The number of words of the item, or field, that begins here.
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
    let edges: Vec<_> = plain.imports().into_iter().collect();
    let set = |all: &[&str]| all.iter().map(|m| m.to_string()).collect::<BTreeSet<_>>();
    let b = ("b".to_owned(), set(&["a::deep", "c"]));
    assert_eq!(edges, [b, ("c".to_owned(), set(&["a::deep"]))]);
    assert!(circles(&plain.imports()).is_empty());
    let circle = circles(&modules("pub struct Deep(super::super::c::C);").imports());
    assert_eq!(circle, [set(&["a::deep", "c"])].into());
    let split = modules("impl C { fn x(&self) { self.y() } } impl c::C { fn y(&self) {} }");
    assert!(split.calls().is_empty(), "both are in one file");
    assert_eq!((split.folder("a::deep"), split.folder("a")), ("a", "a"));
}
