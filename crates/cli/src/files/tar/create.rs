//! Packing.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use stetfs::{Node, Volume};
use tar::{Builder, EntryType, Header};

use super::pax::Records;
use super::sparse::{self, Data};
use crate::failure::{Code, Failure, Result};
use crate::files::args::TarArgs;
use crate::files::failed::output;
use crate::files::meter::Meter;
use crate::files::place::split;
use crate::files::tree::{Content, Entered, Inside, Item, Kind, Source, Tree, Xattr};

/// Longest target in a header.
const TARGET_MAX: usize = 100;

/// Packs what is in `place`, with names that begin there.
pub(super) fn create(
    args: &TarArgs,
    volume: &Volume,
    place: &Path,
    archive: Box<dyn Write>,
    meter: &mut Meter,
) -> Result {
    let (base, name) = split(place);
    let tree = &Inside::below(volume, base)?;
    let path = Path::new(name.unwrap_or_default());
    let Some(item) = tree.item(path)? else {
        let message = format!("cannot pack {}: there is no such file", place.display());
        return Err(Failure::new(Code::NotFound, message));
    };
    let mut pack = Pack {
        tree,
        owner: args.owner,
        builder: Builder::new(archive),
        links: HashMap::new(),
        meter,
    };
    let mut all = vec![(path.to_owned(), PathBuf::from("./"), item)];
    if let (Some((_, name, item)), Some(last)) = (all.last_mut(), path.file_name())
        && item.kind != Kind::Dir
    {
        *name = last.into();
    }
    let mut entered = Entered::default();
    while let Some((path, name, item)) = all.pop() {
        pack.meter.go_on()?;
        pack.add(&path, &name, &item)?;
        pack.meter.entry();
        if item.kind != Kind::Dir {
            continue;
        }
        if tree.names_dirs_once() {
            let is_new = entered.add(&tree.shown(&path), item.id);
            if pack.meter.troubles.pass(is_new)?.is_none() {
                continue;
            }
        }
        let dir = if name == Path::new("./") {
            PathBuf::new()
        } else {
            name
        };
        let names = pack.meter.troubles.pass(tree.names(&path))?;
        // The first of them is to come first.
        for last in names.unwrap_or_default().into_iter().rev() {
            let (path, name) = (path.join(&last), dir.join(&last));
            // What went meanwhile is left out.
            if let Some(Some(item)) = pack.meter.troubles.pass(tree.item(&path))? {
                all.push((path, name, item));
            }
        }
    }
    let written = pack
        .builder
        .into_inner()
        .and_then(|mut archive| archive.flush());
    written.or_else(output)
}

struct Pack<'a> {
    tree: &'a Inside,
    owner: Option<(u32, u32)>,
    builder: Builder<Box<dyn Write>>,
    /// Files with several names that are packed, by their name in the archive.
    links: HashMap<(u64, u64), PathBuf>,
    meter: &'a mut Meter,
}

