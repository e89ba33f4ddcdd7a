//! Parsing of options.

use std::collections::BTreeMap;
use std::path::Path;

use stetfs::low::options::{VolumeRequest, epoch, set, split};
use stetfs::low::{FirstLook, Source, did_you_mean};

use super::kernels::KERNEL_OPTIONS;
use super::mount::MOUNT_OPTIONS;
use super::names::{is_comment, names};
use super::said::Options;
use crate::failure::{Code, Failure, Result};
use crate::scout;

/// Reads comma-separated options into `all`. With `sloppy`, unknown options are ignored.
pub(crate) fn parse(text: &str, sloppy: bool, all: &mut Options) -> Result {
    let mut said: BTreeMap<&str, &str> = BTreeMap::new();
    for option in text.split(',').filter(|o| !o.is_empty()) {
        let (name, value) = split(option);
        match apply(name, value, all) {
            Some(done) => done.map_err(|why| bad(format!("option {option}: {why}")))?,
            None if sloppy || is_comment(name) => continue,
            None => {
                let meant = match name {
                    "noacl" | "nouser_xattr" => {
                        "; noxattr turns attributes and ACLs off, both at once".to_owned()
                    }
                    _ => did_you_mean(name, names()),
                };
                return Err(bad(format!("unknown option {option:?}{meant}")));
            }
        }
        // mount(8) puts the options of fstab before those of its command line, so the last one
        // counts.
        let topic = match option {
            "nobarrier" => "barrier",
            // The flag `sync` is another option than the journal's `sync=`.
            "sync" => "",
            _ => name,
        };
        if let Some(before) = said.insert(topic, option)
            && before != option
        {
            let warning = format!("{option} takes the place of {before}, which was said before");
            all.warnings.push(warning);
        }
    }
    Ok(())
}

/// The options of the volume at `path`: those that it stores itself, and after them those of
/// `text`. If the stored ones cannot be read, opening the volume reports why.
///
/// # Errors
/// An option that is unknown, or has a wrong value.
pub fn of_volume(path: &Path, text: &str) -> Result<Options> {
    let own = stetfs::low::own_options(&source(path, &said(text)?)?);
    let own = own.inspect_err(|e| tracing::debug!("the volume's own options cannot be read: {e}"));
    with_own(&own.unwrap_or_default(), text)
}

/// The same for the server of a mount, with the other results of the first look.
pub(crate) fn of_mount(path: &Path, text: &str) -> Result<(Options, FirstLook)> {
    let said = said(text)?;
    let look = scout::look(&source(path, &said)?, said.request.nbd, said.sandbox)?;
    Ok((with_own(&look.own_options, text)?, look))
}

/// The options of `text` alone, without those of a volume.
fn said(text: &str) -> Result<Options> {
    let mut said = Options::default();
    parse(text, false, &mut said)?;
    Ok(said)
}

/// The source of the volume that the options name.
fn source(path: &Path, said: &Options) -> Result<Source> {
    Ok(Source {
        nvm: None,
        ..said.request.source(path).map_err(bad)?
    })
}

fn with_own(own: &[&str], text: &str) -> Result<Options> {
    let mut options = Options::default();
    if let Err(e) = options.request.set_own(own) {
        tracing::warn!("the volume's own options: {e}");
    }
    parse(text, false, &mut options)?;
    Ok(options)
}

/// The options of `text` that are known, for a server that accepts no unknown ones.
pub(crate) fn known_only(text: &str) -> String {
    let known = |option: &&str| parse(option, false, &mut Options::default()).is_ok();
    text.split(',').filter(known).collect::<Vec<_>>().join(",")
}

/// Applies an option; `None` if there is no such option. An error is a sentence.
pub(super) fn apply(
    name: &str,
    value: Option<&str>,
    o: &mut Options,
) -> Option<std::result::Result<(), String>> {
    set(MOUNT_OPTIONS, o, name, value)
        .or_else(|| o.request.set(VolumeRequest::ALL, name, value))
        .or_else(|| set(KERNEL_OPTIONS, &mut (), name, value))
}

/// A mistake in the options.
pub(super) fn bad(message: String) -> Failure {
    Failure::new(Code::Usage, message)
        .hint("docs/mounting.md and `stetfs mount --help` list the options")
}

/// The epoch that the environment gives for what is built (`SOURCE_DATE_EPOCH`).
///
/// # Errors
/// A value that is no number of seconds: a build by it is not to get something else.
pub(crate) fn epoch_of_environment() -> Result<Option<u64>> {
    const NAME: &str = "SOURCE_DATE_EPOCH";
    let Some(value) = std::env::var_os(NAME).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let read = epoch(&value.to_string_lossy());
    read.map(Some).map_err(|why| bad(format!("{NAME} {why}")))
}
