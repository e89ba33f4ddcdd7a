//! An archive as a layer of a new image: it is looked through first, and unpacked then.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

use stetfs::Volume;
use tar::{Archive, Entry, EntryType};

use super::archive::unreadable;
use super::bounded::{Aside, AsideOfEntry, Bounded};
use super::chosen::Chosen;
use super::extract::{Unpacking, WHITEOUT, extract};
use super::packed::{self, drain, ended};
use super::told::Told;
use crate::failure::Result;
use crate::files::meter::Meter;
use crate::files::tree::{Kind, Xattr};

/// A file of an archive.
pub(in crate::files) struct Archived {
    /// Its name, as the archive has it.
    pub(in crate::files) name: Vec<u8>,
    /// Its kind; `None` for a further name of another file.
    pub(in crate::files) kind: Option<Kind>,
    /// Runs of data, bytes; of a symbolic link, its target.
    pub(in crate::files) runs: Vec<Range<u64>>,
    pub(in crate::files) xattrs: Vec<Xattr>,
}

/// Tells `give` the files of an archive, which may be packed, and no whiteouts.
///
/// # Errors
/// It cannot be read, or is no archive; Ctrl-C.
pub(in crate::files) fn look_through(
    file: File,
    meter: &Meter,
    give: &mut dyn FnMut(Archived),
) -> Result {
    let (mut from, running) = packed::reader(None, Some(file))?;
    let done = (|| {
        let (bounded, aside) = Bounded::new(&mut from);
        let mut archive = Archive::new(bounded);
        for entry in archive.entries().map_err(unreadable)? {
            meter.go_on()?;
            let entry = entry.map_err(unreadable)?;
            if let Some(archived) = archived(&entry, &aside).map_err(unreadable)? {
                give(archived);
            }
        }
        Ok(())
    })();
    let done = done.and_then(|()| drain(&mut from, running.is_some()));
    drop(from);
    ended(running, done)
}

/// An entry as a file; `None` for a whiteout, and for what is not unpacked.
fn archived(
    entry: &Entry<'_, impl io::Read>,
    aside: &AsideOfEntry,
) -> io::Result<Option<Archived>> {
    let Aside { mut pax, holes } = aside.take();
    let name = match pax.name() {
        Some(name) => name.to_vec(),
        None => entry.path_bytes().into_owned(),
    };
    let last = name.rsplit(|b| *b == b'/').find(|part| !part.is_empty());
    if last.is_some_and(|last| last.starts_with(WHITEOUT)) {
        return Ok(None);
    }
    let mut runs = Vec::new();
    let kind = match entry.header().entry_type() {
        EntryType::Directory => Some(Kind::Dir),
        EntryType::Link => None,
        EntryType::Symlink => {
            let target = pax.link.take();
            let target = target.or_else(|| entry.link_name_bytes().map(|name| name.into_owned()));
            runs.push(0..target.map_or(0, |target| target.len() as u64));
            Some(Kind::Symlink)
        }
        EntryType::Regular | EntryType::Continuous => {
            match holes {
                Some(holes) => runs = holes.runs,
                None => runs.push(0..entry.size()),
            }
            Some(Kind::File)
        }
        EntryType::Char | EntryType::Block | EntryType::Fifo => {
            Some(Kind::Node(stetfs::Node::Fifo))
        }
        _ => return Ok(None),
    };
    Ok(Some(Archived {
        name,
        kind,
        runs,
        xattrs: pax.xattrs(),
    }))
}

/// Unpacks an archive over the whole volume. Its whiteouts remove what lower layers have brought.
///
/// # Errors
/// It cannot be read; the volume is full, or failed; Ctrl-C.
pub(in crate::files) fn apply(
    volume: &Volume,
    file: File,
    owner: Option<(u32, u32)>,
    meter: &mut Meter,
) -> Result {
    let how = Unpacking {
        owner,
        whiteouts: true,
    };
    let mut chosen = Chosen::new(&[], &[]);
    let mut told = Told {
        is_on: false,
        to_stderr: true,
    };
    let (mut from, running) = packed::reader(None, Some(file))?;
    let with = (&mut chosen, &mut told);
    let done = extract(how, volume, Path::new("/"), &mut from, with, meter);
    let done = done.and_then(|()| drain(&mut from, running.is_some()));
    drop(from);
    ended(running, done)
}