impl Pack<'_> {
    fn add(&mut self, path: &Path, name: &Path, item: &Item) -> Result {
        if item.kind == Kind::Node(Node::Socket) {
            tracing::warn!(
                "{} is left out: an archive holds no sockets",
                self.tree.shown(path).display()
            );
            return Ok(());
        }
        let mut header = self.header(item);
        if let Some(packed) = self.links.get(&item.id).cloned() {
            header.set_entry_type(EntryType::Link);
            return self.link(&mut header, name, &packed).map_err(failed);
        }
        let source = Source::of(self.tree, path, item, None);
        let Some(source) = self.meter.troubles.pass(source)? else {
            return Ok(());
        };
        if item.links > 1 && item.kind != Kind::Dir {
            self.links.insert(item.id, name.to_owned());
        }
        let xattrs = self.meter.troubles.pass(self.tree.xattrs(path))?;
        self.pax(item, &xattrs.unwrap_or_default())
            .map_err(failed)?;
        match source {
            Source::Content(content, runs) => self.file(&mut header, name, item, &*content, runs),
            Source::Dir => {
                let mut with_slash = OsString::from(name);
                if !name.as_os_str().as_bytes().ends_with(b"/") {
                    with_slash.push("/");
                }
                header.set_entry_type(EntryType::Directory);
                self.empty(&mut header, Path::new(&with_slash))
                    .map_err(failed)
            }
            Source::Link(target) => {
                header.set_entry_type(EntryType::Symlink);
                self.link(&mut header, name, &target).map_err(failed)
            }
            Source::Node(node) => {
                set_node(&mut header, node).map_err(failed)?;
                self.empty(&mut header, name).map_err(failed)
            }
        }
    }

    fn header(&self, item: &Item) -> Header {
        let mut header = Header::new_gnu();
        let (uid, gid) = self.owner.unwrap_or((item.uid, item.gid));
        header.set_uid(uid.into());
        header.set_gid(gid.into());
        header.set_mode(item.mode);
        header.set_size(0);
        // Others are told in a header of their own.
        let after = item.modified.duration_since(UNIX_EPOCH).unwrap_or_default();
        header.set_mtime(after.as_secs());
        header
    }

    /// What the header has no room for.
    fn pax(&mut self, item: &Item, xattrs: &[Xattr]) -> io::Result<()> {
        let mut records = Records::default();
        let time = decimal(item.modified);
        if time.contains(['.', '-']) {
            records.add(b"mtime", time.as_bytes());
        }
        xattrs.iter().for_each(|xattr| records.add_xattr(xattr));
        let records = records.bytes();
        if records.is_empty() {
            return Ok(());
        }
        let mut header = Header::new_ustar();
        header.set_entry_type(EntryType::XHeader);
        header.set_path("PaxHeaders")?;
        header.set_mode(0o644);
        header.set_size(records.len() as u64);
        header.set_cksum();
        self.builder.append(&header, records)
    }

    fn empty(&mut self, header: &mut Header, name: &Path) -> io::Result<()> {
        self.builder.append_data(header, name, io::empty())
    }

    fn link(&mut self, header: &mut Header, name: &Path, target: &Path) -> io::Result<()> {
        let bytes = target.as_os_str().as_bytes();
        if bytes.len() > TARGET_MAX {
            return self.builder.append_link(header, name, target);
        }
        // As it is: a target need not be a tidy path.
        header.set_link_name_literal(bytes)?;
        self.empty(header, name)
    }

    fn file(
        &mut self,
        header: &mut Header,
        name: &Path,
        item: &Item,
        content: &dyn Content,
        runs: Vec<Range<u64>>,
    ) -> Result {
        let size = item.size;
        let bytes: u64 = runs.iter().map(|run| run.end - run.start).sum();
        let blocks = if bytes < size {
            sparse::describe(header, size, &runs).map_err(failed)?
        } else {
            header.set_entry_type(EntryType::Regular);
            header.set_size(size);
            Vec::new()
        };
        let mut data = Data::new(content, runs);
        let whole = io::Cursor::new(blocks).chain(&mut data);
        let written = self.builder.append_data(header, name, whole);
        if let Some(mut e) = data.failed {
            e.message += "; the rest of it is packed as zeroes";
            self.meter.troubles.tell(&e);
        }
        written.map_err(failed)?;
        self.meter.bytes(bytes)
    }
}

fn failed(e: io::Error) -> Failure {
    Failure::new(Code::Io, format!("cannot write the archive: {e}"))
}

fn set_node(header: &mut Header, node: Node) -> io::Result<()> {
    let (kind, major, minor) = match node {
        Node::CharDevice(major, minor) => (EntryType::Char, major, minor),
        Node::BlockDevice(major, minor) => (EntryType::Block, major, minor),
        Node::Fifo | Node::Socket => (EntryType::Fifo, 0, 0),
    };
    header.set_entry_type(kind);
    header.set_device_major(major)?;
    header.set_device_minor(minor)
}

/// Seconds since 1970, with nine digits behind the point if they are not whole.
fn decimal(time: SystemTime) -> String {
    let (sign, d) = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => ("", after),
        Err(e) => ("-", e.duration()),
    };
    match d.subsec_nanos() {
        0 => format!("{sign}{}", d.as_secs()),
        nanos => format!("{sign}{}.{nanos:09}", d.as_secs()),
    }
}
