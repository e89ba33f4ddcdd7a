//! Rows of options: names, values, defaults and help, and the setters that write them down.

use std::path::{Path, PathBuf};
use std::time::Duration;

use stetfs_journal::compose::{OptionHelp, one_of, size};
use stetfs_nbd::Address;

/// The largest number that any option takes.
pub const LARGEST: usize = 0xffff_ffff;

/// The subject of an option, which says where it applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concern {
    /// The place of the volume: of mounts, the library, and commands that only look at a volume.
    Place,
    /// One use of the volume: of mounts and the library. The laboratory decides these itself.
    Use,
    /// The file system and its journal: of mounts, the library and the laboratory.
    FileSystem,
    /// Options of one program alone, in a table of its own.
    Program,
}

/// The effect of a remount on an option.
pub enum Remount<T: 'static> {
    /// It changes the option.
    Changes,
    /// It leaves the option as it is, with a warning. The function takes from its second argument
    /// what the option sets, and returns whether that was another value.
    Keeps(fn(&mut T, &T) -> bool),
    /// It fails if the option is another.
    Refuses,
}

/// A word that an option takes, and its setter.
pub type Word<T> = (&'static str, fn(&mut T));

/// The values that a name takes, and the setter for them.
pub enum Value<T: 'static> {
    /// The name alone.
    Flag(fn(&mut T)),
    /// A number between two, both included.
    Number {
        /// The least number.
        least: usize,
        /// The largest number; messages do not name [`LARGEST`].
        most: usize,
        /// Its setter.
        set: fn(&mut T, usize),
    },
    /// Whole seconds.
    Seconds(fn(&mut T, u32)),
    /// Seconds, or a fraction of one.
    Time(fn(&mut T, Duration)),
    /// A size in bytes, such as `256M`. The setter returns why a size cannot be, as the end of a
    /// sentence.
    Size(fn(&mut T, u64) -> Result<(), String>),
    /// Bytes from 0 on, such as `1048576` or `1M`.
    Bytes(fn(&mut T, u64)),
    /// Any of a few words, each with its setter.
    Words(&'static [Word<T>]),
    /// A path; the setter gets an absolute one, or an address of an NBD server.
    Path(fn(&mut T, PathBuf)),
    /// Text of another form.
    Text {
        /// The form, as help shows it.
        form: &'static str,
        /// Its setter, which returns why a text cannot be, as a sentence.
        set: fn(&mut T, &str) -> Result<(), String>,
    },
}

impl<T> Value<T> {
    /// The form of the value as help shows it; `None` of a name alone.
    fn form(&self) -> Option<String> {
        Some(match self {
            Value::Flag(_) => return None,
            Value::Number { .. } => "N".into(),
            Value::Seconds(_) | Value::Time(_) => "SECONDS".into(),
            Value::Size(_) => "SIZE".into(),
            Value::Bytes(_) => "BYTES".into(),
            Value::Words(words) => words
                .iter()
                .map(|(word, _)| *word)
                .collect::<Vec<_>>()
                .join("|"),
            Value::Path(_) => "PATH".into(),
            Value::Text { form, .. } => (*form).into(),
        })
    }

    /// Reads a value into `target`. An error is a sentence.
    fn set(&self, target: &mut T, name: &str, text: &str) -> Result<(), String> {
        if let Value::Text { set, .. } = self {
            return match text {
                "" => Err(format!("{name} needs a value")),
                text => set(target, text),
            };
        }
        self.set_plain(target, text)
            .map_err(|why| format!("{name} {why}"))
    }

    /// The same of all but text. An error is a sentence without its subject, the option.
    fn set_plain(&self, target: &mut T, text: &str) -> Result<(), String> {
        if text.is_empty() {
            return Err("needs a value".into());
        }
        match self {
            Value::Number { least, most, set } => {
                let n = text.parse().ok().filter(|n| (least..=most).contains(&n));
                set(target, n.ok_or_else(|| bounds(*least, *most))?);
            }
            Value::Seconds(set) => {
                let seconds = text.parse();
                set(
                    target,
                    seconds.map_err(|_| "must be a number of seconds, such as 5")?,
                );
            }
            Value::Time(set) => {
                let seconds = text.parse().ok();
                let time = seconds.and_then(|s| Duration::try_from_secs_f64(s).ok());
                set(
                    target,
                    time.ok_or("must be a number of seconds, such as 30 or 0.5")?,
                );
            }
            Value::Size(set) => set(target, size::bytes(text)?)?,
            Value::Bytes(set) => {
                let bytes = size::bytes(text);
                let bytes =
                    bytes.map_err(|_| "must be a number of bytes, such as 1048576 or 1M")?;
                set(target, bytes);
            }
            Value::Words(words) => match words.iter().find(|(word, _)| *word == text) {
                Some((_, set)) => set(target),
                None => {
                    let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                    one_of(&words, text)?;
                }
            },
            Value::Path(set) => {
                let path = match Address::is_meant(Path::new(text)) {
                    true => Ok(text.into()),
                    false => std::path::absolute(text),
                };
                set(target, path.map_err(|e| format!("must be a path ({e})"))?);
            }
            // A name alone is set by `set`, text by the method above.
            Value::Flag(_) | Value::Text { .. } => {}
        }
        Ok(())
    }
}

fn bounds(least: usize, most: usize) -> String {
    match most {
        LARGEST => format!("must be a number, {least} or more"),
        _ => format!("must be a number from {least} to {most}"),
    }
}

/// A row: an option, with its opposites and other names.
pub struct OptionRow<T: 'static> {
    /// The names and their values. A name may stand twice, alone and with a value.
    pub words: &'static [(&'static str, Value<T>)],
    /// The value where nobody says one; empty where it is plain.
    pub default: &'static str,
    /// Its meaning, in a line.
    pub help: &'static str,
    /// Its subject, which says where it applies.
    pub concern: Concern,
    /// The effect of a remount on it.
    pub remount: Remount<T>,
}

