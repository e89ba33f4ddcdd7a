//! Taking snapshots.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{CString, OsStr};
use std::fs::{self, File, Metadata};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::{CaptureOptions, Entry, Kind, Time, Tree};

/// Longest attribute value that is kept as it is; of a longer one length and hash are kept.
const SHORT_VALUE: usize = 64;

/// A reversible, readable form of any bytes: those that are not printable ASCII, and the backslash,
/// become `\xNN`.
pub fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for &b in bytes {
        if (b.is_ascii_graphic() || b == b' ') && b != b'\\' {
            out.push(char::from(b));
        } else {
            out.push_str(&format!("\\x{b:02x}"));
        }
    }
    out
}

/// The form in which a snapshot keeps the value of an extended attribute.
pub fn xattr_value(bytes: &[u8]) -> String {
    if bytes.len() <= SHORT_VALUE {
        escape(bytes)
    } else {
        format!("{} bytes, hash {:032x}", bytes.len(), xxh3_128(bytes))
    }
}

impl Tree {
    /// Takes a snapshot of `root` (as `""`) and everything below it. File systems mounted below are
    /// not entered.
    pub fn capture(root: &Path, options: &CaptureOptions) -> Result<Self> {
        let meta =
            fs::symlink_metadata(root).with_context(|| format!("stat {}", root.display()))?;
        let mut walk = Walk {
            options,
            device: meta.dev(),
            buffer: vec![0; CHUNK],
            entries: BTreeMap::new(),
            links: HashMap::new(),
        };
        walk.visit(root, "", &meta)?;
        let mut entries = walk.entries;
        for paths in walk.links.into_values().filter(|p| p.len() > 1) {
            let Some(first) = paths.iter().min().cloned() else {
                continue;
            };
            for path in paths {
                if let Some(entry) = entries.get_mut(&path) {
                    entry.link_of = Some(first.clone());
                }
            }
        }
        Ok(Self { entries })
    }

    /// The entries at and below `path`.
    #[must_use]
    pub fn below(&self, path: &str) -> Self {
        let inside = |p: &str| {
            p == path
                || p.strip_prefix(path)
                    .is_some_and(|rest| rest.starts_with('/'))
        };
        Self {
            entries: self
                .entries
                .iter()
                .filter(|(p, _)| inside(p))
                .map(|(p, e)| (p.clone(), e.clone()))
                .collect(),
        }
    }
}

struct Walk<'o> {
    options: &'o CaptureOptions,
    device: u64,
    buffer: Vec<u8>,
    entries: BTreeMap<String, Entry>,
    /// The paths of each inode that has several links and is no directory.
    links: HashMap<u64, Vec<String>>,
}

impl Walk<'_> {
    fn visit(&mut self, path: &Path, name: &str, meta: &Metadata) -> Result<()> {
        let entry = self
            .entry(path, meta)
            .with_context(|| format!("reading {}", path.display()))?;
        let directory = entry.kind == Kind::Directory;
        if !directory && entry.nlink > 1 {
            self.links
                .entry(meta.ino())
                .or_default()
                .push(name.to_owned());
        }
        self.entries.insert(name.to_owned(), entry);
        if !directory || meta.dev() != self.device {
            return Ok(());
        }
        for child in fs::read_dir(path).with_context(|| format!("listing {}", path.display()))? {
            let child = child.with_context(|| format!("listing {}", path.display()))?;
            let leaf = escape(child.file_name().as_bytes());
            let child_name = if name.is_empty() {
                leaf
            } else {
                format!("{name}/{leaf}")
            };
            if self.options.exclude.contains(&child_name) {
                continue;
            }
            let child_path = child.path();
            let child_meta = fs::symlink_metadata(&child_path)
                .with_context(|| format!("stat {}", child_path.display()))?;
            self.visit(&child_path, &child_name, &child_meta)?;
        }
        Ok(())
    }

    fn entry(&mut self, path: &Path, meta: &Metadata) -> Result<Entry> {
        let o = self.options;
        let kind = kind(meta);
        let device = matches!(kind, Kind::CharDevice | Kind::BlockDevice);
        let regular = kind == Kind::File;
        let file = if (regular && (o.content || o.sparse || o.flags))
            || (o.flags && kind == Kind::Directory)
        {
            Some(open(path)?)
        } else {
            None
        };
        let mut entry = Entry {
            kind,
            mode: meta.permissions().mode() & 0o7777,
            uid: meta.uid(),
            gid: meta.gid(),
            nlink: meta.nlink(),
            size: (kind != Kind::Directory || o.dir_sizes).then(|| meta.size()),
            rdev: device.then(|| {
                (
                    rustix::fs::major(meta.rdev()),
                    rustix::fs::minor(meta.rdev()),
                )
            }),
            mtime: o.mtime.then(|| Time(meta.mtime(), meta.mtime_nsec())),
            ctime: o.ctime.then(|| Time(meta.ctime(), meta.ctime_nsec())),
            atime: o.atime.then(|| Time(meta.atime(), meta.atime_nsec())),
            target: None,
            content: None,
            xattrs: if o.xattrs {
                xattrs(path).context("extended attributes")?
            } else {
                BTreeMap::new()
            },
            link_of: None,
            data: None,
            blocks: o.blocks.then(|| meta.blocks()),
            inode: o.inodes.then(|| meta.ino()),
            flags: None,
        };
        if kind == Kind::Symlink {
            entry.target = Some(escape(&fs::read_link(path)?.into_os_string().into_vec()));
        }
        if let Some(file) = file {
            if o.flags {
                entry.flags = Some(
                    rustix::fs::ioctl_getflags(&file)
                        .context("FS_IOC_GETFLAGS")?
                        .bits(),
                );
            }
            if regular && o.sparse {
                entry.data = Some(data_runs(&file, meta.size()).context("SEEK_DATA, SEEK_HOLE")?);
            }
            if regular && o.content {
                entry.content = Some(self.hash(&file, meta.size())?);
            }
        }
        Ok(entry)
    }

    fn hash(&mut self, file: &File, size: u64) -> Result<String> {
        let whole = [(0, size)];
        let runs = if size > READ_WHOLE {
            data_runs(file, size).context("SEEK_DATA, SEEK_HOLE")?
        } else {
            whole.to_vec()
        };
        let mut hash = ContentHash::default();
        let mut next = 0;
        for (start, length) in runs {
            let mut at = (start - start % CHUNK as u64).max(next);
            while at < start + length {
                let n = read_full(file, &mut self.buffer, at)?;
                hash.chunk(at, &self.buffer[..n]);
                if n < CHUNK {
                    break;
                }
                at += CHUNK as u64;
            }
            next = at;
        }
        Ok(hash.finish(size))
    }
}

