//! `ls`: lists files of a volume.

use std::ffi::{OsStr, OsString};
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stetfs::{Metadata, Volume};

use super::args::LsArgs;
use super::base64;
use super::failed::output;
use super::quoted::quoted;
use super::size::human;
use super::tree::{Entered, Inside, Kind, Tree};
use super::troubles::Troubles;
use super::volumes::{Use, each};
use crate::date::utc;
use crate::failure::{Code, Result};

/// A listed file.
struct Line {
    path: PathBuf,
    /// The name as it is listed.
    shown: OsString,
    metadata: Metadata,
    /// The target of a symbolic link.
    target: Option<PathBuf>,
}

/// The output.
struct Out {
    /// It is a terminal: names are quoted.
    terminal: bool,
    /// Something was printed before.
    has_begun: bool,
    to: BufWriter<StdoutLock<'static>>,
}

impl Out {
    fn name(&mut self, name: &OsStr) -> io::Result<()> {
        match self.terminal {
            true => self.to.write_all(quoted(name.as_bytes()).as_bytes()),
            false => self.to.write_all(name.as_bytes()),
        }
    }
}

/// Takes the content of a directory, with its path, or named files, without.
type Give<'a> = dyn FnMut(Option<&Path>, &[Line]) + 'a;

/// Runs `stetfs ls`.
pub(super) fn run(args: &LsArgs, json: bool) -> Result<Code> {
    let mut out = Out {
        terminal: io::stdout().is_terminal(),
        has_begun: false,
        to: BufWriter::new(io::stdout().lock()),
    };
    let mut all: Vec<Value> = Vec::new();
    let mut broken = Ok(());
    let mut troubles = Troubles::default();
    each(&args.inside, Use::Read, |volume, path| {
        let give = &mut |dir: Option<&Path>, lines: &[Line]| {
            if json {
                all.extend(lines.iter().map(Line::to_json));
            } else if broken.is_ok() {
                broken = print(&mut out, args, dir, lines);
            }
        };
        let chosen = Chosen {
            hidden: args.all || args.almost_all || json,
            dots: args.all && !args.almost_all && !json,
        };
        let done = list(volume, path, args, chosen, give, &mut troubles);
        troubles.pass(done).map(drop)
    })?;
    if json {
        broken = writeln!(
            out.to,
            "{}",
            json!({ "entries": all, "errors": troubles.to_json() })
        );
    }
    broken.and_then(|()| out.to.flush()).or_else(output)?;
    troubles.end("listed", json)
}

/// The names of a directory that are listed.
#[derive(Clone, Copy)]
struct Chosen {
    /// Names that begin with a dot.
    hidden: bool,
    /// The directory itself and the one above it, as `.` and `..`.
    dots: bool,
}

/// Passes the content of each directory, or the one file, to `give`.
fn list(
    volume: &Volume,
    path: &Path,
    args: &LsArgs,
    chosen: Chosen,
    give: &mut Give<'_>,
    troubles: &mut Troubles,
) -> Result {
    let metadata = volume.symlink_metadata(path)?;
    // As with ls(1), a symbolic link to a directory is followed where only names are wanted.
    let follow = metadata.is_symlink() && !args.long;
    let is_dir = match follow {
        true => volume.metadata(path).is_ok_and(|m| m.is_dir()),
        false => metadata.is_dir(),
    };
    if !is_dir || args.directory {
        let target = match metadata.is_symlink() {
            true => Some(volume.read_link(path)?),
            false => None,
        };
        let line = Line {
            path: path.to_owned(),
            shown: path.as_os_str().to_owned(),
            metadata,
            target,
        };
        give(None, &[line]);
        return Ok(());
    }
    let tree = Inside::below(volume, path)?;
    let mut dirs = vec![(PathBuf::new(), volume.metadata(path)?.ino())];
    let mut entered = Entered::default();
    while let Some((dir, ino)) = dirs.pop() {
        let shown = tree.shown(&dir);
        let names = entered
            .add(&shown, (0, ino))
            .and_then(|()| tree.names(&dir));
        let Some(names) = troubles.pass(names)? else {
            continue;
        };
        let mut lines = Vec::new();
        if chosen.dots {
            lines.extend(troubles.pass(dots(volume, &shown))?.into_iter().flatten());
        }
        let mut below = Vec::new();
        for name in names {
            if !chosen.hidden && name.as_bytes().starts_with(b".") {
                continue;
            }
            let path = dir.join(name);
            let Some(line) = troubles.pass(Line::new(&tree, &path))? else {
                continue;
            };
            if args.recursive && line.metadata.is_dir() {
                below.push((path, line.metadata.ino()));
            }
            lines.push(line);
        }
        give(Some(&shown), &lines);
        // The stack is popped from its end, so the first name goes last.
        dirs.extend(below.into_iter().rev());
    }
    Ok(())
}

