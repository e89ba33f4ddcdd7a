//! Names quoted as ls(1) does on a terminal (`--quoting-style=shell-escape`). A name chosen by a
//! stranger cannot send control sequences to the terminal, and can be pasted into a shell.

use std::fmt::Write as _;
use std::ops::Range;

use crate::failure::is_unseen;

/// A piece of a name: whether it needs an escape, and its range of bytes.
type Piece = (bool, Range<usize>);

/// The name, in quotes if it needs them.
pub(super) fn quoted(name: &[u8]) -> String {
    let pieces = pieces(name);
    let text =
        |at: &Range<usize>| String::from_utf8_lossy(name.get(at.clone()).unwrap_or_default());
    if let [] | [(false, _)] = pieces[..] {
        let text = text(&(0..name.len()));
        return match text {
            _ if is_plain(&text) => text.into_owned(),
            _ if text.contains('\'') && !text.contains(['"', '$', '`', '\\', '!']) => {
                format!("\"{text}\"")
            }
            _ => in_quotes(&text),
        };
    }
    let mut shown = String::new();
    for (n, (unseen, at)) in pieces.iter().enumerate() {
        if !unseen {
            shown.push_str(&in_quotes(&text(at)));
            continue;
        }
        shown.push_str(if n == 0 { "''$'" } else { "$'" });
        let bytes = name.get(at.clone()).unwrap_or_default();
        bytes.iter().for_each(|b| escape(*b, &mut shown));
        shown.push('\'');
    }
    shown
}

fn in_quotes(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

fn pieces(name: &[u8]) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    let mut add = |is_unseen: bool, len: usize| {
        let start = pieces.last().map_or(0, |(_, at)| at.end);
        match pieces.last_mut() {
            Some((last, at)) if *last == is_unseen => at.end += len,
            _ => pieces.push((is_unseen, start..start + len)),
        }
    };
    for chunk in name.utf8_chunks() {
        for c in chunk.valid().chars() {
            add(is_unseen(c), c.len_utf8());
        }
        if !chunk.invalid().is_empty() {
            add(true, chunk.invalid().len());
        }
    }
    pieces
}

fn escape(byte: u8, to: &mut String) {
    let letter = match byte {
        7 => 'a',
        8 => 'b',
        9 => 't',
        10 => 'n',
        11 => 'v',
        12 => 'f',
        13 => 'r',
        _ => {
            let _ = write!(to, "\\{byte:03o}");
            return;
        }
    };
    to.extend(['\\', letter]);
}

/// Whether a shell takes the text literally.
fn is_plain(text: &str) -> bool {
    let special = [
        ' ', '!', '"', '$', '&', '\'', '(', ')', '*', ';', '<', '=', '>', '?', '[', '\\', '^', '`',
        '|',
    ];
    !text.starts_with(['#', '~']) && !matches!(text, "" | "{" | "}") && !text.contains(special)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_as_ls_quotes_them() {
        for (name, shown) in [
            (&b"plain-1.txt"[..], "plain-1.txt"),
            (b"a b", "'a b'"),
            (b"it's", "\"it's\""),
            (b"it's $", r"'it'\''s $'"),
            (b"\x1b[31mred", r"''$'\033''[31mred'"),
            (b"a\nb\r", r"'a'$'\n''b'$'\r'"),
            (b"\xff\xfe", r"''$'\377\376'"),
            ("caf\u{e9}".as_bytes(), "caf\u{e9}"),
            ("a\u{202e}b".as_bytes(), r"'a'$'\342\200\256''b'"),
            (b"", "''"),
        ] {
            assert_eq!(quoted(name), shown);
        }
    }
}
