//! The names of an archive that the arguments choose: all or some, without those that are excluded.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// The chosen names.
pub(super) struct Chosen {
    /// The names that are wanted, with all below them; none for all.
    names: Vec<OsString>,
    /// Whether each of them was found.
    found: Vec<bool>,
    excluded: Vec<Vec<u8>>,
}

/// A name without `./` before it and slashes behind it.
fn bare(name: &[u8]) -> &[u8] {
    let mut name = name;
    while let Some(rest) = name.strip_prefix(b"./").or_else(|| name.strip_prefix(b"/")) {
        name = rest;
    }
    while let Some(rest) = name.strip_suffix(b"/") {
        name = rest;
    }
    if name == b"." { b"" } else { name }
}

impl Chosen {
    pub(super) fn new(names: &[OsString], excluded: &[OsString]) -> Chosen {
        let names = names
            .iter()
            .map(|name| OsString::from_vec(bare(name.as_bytes()).to_vec()));
        let names: Vec<_> = names.collect();
        Chosen {
            found: vec![false; names.len()],
            names,
            excluded: excluded
                .iter()
                .map(|p| bare(p.as_bytes()).to_vec())
                .collect(),
        }
    }

    /// Whether a name is excluded, itself or by a directory that it is below.
    pub(super) fn excludes(&self, name: &Path) -> bool {
        let name = bare(name.as_os_str().as_bytes());
        let ends = |at: &usize| *at == name.len() || name.get(*at) == Some(&b'/');
        let begins = |at: &usize| *at == 0 || name.get(*at - 1) == Some(&b'/');
        let pieces = (0..name.len()).filter(begins).flat_map(|from| {
            let to = (from + 1..=name.len()).filter(ends);
            to.map(move |to| name.get(from..to).unwrap_or_default())
        });
        let mut pieces = pieces.filter(|piece| self.excluded.iter().any(|p| matches(p, piece)));
        !self.excluded.is_empty() && pieces.next().is_some()
    }

    /// Whether an archived name is chosen.
    pub(super) fn takes(&mut self, name: &Path) -> bool {
        let bare = Path::new(std::ffi::OsStr::from_bytes(bare(
            name.as_os_str().as_bytes(),
        )));
        let wanted = self
            .names
            .iter()
            .position(|wanted| bare.starts_with(wanted));
        if let Some(found) = wanted.and_then(|at| self.found.get_mut(at)) {
            *found = true;
        }
        (wanted.is_some() || self.names.is_empty()) && !self.excludes(name)
    }

    /// The names that no name of the archive was, or was below.
    pub(super) fn missing(&self) -> impl Iterator<Item = &OsString> {
        let all = self.names.iter().zip(&self.found);
        all.filter(|(_, found)| !**found).map(|(name, _)| name)
    }
}

/// Whether a pattern matches a whole text: `*` and `?` stand for any bytes, slashes included, `[…]`
/// for one of several characters, `\` takes the meaning from the next character.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    // The last star, and the place in the text up to which it reaches.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        let rest = pattern.get(p..).unwrap_or_default();
        if rest.first() == Some(&b'*') {
            star = Some((p, t));
            p += 1;
            continue;
        }
        let byte = text.get(t).copied().unwrap_or_default();
        match one(rest, byte) {
            Some(len) => (p, t) = (p + len, t + 1),
            None => match &mut star {
                Some((at, reached)) => {
                    *reached += 1;
                    (p, t) = (*at + 1, *reached);
                }
                None => return false,
            },
        }
    }
    pattern
        .get(p..)
        .unwrap_or_default()
        .iter()
        .all(|b| *b == b'*')
}

/// The length of the first part of a pattern, if it matches a byte.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [b'[', rest @ ..] => match class(rest, byte) {
            Some((len, is_in)) => is_in.then_some(len + 1),
            None => (byte == b'[').then_some(1),
        },
        [first, ..] => (*first == byte).then_some(1),
        [] => None,
    }
}

/// The length of the class behind `[`, with its `]`, and whether the byte is in it. `None` if it
/// does not end.
fn class(rest: &[u8], byte: u8) -> Option<(usize, bool)> {
    let negated = matches!(rest.first(), Some(b'!' | b'^'));
    let begin = usize::from(negated);
    // A ] that comes first stands for itself.
    let end = rest.iter().skip(begin + 1).position(|b| *b == b']')? + begin + 1;
    let mut members = rest.get(begin..end)?;
    let mut is_in = false;
    while let [first, behind @ ..] = members {
        match behind {
            [b'-', last, behind @ ..] => {
                is_in |= (*first..=*last).contains(&byte);
                members = behind;
            }
            _ => {
                is_in |= *first == byte;
                members = behind;
            }
        }
    }
    Some((end + 1, is_in != negated))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_those_of_the_shell() {
        for (pattern, text, is) in [
            ("*.o", "a.o", true),
            ("*.o", "dir/a.o", true),
            ("*.o", "a.oo", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]x]", "]", true),
            ("[x", "[x", true),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
            ("a*b*c", "aXbYbZc", true),
            ("", "", true),
            ("**", "", true),
        ] {
            assert_eq!(
                matches(pattern.as_bytes(), text.as_bytes()),
                is,
                "{pattern} {text}"
            );
        }
        let mut chosen = Chosen::new(&["./d/".into()], &["*.o".into(), "sub".into()]);
        for (name, is) in [
            ("./d/", true),
            ("d/a", true),
            ("da", false),
            ("d/a.o", false),
            ("d/sub/x", false),
            ("d/subx", true),
            ("./", false),
        ] {
            assert_eq!(chosen.takes(Path::new(name)), is, "{name}");
        }
        assert_eq!(chosen.missing().count(), 0);
        assert_eq!(Chosen::new(&["x".into()], &[]).missing().count(), 1);
    }
}
