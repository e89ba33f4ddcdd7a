//! `offset=`, `size=` and `partition=`: which part of an image or a device a volume is.

use std::path::PathBuf;

use stetfs::low::{Part, RegionFile, Source, did_you_mean, size};

use crate::failure::{Code, Failure, Result};

/// The options.
pub(crate) const NAMES: [&str; 3] = ["offset", "size", "partition"];

/// What was said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PartOptions {
    offset: Option<u64>,
    size: Option<u64>,
    partition: Option<String>,
}

impl PartOptions {
    /// Reads one of the options; `None` if it is another. What is wrong is a sentence without its
    /// subject, the option.
    pub(crate) fn set(
        &mut self,
        name: &str,
        value: Option<&str>,
    ) -> Option<std::result::Result<(), String>> {
        if !NAMES.contains(&name) {
            return None;
        }
        let Some(value) = value.filter(|v| !v.is_empty()) else {
            return Some(Err("needs a value".into()));
        };
        Some(match name {
            "partition" => {
                self.partition = Some(value.to_owned());
                Ok(())
            }
            "offset" => bytes(value).map(|n| self.offset = Some(n)),
            _ => bytes(value).map(|n| self.size = Some(n)),
        })
    }

    /// What it all means.
    ///
    /// # Errors
    /// It contradicts itself.
    pub(crate) fn part(&self) -> Result<Part> {
        match (self.offset, self.size, &self.partition) {
            (None, None, None) => Ok(Part::Whole),
            (None, None, Some(name)) => Ok(Part::Partition(name.clone())),
            (offset, size, None) => Ok(Part::Range {
                offset: offset.unwrap_or(0),
                size,
            }),
            _ => Err(wrong(
                "partition= says where the volume is, and so do offset= and size=".into(),
            )
            .hint("say one or the other")),
        }
    }
}

/// The options that say which file, and which part of it, is for records of synced files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NvmOptions {
    pub(crate) path: Option<PathBuf>,
    pub(crate) offset: Option<u64>,
    pub(crate) size: Option<u64>,
}

impl NvmOptions {
    /// What they say together.
    ///
    /// # Errors
    /// A part of no file.
    pub(crate) fn region(&self) -> Result<Option<RegionFile>> {
        let Some(path) = self.path.clone() else {
            return match (self.offset, self.size) {
                (None, None) => Ok(None),
                _ => Err(wrong(
                    "nvm_offset= and nvm_size= say which part of a file: name it with nvm=PATH"
                        .into(),
                )),
            };
        };
        Ok(Some(RegionFile {
            offset: self.offset.unwrap_or(0),
            size: self.size,
            path,
        }))
    }
}

/// Bytes from none on.
pub(crate) fn bytes(text: &str) -> std::result::Result<u64, String> {
    size::bytes(text).map_err(|_| "must be a number of bytes, such as 1048576 or 1M".into())
}

fn wrong(message: String) -> Failure {
    Failure::new(Code::Usage, message)
}

/// The volume at `path` with the options `text`, of a command that takes those that say where a
/// volume is.
///
/// # Errors
/// There is another option, or what it says makes no sense.
pub(crate) fn source(path: PathBuf, text: &[String]) -> Result<Source> {
    source_and(path, text, &[], &mut |_, _| Ok(()))
}

/// The same of a command that takes the options `more`, too: `take` gets name and value of each of
/// them.
///
/// # Errors
/// As [`source`], and those of `take`.
pub(crate) fn source_and(
    path: PathBuf,
    text: &[String],
    more: &[&'static str],
    take: &mut dyn FnMut(&str, &str) -> std::result::Result<(), String>,
) -> Result<Source> {
    const JOURNAL: &str = "journal_path";
    let mut part = PartOptions::default();
    const NVM: [&str; 3] = ["nvm", "nvm_offset", "nvm_size"];
    let (mut journal_path, mut nvm) = (None, NvmOptions::default());
    let options = text.iter().flat_map(|text| text.split(','));
    for option in options.filter(|option| !option.is_empty()) {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        match (name, value) {
            (JOURNAL, Some(value)) if !value.is_empty() => journal_path = Some(value.into()),
            ("nvm", Some(value)) if !value.is_empty() => nvm.path = Some(value.into()),
            ("nvm_offset" | "nvm_size", Some(value)) if !value.is_empty() => {
                let bytes = bytes(value);
                let bytes = bytes.map_err(|why| wrong(format!("option {option}: {name} {why}")))?;
                let field = match name {
                    "nvm_offset" => &mut nvm.offset,
                    _ => &mut nvm.size,
                };
                *field = Some(bytes);
            }
            (name, value) if more.contains(&name) => take(name, value.unwrap_or_default())
                .map_err(|why| wrong(format!("option {option}: {why}")))?,
            (name, _) if name == JOURNAL || NVM.contains(&name) => {
                return Err(wrong(format!("option {option}: {name} needs a value")));
            }
            _ => match part.set(name, value) {
                Some(set) => set.map_err(|why| wrong(format!("option {option}: {name} {why}")))?,
                None => {
                    let known = NAMES
                        .iter()
                        .chain(more)
                        .copied()
                        .chain([JOURNAL])
                        .chain(NVM);
                    let meant = did_you_mean(name, known);
                    return Err(wrong(format!("unknown option {option:?}{meant}")).hint(
                        "partition=N|NAME|UUID, offset=BYTES, size=BYTES, journal_path=PATH, and nvm=PATH with nvm_offset=BYTES and nvm_size=BYTES say where a volume is; others are for mounts",
                    ));
                }
            },
        }
    }
    Ok(Source {
        path,
        part: part.part()?,
        journal_path,
        nvm: nvm.region()?,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
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
