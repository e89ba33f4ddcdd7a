//! `ls`.

use std::ffi::OsStr;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stetfs::{Metadata, Volume};

use super::args::LsArgs;
use super::base64;
use super::failed::output;
use super::quoted::quoted;
use super::tree::{Entered, Inside, Kind, Tree};
use super::troubles::Troubles;
use super::volumes::{Use, each};
use crate::date::utc;
use crate::failure::{Code, Result};

/// What is listed of something.
struct Line {
    path: PathBuf,
    metadata: Metadata,
    /// Of a symbolic link.
    target: Option<PathBuf>,
}

/// The output, a terminal or not.
struct Out {
    /// It shows what it gets: names are quoted.
    terminal: bool,
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

/// `stetfs ls`.
pub(super) fn run(args: &LsArgs, json: bool) -> Result<Code> {
    let mut out = Out {
        terminal: io::stdout().is_terminal(),
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
        let done = list(volume, path, args, give, &mut troubles);
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

/// Gives what is in each directory, or the one file.
fn list(
    volume: &Volume,
    path: &Path,
    args: &LsArgs,
    give: &mut dyn FnMut(Option<&Path>, &[Line]),
    troubles: &mut Troubles,
) -> Result {
    let metadata = volume.symlink_metadata(path)?;
    // As of ls: a symbolic link to a directory is followed where only names are asked for.
    let follow = metadata.is_symlink() && !args.long;
    let is_dir = match follow {
        true => volume.metadata(path).is_ok_and(|m| m.is_dir()),
        false => metadata.is_dir(),
    };
    if !is_dir {
        let target = match metadata.is_symlink() {
            true => Some(volume.read_link(path)?),
            false => None,
        };
        let path = path.to_owned();
        give(
            None,
            &[Line {
                path,
                metadata,
                target,
            }],
        );
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
        let mut below = Vec::new();
        for name in names {
            let path = dir.join(name);
            let Some(line) = troubles.pass(Line::new(&tree, &path))? else {
                continue;
            };
            if args.recursive && line.metadata.is_dir() {
                below.push((path, line.metadata.ino()));
            }
            lines.push(line);
        }
        give(args.recursive.then_some(&*shown), &lines);
        // The first of them is to come first.
        dirs.extend(below.into_iter().rev());
    }
    Ok(())
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
            metadata,
            target,
        })
    }

    fn to_json(&self) -> Value {
        let m = &self.metadata;
        let (major, minor) = m.device();
        json!({
            "path": self.path.to_string_lossy(),
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
            "target": self.target.as_ref().map(|t| t.to_string_lossy()),
            "path_base64": in_base64(&self.path),
            "target_base64": self.target.as_deref().and_then(in_base64),
        })
    }

    /// The columns before the name.
    fn columns(&self) -> [String; 6] {
        let m = &self.metadata;
        let (major, minor) = m.device();
        let size = match Kind::of(m).is_device() {
            true => format!("{major}, {minor}"),
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

/// The bytes of a path that is not UTF-8, which JSON cannot hold as text.
fn in_base64(path: &Path) -> Option<String> {
    let is_text = path.to_str().is_some();
    (!is_text).then(|| base64::encode(path.as_os_str().as_bytes()))
}

fn print(out: &mut Out, args: &LsArgs, dir: Option<&Path>, lines: &[Line]) -> io::Result<()> {
    if let Some(dir) = dir {
        out.name(dir.as_os_str())?;
        out.to.write_all(b":\n")?;
    }
    let columns: Vec<[String; 6]> = match args.long {
        true => lines.iter().map(Line::columns).collect(),
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
        let name = line.path.file_name().unwrap_or(line.path.as_os_str());
        out.name(name)?;
        if let (true, Some(target)) = (args.long, &line.target) {
            out.to.write_all(b" -> ")?;
            out.name(target.as_os_str())?;
        }
        out.to.write_all(b"\n")?;
    }
    if dir.is_some() {
        out.to.write_all(b"\n")?;
    }
    Ok(())
}

/// As ls(1) shows it.
fn mode(kind: char, mode: u32) -> String {
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
