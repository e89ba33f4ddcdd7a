//! Changes of permissions as chmod(1) reads them: octal numbers and symbolic clauses.

use std::str::FromStr;

const SET_ID: u32 = 0o6000;
const STICKY: u32 = 0o1000;
const ALL: u32 = 0o7777;
const ANY_X: u32 = 0o111;

/// The action of a clause on the bits it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Set,
    Add,
    Remove,
}

/// The bits that a clause names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bits {
    /// These, for all classes of users.
    Fixed {
        bits: u32,
        /// `X`: execution too, of directories and of files that somebody may execute.
        execute_if_any: bool,
    },
    /// The permissions of the class at this shift.
    Copied(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Clause {
    /// The bits of the named classes of users; `None` for those that the umask leaves.
    classes: Option<u32>,
    action: Action,
    bits: Bits,
    /// The clause names the set-id bits, whether they are set in it or not: an octal number of five
    /// digits or behind an operator.
    names_set_id: bool,
}

/// A change of permissions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModeChange(Vec<Clause>);

impl FromStr for ModeChange {
    type Err = String;

    fn from_str(text: &str) -> Result<ModeChange, String> {
        let wrong = || "must be an octal number or clauses such as u+x,go-w".to_owned();
        let bytes = text.as_bytes();
        if bytes.first().is_some_and(u8::is_ascii_digit) {
            return Ok(ModeChange(vec![
                number(bytes, Action::Set).ok_or_else(wrong)?,
            ]));
        }
        let mut clauses = Vec::new();
        for part in bytes.split(|b| *b == b',') {
            read(part, &mut clauses).ok_or_else(wrong)?;
        }
        Ok(ModeChange(clauses))
    }
}

fn number(digits: &[u8], action: Action) -> Option<Clause> {
    let text = str::from_utf8(digits).ok()?;
    let bits = u32::from_str_radix(text, 8).ok().filter(|n| *n <= ALL)?;
    Some(Clause {
        classes: Some(ALL),
        action,
        bits: Bits::Fixed {
            bits,
            execute_if_any: false,
        },
        names_set_id: digits.len() >= 5,
    })
}

/// Reads `[ugoa]*([-+=]PERMISSIONS)+`, where PERMISSIONS are letters, a class, or octal digits.
fn read(part: &[u8], to: &mut Vec<Clause>) -> Option<()> {
    let names = part.iter().take_while(|b| b"ugoa".contains(b)).count();
    let (names, mut rest) = part.split_at(names);
    let classes = names.iter().map(|name| match name {
        b'u' => 0o4700,
        b'g' => 0o2070,
        b'o' => 0o1007,
        _ => ALL,
    });
    let classes = classes.reduce(|all, class| all | class);
    if rest.is_empty() {
        return None;
    }
    while let Some((action, behind)) = rest.split_first() {
        let action = match action {
            b'=' => Action::Set,
            b'+' => Action::Add,
            b'-' => Action::Remove,
            _ => return None,
        };
        let end = behind.iter().position(|b| b"=+-".contains(b));
        let (said, next) = behind.split_at(end.unwrap_or(behind.len()));
        rest = next;
        if said.first().is_some_and(u8::is_ascii_digit) {
            let clause = number(said, action).filter(|_| classes.is_none())?;
            to.push(Clause {
                names_set_id: true,
                ..clause
            });
            continue;
        }
        to.push(Clause {
            classes,
            action,
            bits: letters(said)?,
            names_set_id: false,
        });
    }
    Some(())
}

fn letters(said: &[u8]) -> Option<Bits> {
    match said {
        b"u" => return Some(Bits::Copied(6)),
        b"g" => return Some(Bits::Copied(3)),
        b"o" => return Some(Bits::Copied(0)),
        _ => {}
    }
    let (mut bits, mut execute_if_any) = (0, false);
    for letter in said {
        match letter {
            b'r' => bits |= 0o444,
            b'w' => bits |= 0o222,
            b'x' => bits |= ANY_X,
            b's' => bits |= SET_ID,
            b't' => bits |= STICKY,
            b'X' => execute_if_any = true,
            _ => return None,
        }
    }
    Some(Bits::Fixed {
        bits,
        execute_if_any,
    })
}

impl ModeChange {
    /// The permissions (12 bits) that a file with permissions `mode` gets. `umask` are the bits
    /// that clauses without classes leave alone.
    pub(crate) fn apply(&self, mode: u32, is_dir: bool, umask: u32) -> u32 {
        let mode = mode & ALL;
        self.0
            .iter()
            .fold(mode, |mode, clause| clause.apply(mode, is_dir, umask))
    }
}

impl Clause {
    fn apply(&self, mode: u32, is_dir: bool, umask: u32) -> u32 {
        let bits = match self.bits {
            Bits::Fixed {
                bits,
                execute_if_any,
            } => {
                let executes = execute_if_any && (is_dir || mode & ANY_X != 0);
                bits | if executes { ANY_X } else { 0 }
            }
            Bits::Copied(shift) => 0o111 * (mode >> shift & 7),
        };
        // The set-id bits of a directory change only where they are named.
        let named = bits & self.classes.unwrap_or(ALL);
        let kept = match is_dir && !self.names_set_id {
            true => SET_ID & !named,
            false => 0,
        };
        let value = bits & self.classes.unwrap_or(!umask) & !kept;
        match self.action {
            Action::Add => mode | value,
            Action::Remove => mode & !value,
            Action::Set => mode & (self.classes.map_or(0, |classes| !classes) | kept) | value,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_read_as_chmod_reads_them() {
        for (change, mode, is_dir, becomes) in [
            ("755", 0o644, false, 0o755),
            ("u+x", 0o644, false, 0o744),
            ("+w", 0o444, false, 0o644),
            ("a=rX", 0o700, false, 0o555),
            ("a=rX", 0o600, true, 0o555),
            ("g=u,o=", 0o640, false, 0o660),
            ("u+s,g+s", 0o755, false, 0o6755),
            ("u=rwx", 0o6755, true, 0o6755),
            ("755", 0o2700, true, 0o2755),
            ("00755", 0o2700, true, 0o755),
            ("=755", 0o2700, true, 0o755),
            ("+111", 0o644, false, 0o755),
            ("755", 0o2700, false, 0o755),
            ("g-s", 0o2755, true, 0o755),
            ("+t", 0o777, true, 0o1777),
            ("u=rw,go=r-r", 0o777, false, 0o600),
            ("=", 0o777, false, 0),
        ] {
            let parsed: ModeChange = change.parse().unwrap();
            let got = parsed.apply(mode, is_dir, 0o022);
            assert_eq!(got, becomes, "{change} of {mode:o}: {got:o}");
        }
        for wrong in ["", "8", "77777", "u", "u+q", "u+r,", "x+r", "u=7", "ug"] {
            assert!(wrong.parse::<ModeChange>().is_err(), "{wrong}");
        }
    }
}
