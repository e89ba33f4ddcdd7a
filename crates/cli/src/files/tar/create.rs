//! Packing: writes an archive of files in a volume.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use stetfs::{Node, Volume};
use tar::{Builder, EntryType, Header};

use super::chosen::Chosen;
use super::pax::Records;
use super::sparse::{self, Data};
use super::told::Told;
use crate::failure::{Code, Failure, Result};
use crate::files::args::TarArgs;
use crate::files::failed::output;
use crate::files::meter::Meter;
use crate::files::place::split;
use crate::files::tree::{Content, Entered, Inside, Item, Kind, Source, Tree, Xattr};

/// The inode of a volume's root.
const ROOT: u64 = 2;
/// Longest link target in a header, bytes.
const TARGET_MAX: usize = 100;

/// A file to be packed.
struct Waiting {
    /// Its path in the tree.
    path: PathBuf,
    /// Its name in the archive.
    name: PathBuf,
    item: Item,
    /// It is in the root of the volume.
    is_in_root: bool,
}

/// Packs the tree at `place` with names relative to it, or files in it, which are named.
pub(super) fn create(
    args: &TarArgs,
    volume: &Volume,
    (place, names): (&Path, &[OsString]),
    archive: Box<dyn Write>,
    told: &mut Told,
    meter: &mut Meter,
) -> Result {
    let (base, name) = match args.directory {
        Some(_) => (place, None),
        None => split(place),
    };
    let tree = &Inside::below(volume, base)?;
    let mut pack = Pack {
        tree,
        owner: args.owner,
        excluded: Chosen::new(&[], &args.exclude),
        lost_found: args.lost_found,
        told,
        builder: Builder::new(archive),
        links: HashMap::new(),
        meter,
    };
    match args.directory {
        None => {
            let path = Path::new(name.unwrap_or_default());
            let top = pack.top(path, Path::new("./"))?;
            pack.all(top)?;
        }
        Some(_) => {
            for name in names {
                let path = inner(name)?;
                let name = match path.as_os_str().is_empty() {
                    true => Path::new("./"),
                    false => &path,
                };
                let top = pack.top(&path, name);
                if let Some(top) = pack.meter.troubles.pass(top)? {
                    pack.all(top)?;
                }
            }
        }
    }
    let written = pack
        .builder
        .into_inner()
        .and_then(|mut archive| archive.flush());
    written.or_else(output)
}

/// A name in the directory of `-C`, as a path in its tree.
fn inner(name: &OsString) -> Result<PathBuf> {
    let mut path = PathBuf::new();
    for part in Path::new(name).components() {
        match part {
            Component::Normal(part) => path.push(part),
            Component::CurDir => {}
            _ => {
                let message = format!("{} is no name in the directory", Path::new(name).display());
                return Err(Failure::new(Code::Usage, message).hint(
                    "-C IMAGE:/DIR takes names in DIR, without .. and without a / at first",
                ));
            }
        }
    }
    Ok(path)
}

struct Pack<'a> {
    tree: &'a Inside,
    owner: Option<(u32, u32)>,
    excluded: Chosen,
    /// `lost+found` in the root of the volume is packed, too.
    lost_found: bool,
    told: &'a mut Told,
    builder: Builder<Box<dyn Write>>,
    /// Packed files with several names, by their name in the archive.
    links: HashMap<(u64, u64), PathBuf>,
    meter: &'a mut Meter,
}

impl Pack<'_> {
    /// A file that is named.
    fn top(&self, path: &Path, name: &Path) -> Result<Waiting> {
        let Some(item) = self.tree.item(path)? else {
            let path = self.tree.shown(path);
            let message = format!("cannot pack {}: there is no such file", path.display());
            return Err(Failure::new(Code::NotFound, message));
        };
        // The content of a directory has names that begin with ./
        let name = match (name == Path::new("./"), path.file_name()) {
            (true, Some(last)) if item.kind != Kind::Dir => Path::new(last),
            _ => name,
        };
        Ok(Waiting {
            path: path.to_owned(),
            name: name.to_owned(),
            item,
            is_in_root: false,
        })
    }

    /// Packs a file with all that is below it.
    fn all(&mut self, top: Waiting) -> Result {
        let mut entered = Entered::default();
        let mut all = vec![top];
        while let Some(next) = all.pop() {
            self.meter.go_on()?;
            if self.excluded.excludes(&next.name) || self.is_lost_found(&next) {
                continue;
            }
            let Waiting {
                path, name, item, ..
            } = next;
            self.add(&path, &name, &item)?;
            self.meter.entry();
            if item.kind != Kind::Dir {
                continue;
            }
            if self.tree.names_dirs_once() {
                let is_new = entered.add(&self.tree.shown(&path), item.id);
                if self.meter.troubles.pass(is_new)?.is_none() {
                    continue;
                }
            }
            let dir = match name == Path::new("./") {
                true => PathBuf::new(),
                false => name,
            };
            let names = self.meter.troubles.pass(self.tree.names(&path))?;
            // The stack is popped from its end, so the first name goes last.
            for last in names.unwrap_or_default().into_iter().rev() {
                let (path, name) = (path.join(&last), dir.join(&last));
                // Files that were removed meanwhile are left out.
                if let Some(Some(found)) = self.meter.troubles.pass(self.tree.item(&path))? {
                    all.push(Waiting {
                        path,
                        name,
                        item: found,
                        is_in_root: item.id.1 == ROOT,
                    });
                }
            }
        }
        Ok(())
    }

    /// Whether it is the directory of e2fsck, which each volume has of its own.
    fn is_lost_found(&self, file: &Waiting) -> bool {
        let is_it = file.is_in_root && file.item.kind == Kind::Dir && !self.lost_found;
        is_it
            && file
                .path
                .file_name()
                .is_some_and(|name| name == "lost+found")
    }

    fn add(&mut self, path: &Path, name: &Path, item: &Item) -> Result {
        if item.kind == Kind::Node(Node::Socket) {
            tracing::warn!(
                "{} is left out: an archive holds no sockets",
                self.tree.shown(path).display()
            );
            return Ok(());
        }
        self.told.name(&with_slash(name, item))?;
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
                header.set_entry_type(EntryType::Directory);
                self.empty(&mut header, Path::new(&with_slash(name, item)))
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
        // Other times go into a PAX header.
        let after = item.modified.duration_since(UNIX_EPOCH).unwrap_or_default();
        header.set_mtime(after.as_secs());
        header
    }

    /// Writes a PAX header for what the header has no room for.
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
        // Literal, because a target need not be a normalized path.
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

/// The name in the archive, which for a directory ends with a slash.
fn with_slash(name: &Path, item: &Item) -> OsString {
    let mut name = OsString::from(name);
    if item.kind == Kind::Dir && !name.as_bytes().ends_with(b"/") {
        name.push("/");
    }
    name
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
