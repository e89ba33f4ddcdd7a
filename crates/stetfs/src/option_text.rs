//! [`MountOptions`] as text, for languages and programs in which a user writes them.

use std::str::FromStr;

use crate::MountOptions;
use crate::low::did_you_mean;
use crate::low::options::Value::{Flag, Text};
use crate::low::options::{Concern, OptionRow, Remount, VolumeRequest, names, set, split};

/// An option that there is not, or a wrong value, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("option {option}: {why}")]
pub struct BadOption {
    pub(crate) option: String,
    pub(crate) why: String,
}

/// Has `set` take each option of a text, in which commas separate them.
///
/// # Errors
/// The first that `set` refuses, with its reason.
pub(crate) fn each_option(
    text: &str,
    mut set: impl FnMut(&str, Option<&str>) -> Result<(), String>,
) -> Result<(), BadOption> {
    for option in text.split(',').filter(|option| !option.is_empty()) {
        let (name, value) = split(option);
        set(name, value).map_err(|why| BadOption {
            option: option.to_owned(),
            why,
        })?;
    }
    Ok(())
}

/// The options of the library beside those of volumes.
pub static LIBRARY_OPTIONS: &[OptionRow<MountOptions>] = &[
    OptionRow {
        words: &[(
            "owner",
            Text {
                form: "UID:GID",
                set: set_owner,
            },
        )],
        default: "0:0",
        help: "whose new files are",
        concern: Concern::Program,
        remount: Remount::Changes,
    },
    OptionRow {
        words: &[(
            "umask",
            Text {
                form: "OCTAL",
                set: set_umask,
            },
        )],
        default: "022",
        help: "permissions that new files do not have",
        concern: Concern::Program,
        remount: Remount::Changes,
    },
    OptionRow {
        words: &[("defaults", Flag(|_| {})), ("async", Flag(|_| {}))],
        default: "",
        help: "no effect: lines of fstab have them",
        concern: Concern::Program,
        remount: Remount::Changes,
    },
];

fn set_owner(options: &mut MountOptions, text: &str) -> Result<(), String> {
    let (uid, gid) = text.split_once(':').ok_or("owner must be UID:GID")?;
    let id = |text: &str| text.parse().map_err(|_| "owner must be two numbers");
    options.owner(id(uid)?, id(gid)?);
    Ok(())
}

fn set_umask(options: &mut MountOptions, text: &str) -> Result<(), String> {
    let mask = u32::from_str_radix(text, 8);
    options.umask(mask.map_err(|_| "umask must be an octal number")?);
    Ok(())
}

impl MountOptions {
    /// Sets an option of a volume, or of the library.
    fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), String> {
        let of_library = set(LIBRARY_OPTIONS, self, name, value);
        let done = of_library.or_else(|| self.request.set(VolumeRequest::ALL, name, value));
        done.unwrap_or_else(|| {
            let known = names(LIBRARY_OPTIONS).chain(VolumeRequest::names(VolumeRequest::ALL));
            Err(format!("unknown{}", did_you_mean(name, known)))
        })
    }
}

/// Reads options that are separated by commas: those of `stetfs mount -o` that say how a volume is
/// opened, `owner=UID:GID` and `umask=OCTAL`.
///
/// ```
/// use stetfs::MountOptions;
///
/// let options: MountOptions = "journal=ldj,commit=30,owner=1000:100".parse()?;
/// let wrong = "jounal=ldj".parse::<MountOptions>().unwrap_err();
/// assert_eq!(wrong.to_string(), "option jounal=ldj: unknown; did you mean journal?");
/// # Ok::<(), stetfs::BadOption>(())
/// ```
impl FromStr for MountOptions {
    type Err = BadOption;

    fn from_str(text: &str) -> Result<MountOptions, BadOption> {
        let mut options = MountOptions::new();
        each_option(text, |name, value| options.set(name, value))?;
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn options_are_those_of_mount_and_others_are_told() {
        for sound in [
            "",
            "ro,norecovery",
            "journal=ldj,compress=zstd,commit=30,cache=64M",
            "sync,sync=file,journal=data",
            "offset=1M,size=64M,owner=1000:100,umask=077,epoch=1700000000",
            "discard,errors=remount-ro,data_err=abort,barrier=0,nvm=/f,nvm_offset=64",
        ] {
            assert_eq!(sound.parse::<MountOptions>().err(), None, "{sound}");
        }
        for (senseless, why) in [
            ("jounal=ldj", "did you mean journal?"),
            ("ro=1", "ro takes no value"),
            ("cache", "cache needs a value"),
            ("compress", "compress needs a value"),
            ("owner=me", "UID:GID"),
            ("umask=8", "octal"),
            ("compress=best", "none, lz4, zstd or auto"),
            ("threads=2", "unknown"),
            ("x", "unknown"),
        ] {
            let said = senseless.parse::<MountOptions>().unwrap_err().to_string();
            assert!(said.contains(why), "{senseless}: {said}");
        }
    }
}