/// The lines of `.` and `..` in a directory.
fn dots(volume: &Volume, dir: &Path) -> Result<[Line; 2]> {
    let line = |name: &str| -> Result<Line> {
        Ok(Line {
            path: dir.join(name),
            shown: name.into(),
            metadata: volume.metadata(dir.join(name))?,
            target: None,
        })
    };
    Ok([line(".")?, line("..")?])
}

impl Line {
    fn new(tree: &Inside, path: &Path) -> Result<Line> {
        let metadata = tree.metadata(path)?;
        let target = match metadata.is_symlink() {
            true => Some(tree.link(path)?),
            false => None,
        };
        Ok(Line {
            path: tree.shown(path),
            shown: path.file_name().unwrap_or_default().to_owned(),
            metadata,
            target,
        })
    }

    fn to_json(&self) -> Value {
        to_json(&self.path, &self.metadata, self.target.as_deref())
    }

    /// The columns before the name.
    fn columns(&self, human_readable: bool) -> [String; 6] {
        let m = &self.metadata;
        let (major, minor) = m.device();
        let size = match Kind::of(m).is_device() {
            true => format!("{major}, {minor}"),
            false if human_readable => human(m.len()),
            false => m.len().to_string(),
        };
        [
            mode(Kind::of(m).letter(), m.mode()),
            m.nlink().to_string(),
            m.uid().to_string(),
            m.gid().to_string(),
            size,
            utc(m.modified()),
        ]
    }
}

/// A file as `ls` and `stat` describe it to programs.
pub(super) fn to_json(path: &Path, m: &Metadata, target: Option<&Path>) -> Value {
    let (major, minor) = m.device();
    json!({
        "path": path.to_string_lossy(),
        "type": Kind::of(m).name(),
        "mode": format!("{:04o}", m.mode() & 0o7777),
        "links": m.nlink(),
        "uid": m.uid(),
        "gid": m.gid(),
        "size": m.len(),
        "blocks": m.blocks(),
        "modified": utc(m.modified()),
        "inode": m.ino(),
        "device": Kind::of(m).is_device().then(|| format!("{major}:{minor}")),
        "target": target.map(|t| t.to_string_lossy()),
        "path_base64": in_base64(path),
        "target_base64": target.and_then(in_base64),
    })
}

/// The path in Base64 if it is not UTF-8, which JSON cannot hold as text.
fn in_base64(path: &Path) -> Option<String> {
    let is_text = path.to_str().is_some();
    (!is_text).then(|| base64::encode(path.as_os_str().as_bytes()))
}

fn print(out: &mut Out, args: &LsArgs, dir: Option<&Path>, lines: &[Line]) -> io::Result<()> {
    let has_head = args.recursive || args.inside.places.len() > 1;
    if let Some(dir) = dir.filter(|_| has_head) {
        if out.has_begun {
            out.to.write_all(b"\n")?;
        }
        out.name(dir.as_os_str())?;
        out.to.write_all(b":\n")?;
    }
    out.has_begun = true;
    let columns: Vec<[String; 6]> = match args.long {
        true => {
            let columns = lines.iter().map(|line| line.columns(args.human_readable));
            columns.collect()
        }
        false => Vec::new(),
    };
    let width = |at: usize| {
        columns
            .iter()
            .map(|c| c[at].len())
            .max()
            .unwrap_or_default()
    };
    let widths: [usize; 6] = std::array::from_fn(width);
    for (n, line) in lines.iter().enumerate() {
        if let Some(columns) = columns.get(n) {
            for (text, width) in columns.iter().zip(widths) {
                write!(out.to, "{text:>width$} ")?;
            }
        }
        out.name(&line.shown)?;
        if let (true, Some(target)) = (args.long, &line.target) {
            out.to.write_all(b" -> ")?;
            out.name(target.as_os_str())?;
        }
        out.to.write_all(b"\n")?;
    }
    Ok(())
}

/// The type and mode as ls(1) shows them.
pub(super) fn mode(kind: char, mode: u32) -> String {
    let mut text = String::from(kind);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (false, false) => '-',
            (false, true) => 'x',
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_shown_as_ls_shows_them() {
        assert_eq!(mode('-', 0o4755), "-rwsr-xr-x");
        assert_eq!(mode('d', 0o1776), "drwxrwxrwT");
        assert_eq!(mode('p', 0o2640), "prw-r-S---");
    }
}
