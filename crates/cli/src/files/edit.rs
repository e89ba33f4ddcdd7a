//! `edit`: a file of a volume in the user's editor.
//!
//! The volume is open only before and after the editor, so an editor that stays open keeps nobody
//! from the volume, and a machine that goes down meanwhile leaves it clean.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use serde_json::json;
use signal_hook::consts::{SIGINT, SIGQUIT};
use stetfs::{File, Volume};

use super::args::EditArgs;
use super::failed::host;
use super::place::split;
use super::volumes::{Use, open};
use crate::failure::{Code, Failure, Result};

/// Largest file that is edited, bytes: editors hold it in memory, and so does this.
const LARGEST: u64 = 256 << 20;

/// Runs `stetfs edit`.
pub(super) fn run(args: &EditArgs, json: bool) -> Result<Code> {
    let (image, path) = args.place.inside()?;
    let volume = open(image, Use::Read, &args.opening)?;
    let before = content(&volume, path);
    let closed = volume.close();
    let before = before?;
    closed?;
    let copy = Copy::make(path, before.as_deref().unwrap_or_default())?;
    let edited = copy.edit();
    let after = edited.and_then(|()| copy.content());
    let after = match after {
        Ok(after) => after,
        Err(e) => return Err(copy.left(e, before.as_deref())),
    };
    // An editor that wrote nothing makes no file either.
    let is_changed = before.as_deref().unwrap_or_default() != after;
    if is_changed {
        let done = write_back(args, image, path, before.as_deref(), &after);
        done.map_err(|e| copy.left(e, before.as_deref()))?;
    }
    copy.remove();
    match (json, is_changed) {
        (true, _) => outln!("{}", json!({ "changed": is_changed })),
        (false, true) => {}
        (false, false) => tracing::warn!("{} is not changed", path.display()),
    }
    Ok(Code::Done)
}

/// The content of a file; `None` if it does not exist.
fn content(volume: &Volume, path: &Path) -> Result<Option<Vec<u8>>> {
    let metadata = match volume.metadata(path) {
        Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {
            // Its directory must exist, and the editor is not started in vain.
            volume.metadata(split(path).0)?;
            return Ok(None);
        }
        metadata => metadata?,
    };
    let refused = |what: &str| {
        let message = format!("{} {what}, and cannot be edited", path.display());
        Err(Failure::new(Code::Usage, message))
    };
    match metadata.len() {
        _ if metadata.is_dir() => refused("is a directory"),
        _ if !metadata.is_file() => refused("is no regular file"),
        len if len > LARGEST => refused("is larger than 256 MiB"),
        _ => Ok(Some(volume.read(path)?)),
    }
}

/// Writes the edited content back, if the file is still as it was read.
fn write_back(
    args: &EditArgs,
    image: &Path,
    path: &Path,
    before: Option<&[u8]>,
    after: &[u8],
) -> Result {
    let volume = open(image, Use::Write, &args.opening)?;
    let write = || {
        if content(&volume, path)?.as_deref() != before {
            let message = format!("{} was changed while it was edited", path.display());
            return Err(Failure::new(Code::Usage, message));
        }
        let done = fill(&volume, path, after);
        if let (Err(_), None) = (&done, before) {
            // A new file without its content is none.
            let _ = volume.remove_file(path);
        }
        done
    };
    let done = write();
    let closed = volume.close();
    done?;
    Ok(closed?)
}

fn fill(volume: &Volume, path: &Path, content: &[u8]) -> Result {
    let mut options = File::options();
    let file = options.write(true).create(true).open(volume, path)?;
    let size = content.len() as u64;
    // Room for all of it is taken before the first byte changes, where the volume can do that.
    match file.allocate(0..size.max(1)) {
        Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
        done => done?,
    }
    file.write_all_at(content, 0)?;
    Ok(file.set_len(size)?)
}

/// The copy that the editor gets: a file with the name of the original, in a directory that only
/// this user may read.
struct Copy {
    dir: PathBuf,
    file: PathBuf,
}

impl Copy {
    fn make(path: &Path, content: &[u8]) -> Result<Copy> {
        let above = std::env::temp_dir();
        let name = path.file_name().unwrap_or(OsStr::new("file"));
        let mut n = 0_u32;
        let dir = loop {
            let dir = above.join(format!("stetfs-edit-{}-{n}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&dir) {
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists && n < 1000 => n += 1,
                made => {
                    made.map_err(|e| host("make the directory", &dir, e))?;
                    break dir;
                }
            }
        };
        let file = dir.join(name);
        let copy = Copy { dir, file };
        let write = || {
            let mut options = fs::OpenOptions::new();
            let mut to = options
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&copy.file)?;
            std::io::Write::write_all(&mut to, content)
        };
        match write() {
            Ok(()) => Ok(copy),
            Err(e) => {
                copy.remove();
                Err(host("write", &copy.file, e))
            }
        }
    }

    /// Runs the editor: $VISUAL, $EDITOR or vi, by a shell, as they may have arguments.
    fn edit(&self) -> Result {
        let said = ["VISUAL", "EDITOR"].map(std::env::var_os);
        let mut said = said.into_iter().flatten().filter(|text| !text.is_empty());
        let editor = said.next().unwrap_or_else(|| OsString::from("vi"));
        // Ctrl-C is for the editor, and must not end this process while the copy is needed.
        for signal in [SIGINT, SIGQUIT] {
            if let Err(e) = signal_hook::flag::register(signal, Arc::default()) {
                tracing::warn!("Ctrl-C ends the command, and leaves the copy: {e}");
            }
        }
        let mut script = editor.clone();
        script.push(" \"$@\"");
        let ended = Command::new("sh")
            .arg("-c")
            .arg(&script)
            .arg("sh")
            .arg(&self.file)
            .status()
            .map_err(|e| host("run the editor", Path::new(&editor), e))?;
        match ended.success() {
            true => Ok(()),
            false => {
                let message = format!("the editor {} failed: {ended}", editor.display());
                Err(Failure::new(Code::Usage, message)
                    .hint("$VISUAL or $EDITOR names another editor"))
            }
        }
    }

    fn content(&self) -> Result<Vec<u8>> {
        fs::read(&self.file).map_err(|e| host("read", &self.file, e))
    }

    /// The failure of a write-back: a copy with changes stays, and the message says where.
    fn left(&self, mut failure: Failure, before: Option<&[u8]>) -> Failure {
        let is_changed = self
            .content()
            .is_ok_and(|now| before.unwrap_or_default() != now);
        match is_changed {
            true => {
                let place = format!("what you wrote is in {}", self.file.display());
                failure.hint = match failure.hint.is_empty() {
                    true => place,
                    false => format!("{place}\n  {}", failure.hint),
                };
            }
            false => self.remove(),
        }
        failure
    }

    fn remove(&self) {
        if let Err(e) = fs::remove_dir_all(&self.dir) {
            tracing::warn!("cannot remove {}: {e}", self.dir.display());
        }
    }
}
