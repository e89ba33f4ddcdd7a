//! `tar -t`: lists an archive, without a volume.

use std::ffi::OsStr;
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tar::{Archive, Entry, EntryType};

use super::archive::unreadable;
use super::bounded::{Aside, AsideOfEntry, Bounded};
use super::chosen::Chosen;
use super::packed::{self, drain, ended};
use crate::date::utc;
use crate::failure::{Code, Failure, Result};
use crate::files::args::TarArgs;
use crate::files::failed::output;
use crate::files::list::mode;
use crate::files::quoted::quoted;
use crate::files::troubles::Troubles;

/// A listed entry.
struct Line {
    name: Vec<u8>,
    kind: EntryType,
    mode: u32,
    uid: u64,
    gid: u64,
    /// Bytes, with holes.
    size: u64,
    modified: SystemTime,
    target: Option<Vec<u8>>,
}

/// Lists the archive.
pub(super) fn run(args: &TarArgs, file: Option<&Path>, json: bool) -> Result<Code> {
    let mut chosen = Chosen::new(&args.words, &args.exclude);
    let (mut archive, running) = packed::reader(packed::asked(args), packed::open(file, false)?)?;
    let mut out = BufWriter::new(io::stdout().lock());
    let is_terminal = io::stdout().is_terminal();
    let mut listed: Vec<Value> = Vec::new();
    let mut written = Ok(());
    let done = entries(&mut archive, &mut |line| {
        if !chosen.takes(Path::new(OsStr::from_bytes(&line.name))) {
            return;
        }
        match json {
            true => listed.push(line.to_json()),
            false if written.is_ok() => {
                written = line.print(&mut out, args.verbose, is_terminal);
            }
            false => {}
        }
    });
    let done = done.and_then(|()| drain(&mut archive, running.is_some()));
    drop(archive);
    if !json {
        written.and_then(|()| out.flush()).or_else(output)?;
    }
    ended(running, done)?;
    let mut troubles = Troubles::default();
    for name in chosen.missing() {
        let message = format!("{} is not in the archive", name.display());
        troubles.tell(&Failure::new(Code::NotFound, message));
    }
    if json {
        outln!(
            "{}",
            json!({ "entries": listed, "errors": troubles.to_json() })
        );
    }
    troubles.end("listed", json)
}

fn entries(archive: &mut dyn Read, give: &mut dyn FnMut(&Line)) -> Result {
    let (bounded, aside) = Bounded::new(archive);
    let mut archive = Archive::new(bounded);
    for entry in archive.entries().map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        give(&Line::of(&entry, &aside).map_err(unreadable)?);
    }
    Ok(())
}

impl Line {
    fn of(entry: &Entry<'_, impl Read>, aside: &AsideOfEntry) -> io::Result<Line> {
        let Aside { mut pax, holes } = aside.take();
        let header = entry.header();
        let seconds = header.mtime()?;
        let modified = UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
        let kind = header.entry_type();
        let target = match kind {
            EntryType::Symlink | EntryType::Link => {
                let said = pax.link.take();
                said.or_else(|| entry.link_name_bytes().map(|name| name.into_owned()))
            }
            _ => None,
        };
        Ok(Line {
            name: match pax.name() {
                Some(name) => name.to_vec(),
                None => entry.path_bytes().into_owned(),
            },
            kind,
            mode: header.mode()? & 0o7777,
            uid: pax.uid.map_or_else(|| header.uid(), Ok)?,
            gid: pax.gid.map_or_else(|| header.gid(), Ok)?,
            size: holes.map_or(entry.size(), |holes| holes.size),
            modified: pax.modified.or(modified).unwrap_or(UNIX_EPOCH),
            target,
        })
    }

    fn letter(&self) -> char {
        match self.kind {
            EntryType::Directory => 'd',
            EntryType::Symlink => 'l',
            EntryType::Link => 'h',
            EntryType::Char => 'c',
            EntryType::Block => 'b',
            EntryType::Fifo => 'p',
            _ => '-',
        }
    }

    /// Prints the name, with `verbose` the attributes as tar(1) has them, but owners by number.
    fn print(&self, out: &mut impl Write, verbose: bool, is_terminal: bool) -> io::Result<()> {
        let shown = |name: &[u8]| match is_terminal {
            true => quoted(name).into_bytes(),
            false => name.to_vec(),
        };
        if verbose {
            let mode = mode(self.letter(), self.mode);
            let (uid, gid, size) = (self.uid, self.gid, self.size);
            let time = utc(self.modified);
            let minute = time.get(..16).unwrap_or(&time);
            write!(out, "{mode} {uid}/{gid} {size:>9} {minute} ")?;
        }
        out.write_all(&shown(&self.name))?;
        if let (true, Some(target)) = (verbose, &self.target) {
            let arrow: &[u8] = match self.kind {
                EntryType::Link => b" link to ",
                _ => b" -> ",
            };
            out.write_all(arrow)?;
            out.write_all(&shown(target))?;
        }
        out.write_all(b"\n")
    }

    fn to_json(&self) -> Value {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let kind = match self.letter() {
            'd' => "directory",
            'l' => "symlink",
            'h' => "link",
            'c' => "char-device",
            'b' => "block-device",
            'p' => "fifo",
            _ => "file",
        };
        json!({
            "name": text(&self.name),
            "type": kind,
            "mode": format!("{:04o}", self.mode),
            "uid": self.uid,
            "gid": self.gid,
            "size": self.size,
            "modified": utc(self.modified),
            "target": self.target.as_deref().map(text),
        })
    }
}
