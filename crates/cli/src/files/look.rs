//! `stat IMAGE:/PATH`: the attributes of files.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use stetfs::{Metadata, Volume};

use super::accounts::names_of;
use super::args::Opening;
use super::failed::output;
use super::list::{mode, to_json};
use super::place::Place;
use super::time::{parts, shown};
use super::tree::Kind;
use super::troubles::Troubles;
use super::volumes::{Use, Volumes};
use crate::failure::{Code, Failure, Result};

/// The question of `stat`.
pub(crate) struct Question<'a> {
    pub(crate) opening: &'a Opening,
    /// Symbolic links are followed.
    pub(crate) dereference: bool,
    /// The format of a line, as of stat(1).
    pub(crate) format: Option<&'a str>,
}

/// The places that the arguments of `stat` name, if they are in volumes: a path of the host that
/// exists is that of a mount or of a volume. Other paths are not looked at: the server of a mount
/// may hang.
pub(crate) fn places(paths: &[PathBuf]) -> Option<Vec<Place>> {
    let places = paths
        .iter()
        .map(|path| match Place::from(path.as_os_str()) {
            Place::Host(_) => None,
            place => Some(place).filter(|_| !path.exists()),
        });
    places
        .collect::<Option<Vec<_>>>()
        .filter(|all| !all.is_empty())
}

/// A file, as it is shown.
struct Seen {
    path: PathBuf,
    metadata: Metadata,
    target: Option<PathBuf>,
    user: Option<String>,
    group: Option<String>,
    /// Bytes.
    block_size: u32,
}

/// Runs `stetfs stat IMAGE:/PATH…`.
pub(crate) fn run(places: &[Place], question: &Question<'_>, json: bool) -> Result<Code> {
    crate::log::to_stderr();
    if let Some(format) = question.format {
        check(format)?;
    }
    let mut volumes = Volumes::default();
    let mut troubles = Troubles::default();
    let mut seen = Vec::new();
    let done = places.iter().try_for_each(|place| {
        let (image, path) = place.inside()?;
        let volume = volumes.get(image, Use::Read, question.opening)?;
        let one = look(&volume, path, question.dereference);
        seen.extend(match places.len() {
            1 => Some(one?),
            _ => troubles.pass(one)?,
        });
        Ok(())
    });
    volumes.close(done)?;
    match (json, question.format) {
        (true, _) => {
            let all: Vec<Value> = seen.iter().map(Seen::to_json).collect();
            outln!(
                "{}",
                serde_json::json!({ "entries": all, "errors": troubles.to_json() })
            );
        }
        (false, Some(format)) => {
            let mut out = io::stdout().lock();
            let lines = seen.iter().map(|file| file.formatted(format));
            let written = lines.map(|line| out.write_all(&line));
            written.collect::<io::Result<()>>().or_else(output)?;
        }
        (false, None) => seen.iter().for_each(|file| out!("{}", file.whole())),
    }
    troubles.end("shown", json)
}

fn look(volume: &Volume, path: &Path, dereference: bool) -> Result<Seen> {
    let metadata = match dereference {
        true => volume.metadata(path)?,
        false => volume.symlink_metadata(path)?,
    };
    let target = match metadata.is_symlink() {
        true => Some(volume.read_link(path)?),
        false => None,
    };
    let (user, group) = names_of(volume, metadata.uid(), metadata.gid());
    Ok(Seen {
        path: path.to_owned(),
        metadata,
        target,
        user,
        group,
        block_size: volume.low().fs().statfs().block_size,
    })
}

/// The sequences of a format that are known.
const LETTERS: &str = "aAbBfFgGhinNostTuUwWxXyYzZ%";

/// Refuses formats that cannot be shown.
fn check(format: &str) -> Result {
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            continue;
        }
        let letter = chars.next().unwrap_or(' ');
        if !LETTERS.contains(letter) {
            let message = format!("the format {format:?} has the unknown sequence %{letter}");
            let hint = "known are %a %A %b %B %f %F %g %G %h %i %n %N %o %s %t %T %u %U %w %W %x \
                 %X %y %Y %z %Z %%";
            return Err(Failure::new(Code::Usage, message).hint(hint));
        }
    }
    Ok(())
}

impl Seen {
    fn to_json(&self) -> Value {
        let mut value = to_json(&self.path, &self.metadata, self.target.as_deref());
        value["user"] = self.user.clone().into();
        value["group"] = self.group.clone().into();
        for (name, time) in [
            ("accessed_at", self.metadata.accessed()),
            ("modified_at", self.metadata.modified()),
            ("changed_at", self.metadata.changed()),
            ("created_at", self.metadata.created()),
        ] {
            value[name] = shown(time).into();
        }
        value
    }

