//! The options of commands that only look at a volume: where it is.

use std::path::PathBuf;

use stetfs::low::options::{Concern, OptionRow, VOLUME_OPTIONS, VolumeRequest, split};
use stetfs::low::{Source, did_you_mean};

use crate::failure::{Code, Failure, Result};

/// The volume at `path`, for a command with options that say where the volume is.
///
/// # Errors
/// An option is unknown or invalid.
pub(crate) fn source(path: PathBuf, text: &[String]) -> Result<Source> {
    source_and(path, text, &[], &mut |_, _| Ok(()))
}

/// The same for a command that also takes the options `more`: `take` gets the name and value of
/// each of them.
///
/// # Errors
/// As [`source`], and those of `take`.
pub(crate) fn source_and(
    path: PathBuf,
    text: &[String],
    more: &[&'static str],
    take: &mut dyn FnMut(&str, &str) -> std::result::Result<(), String>,
) -> Result<Source> {
    const PLACE: &[Concern] = &[Concern::Place];
    let mut request = VolumeRequest::default();
    let options = text.iter().flat_map(|text| text.split(','));
    for option in options.filter(|option| !option.is_empty()) {
        let (name, value) = split(option);
        let done = match more.contains(&name) {
            true => Some(take(name, value.unwrap_or_default())),
            false => request.set(PLACE, name, value),
        };
        match done {
            Some(done) => done.map_err(|why| wrong(format!("option {option}: {why}")))?,
            None => {
                let known = VolumeRequest::names(PLACE).chain(more.iter().copied());
                let meant = did_you_mean(name, known);
                return Err(wrong(format!("unknown option {option:?}{meant}")).hint(hint()));
            }
        }
    }
    request.source(path).map_err(wrong)
}

fn wrong(message: String) -> Failure {
    Failure::new(Code::Usage, message)
}

fn hint() -> String {
    let rows = VOLUME_OPTIONS.iter();
    let rows = rows.filter(|row| row.concern == Concern::Place);
    let usages: Vec<_> = rows.map(OptionRow::usage).collect();
    format!(
        "{} say where a volume is; others are for mounts",
        usages.join(", ")
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use stetfs::low::Part;

    use super::*;

    fn read(text: &str) -> std::result::Result<Part, String> {
        source("disk.img".into(), &[text.to_owned()])
            .map(|source| source.part)
            .map_err(|failure| failure.to_string())
    }

    #[test]
    fn a_part_is_bytes_or_a_partition() {
        let range = |offset, size| Ok(Part::Range { offset, size });
        assert_eq!(read(""), Ok(Part::Whole));
        assert_eq!(read("offset=1M"), range(1 << 20, None));
        assert_eq!(read("size=1024,offset=0"), range(0, Some(1024)));
        assert_eq!(read("partition=2"), Ok(Part::Partition("2".into())));
        assert!(
            read("partition=2,offset=5")
                .unwrap_err()
                .contains("one or the other")
        );
        for wrong in ["offset=-1", "size=much", "offset=99999999999999999999"] {
            assert!(
                read(wrong)
                    .unwrap_err()
                    .contains("must be a number of bytes"),
                "{wrong}"
            );
        }
        assert!(
            read("partition=")
                .unwrap_err()
                .contains("partition needs a value")
        );
        assert!(read("journal_path").unwrap_err().contains("needs a value"));
        let said = read("partiton=2").unwrap_err();
        assert!(said.contains("did you mean partition?"), "{said}");
        assert!(read("ro").unwrap_err().contains("unknown option"));
        assert!(read("home=share").unwrap_err().contains("unknown option"));
    }
}