/// Largest file that is read completely; of a larger one, which is mostly holes in tests, only the
/// ranges that SEEK_DATA finds are read.
const READ_WHOLE: u64 = 64 << 20;
/// Unit of the content hash in bytes.
const CHUNK: usize = 1 << 20;

/// A hash of a file's content: of its size and of each chunk that is not all zeroes, with its
/// offset. Holes and written zeroes count the same, because they read the same.
#[derive(Default)]
struct ContentHash(Xxh3);

impl ContentHash {
    fn chunk(&mut self, offset: u64, data: &[u8]) {
        let end = data
            .iter()
            .rposition(|&b| b != 0)
            .map_or(0, |last| last + 1);
        if end > 0 {
            self.0.update(&offset.to_le_bytes());
            self.0.update(&(end as u64).to_le_bytes());
            self.0.update(&data[..end]);
        }
    }

    fn finish(mut self, size: u64) -> String {
        self.0.update(&size.to_le_bytes());
        format!("{:032x}", self.0.digest128())
    }
}

/// The hash that a snapshot holds for this content.
pub fn content_hash(content: &[u8]) -> String {
    let mut hash = ContentHash::default();
    for (i, chunk) in content.chunks(CHUNK).enumerate() {
        hash.chunk((i * CHUNK) as u64, chunk);
    }
    hash.finish(content.len() as u64)
}

/// Reads until the buffer is full or the file ends.
fn read_full(file: &File, buffer: &mut [u8], at: u64) -> Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], at + filled as u64)? {
            0 => break,
            n => filled += n,
        }
    }
    Ok(filled)
}

fn kind(meta: &Metadata) -> Kind {
    let t = meta.file_type();
    if t.is_dir() {
        Kind::Directory
    } else if t.is_symlink() {
        Kind::Symlink
    } else if t.is_char_device() {
        Kind::CharDevice
    } else if t.is_block_device() {
        Kind::BlockDevice
    } else if t.is_fifo() {
        Kind::Fifo
    } else if t.is_socket() {
        Kind::Socket
    } else {
        Kind::File
    }
}

/// Opens a file for reading, without changing the access time if the caller may ask for that.
fn open(path: &Path) -> Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let fd = match rustix::fs::open(path, flags | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM) => rustix::fs::open(path, flags, Mode::empty())?,
        other => other?,
    };
    Ok(File::from(fd))
}

fn xattrs(path: &Path) -> Result<BTreeMap<String, String>> {
    let names = match sized(|buffer| rustix::fs::llistxattr(path, buffer)) {
        Err(Errno::NOTSUP) => Vec::new(),
        other => other?,
    };
    let mut found = BTreeMap::new();
    for name in names.split(|&b| b == 0).filter(|n| !n.is_empty()) {
        let c_name = CString::new(name)?;
        let bytes = sized(|buffer| rustix::fs::lgetxattr(path, c_name.as_c_str(), buffer))
            .with_context(|| format!("getxattr {}", OsStr::from_bytes(name).display()))?;
        found.insert(escape(name), xattr_value(&bytes));
    }
    Ok(found)
}

/// Calls `read` with a buffer of 64 KiB, which is large enough for any attribute list or value.
fn sized(read: impl Fn(&mut [u8]) -> rustix::io::Result<usize>) -> rustix::io::Result<Vec<u8>> {
    let mut buffer = vec![0u8; 64 << 10];
    let n = read(&mut buffer)?;
    buffer.truncate(n);
    Ok(buffer)
}

fn data_runs(file: &File, size: u64) -> Result<Vec<(u64, u64)>> {
    let mut runs = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(offset) => offset,
            Err(Errno::NXIO) => break,
            Err(e) => return Err(e.into()),
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(start))?;
        runs.push((start, end - start));
        at = end;
    }
    Ok(runs)
}