    /// The type in the words of stat(1).
    fn kind(&self) -> &'static str {
        match Kind::of(&self.metadata).name() {
            "file" if self.metadata.len() == 0 => "regular empty file",
            "file" => "regular file",
            "symlink" => "symbolic link",
            "char-device" => "character special file",
            "block-device" => "block special file",
            name => name,
        }
    }

    fn letters(&self) -> String {
        mode(Kind::of(&self.metadata).letter(), self.metadata.mode())
    }

    /// The text of stat(1), with times in UTC, and no device, which a volume without a mount has
    /// not.
    fn whole(&self) -> String {
        let name = |name: &Option<String>| name.clone().unwrap_or_else(|| "UNKNOWN".to_owned());
        let m = &self.metadata;
        let path = self.path.display();
        let arrow = self
            .target
            .as_ref()
            .map(|target| format!(" -> {}", target.display()));
        let (major, minor) = m.device();
        let device = match Kind::of(m).is_device() {
            true => format!(" Device type: {major},{minor}"),
            false => String::new(),
        };
        let ids = format!(
            "Uid: ({:>5}/{:>8})   Gid: ({:>5}/{:>8})",
            m.uid(),
            name(&self.user),
            m.gid(),
            name(&self.group)
        );
        let lines = [
            format!("  File: {path}{}", arrow.unwrap_or_default()),
            format!(
                "  Size: {:<10}\tBlocks: {:<10} IO Block: {:<6} {}",
                m.len(),
                m.blocks(),
                self.block_size,
                self.kind()
            ),
            format!(" Inode: {:<11} Links: {}{device}", m.ino(), m.nlink()),
            format!(
                "Access: ({:04o}/{})  {ids}",
                m.mode() & 0o7777,
                self.letters()
            ),
            format!("Access: {}", shown(m.accessed())),
            format!("Modify: {}", shown(m.modified())),
            format!("Change: {}", shown(m.changed())),
            format!(" Birth: {}", shown(m.created())),
        ];
        lines.join("\n") + "\n"
    }

    /// A line in this format, which was checked.
    fn formatted(&self, format: &str) -> Vec<u8> {
        let mut line = Vec::new();
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            match c {
                '%' => line.extend(self.sequence(chars.next().unwrap_or('%'))),
                c => line.extend(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        line.push(b'\n');
        line
    }

    fn sequence(&self, letter: char) -> Vec<u8> {
        let m = &self.metadata;
        let name = |name: &Option<String>| name.clone().unwrap_or_else(|| "UNKNOWN".to_owned());
        let (major, minor) = m.device();
        let seconds = |time| parts(time).0.to_string();
        let text = match letter {
            'a' => format!("{:o}", m.mode() & 0o7777),
            'A' => self.letters(),
            'b' => m.blocks().to_string(),
            'B' => "512".to_owned(),
            'f' => format!("{:x}", m.mode()),
            'F' => self.kind().to_owned(),
            'g' => m.gid().to_string(),
            'G' => name(&self.group),
            'h' => m.nlink().to_string(),
            'i' => m.ino().to_string(),
            'n' => return self.path.as_os_str().as_bytes().to_vec(),
            'N' => return self.name_and_target(),
            'o' => self.block_size.to_string(),
            's' => m.len().to_string(),
            't' => format!("{major:x}"),
            'T' => format!("{minor:x}"),
            'u' => m.uid().to_string(),
            'U' => name(&self.user),
            'w' => shown(m.created()),
            'W' => seconds(m.created()),
            'x' => shown(m.accessed()),
            'X' => seconds(m.accessed()),
            'y' => shown(m.modified()),
            'Y' => seconds(m.modified()),
            'z' => shown(m.changed()),
            'Z' => seconds(m.changed()),
            other => other.to_string(),
        };
        text.into_bytes()
    }

    fn name_and_target(&self) -> Vec<u8> {
        let in_quotes = |path: &Path| {
            let text = super::quoted::quoted(path.as_os_str().as_bytes());
            match text.starts_with(['\'', '"']) {
                true => text,
                false => format!("'{text}'"),
            }
        };
        let mut text = in_quotes(&self.path);
        if let Some(target) = &self.target {
            text.push_str(" -> ");
            text.push_str(&in_quotes(target));
        }
        text.into_bytes()
    }
}
