//! The words of a line, and their conversion to values.

use std::str::FromStr;

use crate::workload::op::held_number;

/// A line that is consumed word by word.
pub(super) struct Words<'a> {
    left: std::str::SplitWhitespace<'a>,
}

impl<'a> Words<'a> {
    pub(super) fn of(text: &'a str) -> Words<'a> {
        Words {
            left: text.split_whitespace(),
        }
    }

    /// The next word, which is not consumed.
    pub(super) fn ahead(&self) -> Option<&'a str> {
        self.left.clone().next()
    }

    pub(super) fn word(&mut self, what: &str) -> Result<&'a str, String> {
        self.left.next().ok_or_else(|| format!("{what} is missing"))
    }

    pub(super) fn path(&mut self, what: &str) -> Result<String, String> {
        let word = self.word(what)?;
        let path = word.trim_matches('/');
        Ok(if path == "." { "" } else { path }.into())
    }

    pub(super) fn number<T: FromStr>(&mut self, what: &str) -> Result<T, String> {
        let word = self.word(what)?;
        word.parse()
            .map_err(|_| format!("{what} must be a number, not {word:?}"))
    }

    pub(super) fn key(&mut self, line: usize) -> Result<u64, String> {
        match self.ahead() {
            Some(_) => self.number("the key"),
            None => Ok(line as u64),
        }
    }

    pub(super) fn mode(&mut self, default: Option<u32>) -> Result<u32, String> {
        match (self.left.next(), default) {
            (Some(word), _) => u32::from_str_radix(word, 8)
                .map_err(|_| format!("the mode is octal, e.g. 644, not {word:?}")),
            (None, Some(mode)) => Ok(mode),
            (None, None) => Err("the mode is missing".into()),
        }
    }

    /// A number to hold a file under; `free` if the line gives none.
    pub(super) fn held(&mut self, free: Option<u32>) -> Result<u32, String> {
        match (self.left.next(), free) {
            (Some(word), _) => {
                held_number(word).ok_or_else(|| format!("{word:?} is not of the form @N"))
            }
            (None, Some(free)) => Ok(free),
            (None, None) => Err("the number is missing: @N".into()),
        }
    }

    pub(super) fn keep(&mut self) -> Result<bool, String> {
        match self.left.next() {
            None => Ok(false),
            Some("keep") => Ok(true),
            Some(other) => Err(format!("{other:?} is not `keep`")),
        }
    }

    /// Checks that no word is left.
    pub(super) fn end(mut self) -> Result<(), String> {
        match self.left.next() {
            Some(more) => Err(format!("unexpected {more:?} at the end of the line")),
            None => Ok(()),
        }
    }
}