impl<T> OptionRow<T> {
    /// The row as help shows it.
    pub fn help(&self) -> OptionHelp {
        let default = match self.default {
            "" => String::new(),
            default => format!(" ({default})"),
        };
        OptionHelp {
            usage: self.usage(),
            help: vec![format!("{}{default}", self.help)],
        }
    }

    /// Its names with the forms of their values, such as `nobarrier, barrier=0|1`. A name that may
    /// stand alone, too, is shown with its value.
    pub fn usage(&self) -> String {
        let forms = self.words.iter().map(|(name, value)| (*name, value.form()));
        let forms: Vec<_> = forms.collect();
        let is_shown = |name: &str, form: &Option<String>| {
            let with_value =
                |(other, form): &(&str, Option<String>)| *other == name && form.is_some();
            form.is_some() || !forms.iter().any(with_value)
        };
        let shown = forms.iter().filter(|(name, form)| is_shown(name, form));
        let shown = shown.map(|(name, form)| match form {
            Some(form) => format!("{name}={form}"),
            None => (*name).to_owned(),
        });
        shown.collect::<Vec<_>>().join(", ")
    }
}

/// The name and the value of an option as it is written.
pub fn split(option: &str) -> (&str, Option<&str>) {
    match option.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (option, None),
    }
}

/// The names of rows; one that may stand alone and with a value is there twice.
pub fn names<T>(rows: &'static [OptionRow<T>]) -> impl Iterator<Item = &'static str> {
    rows.iter().flat_map(|row| row.words).map(|(name, _)| *name)
}

/// The row of an option that takes a value, or none, as it is said here.
pub(super) fn find<T>(
    rows: &'static [OptionRow<T>],
    name: &str,
    value: Option<&str>,
) -> Option<(&'static OptionRow<T>, &'static Value<T>)> {
    let words = rows.iter().flat_map(|row| {
        row.words
            .iter()
            .map(move |(name, value)| (row, *name, value))
    });
    let mut fits = words.filter(|(_, known, takes)| {
        *known == name && value.is_some() != matches!(takes, Value::Flag(_))
    });
    fits.next().map(|(row, _, value)| (row, value))
}

/// Sets the option of one of the rows in `target`; `None` if no row has its name. An error is a
/// sentence.
pub fn set<T>(
    rows: &'static [OptionRow<T>],
    target: &mut T,
    name: &str,
    value: Option<&str>,
) -> Option<Result<(), String>> {
    match (find(rows, name, value), value) {
        (Some((_, Value::Flag(set))), None) => {
            set(target);
            Some(Ok(()))
        }
        (Some((_, takes)), Some(value)) => Some(takes.set(target, name, value)),
        _ => names(rows)
            .any(|known| known == name)
            .then(|| Err(misfit(name, value))),
    }
}

/// The error for a known option that lacks a value, or has one too many.
pub(super) fn misfit(name: &str, value: Option<&str>) -> String {
    match value {
        Some(_) => format!("{name} takes no value"),
        None => format!("{name} needs a value"),
    }
}

/// Takes the value of a field from `now`; returns whether it was another. For [`Remount::Keeps`].
pub fn keep<F: Clone + PartialEq>(own: &mut F, now: &F) -> bool {
    let differs = own != now;
    own.clone_from(now);
    differs
}

/// Takes from `now`, the options of a mount, what no remount changes ([`Remount::Keeps`]); returns
/// the names of the options that were to be others.
pub fn kept<T>(rows: &'static [OptionRow<T>], own: &mut T, now: &T) -> Vec<&'static str> {
    let kept = rows.iter().filter(|row| match row.remount {
        Remount::Keeps(keep) => keep(own, now),
        Remount::Changes | Remount::Refuses => false,
    });
    kept.filter_map(|row| row.words.first().map(|(name, _)| *name))
        .collect()
}
