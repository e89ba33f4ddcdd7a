//! The kernel's results in a file: one section per row, one line per cell. A section holds only
//! cells whose outcome differs from the section `plain`.

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use super::rows::PLAIN;

/// The state that a crash right after the operation leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Survival {
    /// Not checked, or nothing had changed.
    Unasked,
    Kept,
    Lost,
    /// Neither the state before nor the state after; the differences from the latter.
    Part(String),
}

/// The outcome of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// `ok`, or the name of the error.
    pub(crate) result: String,
    pub(crate) changes: String,
    pub(crate) survival: Survival,
}

fn error_name(e: &io::Error) -> String {
    let name = match e.raw_os_error() {
        Some(libc::EPERM) => "EPERM",
        Some(libc::EACCES) => "EACCES",
        Some(libc::EEXIST) => "EEXIST",
        Some(libc::EINVAL) => "EINVAL",
        Some(libc::ENODATA) => "ENODATA",
        Some(libc::ENOSPC) => "ENOSPC",
        Some(libc::ENOTTY) => "ENOTTY",
        Some(libc::EOPNOTSUPP) => "EOPNOTSUPP",
        Some(libc::EROFS) => "EROFS",
        Some(libc::EXDEV) => "EXDEV",
        _ => return e.to_string(),
    };
    name.to_owned()
}

impl Outcome {
    pub(crate) fn new(result: &io::Result<()>, changes: String) -> Outcome {
        let result = match result {
            Ok(()) => "ok".to_owned(),
            Err(e) => error_name(e),
        };
        Outcome {
            result,
            changes,
            survival: Survival::Unasked,
        }
    }

    /// The operation failed, and changed nothing.
    pub(crate) fn of_error(e: &io::Error) -> Outcome {
        Outcome {
            result: error_name(e),
            changes: String::new(),
            survival: Survival::Unasked,
        }
    }

    /// The kernel has no such volume or mount.
    pub(crate) fn refused() -> Outcome {
        Outcome {
            result: "refused".to_owned(),
            changes: String::new(),
            survival: Survival::Unasked,
        }
    }

    /// Whether it equals `other`, as far as it was checked.
    fn is_as(&self, other: &Outcome) -> bool {
        let asked = self.survival != Survival::Unasked;
        self.result == other.result
            && self.changes == other.changes
            && (!asked || self.survival == other.survival)
    }

    /// How this falls short of the kernel's outcome; `None` if it does not. More may survive a
    /// crash.
    pub(crate) fn falls_short_of(&self, kernel: &Outcome) -> Option<String> {
        let lost = kernel.survival == Survival::Kept
            && !matches!(self.survival, Survival::Kept | Survival::Unasked);
        let same = self.result == kernel.result && self.changes == kernel.changes;
        (lost || !same).then(|| format!("kernel: {kernel}\n    here:   {self}"))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let survival = match &self.survival {
            Survival::Unasked => "",
            Survival::Kept => "kept",
            Survival::Lost => "lost",
            Survival::Part(what) => &format!("part: {what}"),
        };
        let line = format!("{}\t{}\t{survival}", self.result, self.changes);
        f.write_str(line.trim_end())
    }
}

impl From<&str> for Outcome {
    fn from(line: &str) -> Outcome {
        let mut fields = line.splitn(3, '\t');
        let mut next = || fields.next().unwrap_or_default().to_owned();
        Outcome {
            result: next(),
            changes: next(),
            survival: match next().as_str() {
                "" => Survival::Unasked,
                "kept" => Survival::Kept,
                "lost" => Survival::Lost,
                part => Survival::Part(part.trim_start_matches("part: ").to_owned()),
            },
        }
    }
}

/// Cells by operation.
pub(crate) type Cells = BTreeMap<String, Outcome>;

/// Sections by name, in the file's order.
pub(crate) struct Table(pub(crate) Vec<(String, Cells)>);

impl Table {
    pub(crate) fn read(text: &str) -> Table {
        let mut sections: Vec<(String, Cells)> = Vec::new();
        for line in text
            .lines()
            .filter(|l| !l.is_empty() && !l.starts_with('#'))
        {
            if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
                sections.push((name.to_owned(), Cells::new()));
            } else if let (Some((op, outcome)), Some((_, cells))) =
                (line.split_once('\t'), sections.last_mut())
            {
                cells.insert(op.to_owned(), outcome.into());
            } else {
                panic!("not a line of the table: {line:?}");
            }
        }
        Table(sections)
    }

    fn section(&self, name: &str) -> Option<&Cells> {
        self.0
            .iter()
            .find(|(n, _)| n == name)
            .map(|(_, cells)| cells)
    }

    /// The expected outcome of a cell.
    pub(crate) fn cell(&self, row: &str, op: &str) -> Option<&Outcome> {
        self.section(row)?
            .get(op)
            .or_else(|| self.section(PLAIN)?.get(op))
    }

    /// The file's text, below `head`.
    pub(crate) fn write(&self, head: &str) -> String {
        let plain = self.section(PLAIN).cloned().unwrap_or_default();
        let mut text = head.to_owned();
        for (name, cells) in &self.0 {
            text.push_str(&format!("\n[{name}]\n"));
            for (op, outcome) in cells {
                let same = |p: &Outcome| outcome.is_as(p);
                if name == PLAIN || !plain.get(op).is_some_and(same) {
                    text.push_str(&format!("{op}\t{outcome}\n"));
                }
            }
        }
        text
    }
}
