//! Compressed archives, by the programs that tar(1) runs, too: gzip, bzip2, xz and zstd.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread::JoinHandle;

use stetfs::low::{ForeignKind, known_format};

use super::archive::{PART, unreadable};
use crate::failure::{Code, Failure, Result};
use crate::files::args::TarArgs;

/// A program that compresses, and its mark at the beginning of a file.
pub(super) struct Program {
    name: &'static str,
    magic: &'static [u8],
    /// Arguments for compressing.
    packs: &'static [&'static str],
}

// Without its name and time gzip writes the same for the same content.
const GZIP: Program = Program {
    name: "gzip",
    magic: b"\x1f\x8b",
    packs: &["-n", "-c"],
};
const BZIP2: Program = Program {
    name: "bzip2",
    magic: b"BZh",
    packs: &["-c"],
};
const XZ: Program = Program {
    name: "xz",
    magic: b"\xfd7zXZ\0",
    packs: &["-c"],
};
const ZSTD: Program = Program {
    name: "zstd",
    magic: b"\x28\xb5\x2f\xfd",
    packs: &["-q", "-c"],
};

/// The place of the magic in a tar header.
const MAGIC: std::ops::Range<usize> = 257..262;

/// The program that the arguments ask for.
pub(super) fn asked(args: &TarArgs) -> Option<&'static Program> {
    match args {
        _ if args.gzip => Some(&GZIP),
        _ if args.bzip2 => Some(&BZIP2),
        _ if args.xz => Some(&XZ),
        _ if args.zstd => Some(&ZSTD),
        _ => None,
    }
}

impl Program {
    fn start(&self, args: &[&str], from: Stdio, to: Stdio) -> Result<Child> {
        let mut command = Command::new(self.name);
        let started = command.args(args).stdin(from).stdout(to).spawn();
        started.map_err(|e| {
            let message = format!("cannot run {}: {e}", self.name);
            Failure::new(Code::System, message).hint(format!("install {}", self.name))
        })
    }

    fn check(&self, ended: io::Result<ExitStatus>) -> Result {
        match ended {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => {
                let message = format!("{} failed: {status}", self.name);
                Err(Failure::new(Code::Io, message))
            }
            Err(e) => Err(Failure::new(
                Code::Io,
                format!("cannot wait for {}: {e}", self.name),
            )),
        }
    }
}

/// The end of a program that reads or writes the archive.
pub(super) struct Running {
    program: &'static Program,
    child: Child,
    /// The thread that brings the archive to the program.
    feeds: Option<JoinHandle<()>>,
}

impl Running {
    /// Waits for the end of the program.
    ///
    /// # Errors
    /// It failed.
    pub(super) fn end(mut self) -> Result {
        let ended = self.child.wait();
        if let Some(feeds) = self.feeds.take() {
            let _ = feeds.join();
        }
        self.program.check(ended)
    }
}

/// The output of an archive, compressed if that is asked for. The file is opened already.
///
/// # Errors
/// The program cannot be started.
pub(super) fn writer(
    args: &TarArgs,
    to: Option<File>,
) -> Result<(Box<dyn Write>, Option<Running>)> {
    let Some(program) = asked(args) else {
        let to: Box<dyn Write> = match to {
            Some(file) => Box::new(BufWriter::with_capacity(PART, file)),
            None => Box::new(BufWriter::with_capacity(PART, io::stdout())),
        };
        return Ok((to, None));
    };
    let to = to.map_or_else(Stdio::inherit, Stdio::from);
    let mut child = program.start(program.packs, Stdio::piped(), to)?;
    let into: Option<ChildStdin> = child.stdin.take();
    let into: Box<dyn Write> = match into {
        Some(into) => Box::new(BufWriter::with_capacity(PART, into)),
        None => Box::new(io::sink()),
    };
    let running = Running {
        program,
        child,
        feeds: None,
    };
    Ok((into, Some(running)))
}

/// The input of an archive, which is unpacked by the program that is asked for, or by the one whose
/// mark it has.
///
/// # Errors
/// The archive cannot be read; the program cannot be started.
pub(super) fn reader(
    asked: Option<&'static Program>,
    from: Option<File>,
) -> Result<(Box<dyn Read>, Option<Running>)> {
    let from: Box<dyn Read + Send> = match from {
        Some(file) => Box::new(file),
        None => Box::new(io::stdin()),
    };
    let mut from = BufReader::with_capacity(PART, from);
    let program = match asked {
        Some(program) => Some(program),
        None => recognized(from.fill_buf().map_err(unreadable)?)?,
    };
    let Some(program) = program else {
        return Ok((Box::new(from), None));
    };
    let mut child = program.start(&["-d", "-c"], Stdio::piped(), Stdio::piped())?;
    let (into, out) = (child.stdin.take(), child.stdout.take());
    let feeds = into.map(|into| std::thread::spawn(move || feed(from, into)));
    let out: Box<dyn Read> = match out {
        Some(out) => Box::new(whole(out)),
        None => Box::new(io::empty()),
    };
    let running = Running {
        program,
        child,
        feeds,
    };
    Ok((out, Some(running)))
}

fn whole(out: ChildStdout) -> impl Read {
    BufReader::with_capacity(PART, out)
}

/// Brings an archive to a program. An error ends it, and the program tells that its input is short.
fn feed(mut from: impl Read, mut into: ChildStdin) {
    if let Err(e) = io::copy(&mut from, &mut into)
        && e.kind() != io::ErrorKind::BrokenPipe
    {
        tracing::warn!("cannot read the archive: {e}");
    }
}

/// The program that packed the archive; `None` if it is not packed.
///
/// # Errors
/// Another program packed it.
fn recognized(head: &[u8]) -> Result<Option<&'static Program>> {
    if head.get(MAGIC) == Some(b"ustar") {
        return Ok(None);
    }
    let known = [&GZIP, &BZIP2, &XZ, &ZSTD];
    let mut known = known
        .into_iter()
        .filter(|program| head.starts_with(program.magic));
    match (known.next(), known_format(head)) {
        (Some(program), _) => Ok(Some(program)),
        (None, Some(format)) if format.kind == ForeignKind::Packed => {
            let message = format!("this is not a tar archive: it holds {}", format.name);
            Err(Failure::new(Code::Usage, message)
                .hint("unpack it first: zcat layer.tar.Z | stetfs tar -x IMAGE:/"))
        }
        (None, _) => Ok(None),
    }
}

/// Opens the file of an archive; `None` is standard input or output.
///
/// # Errors
/// It cannot be opened.
pub(super) fn open(path: Option<&Path>, makes: bool) -> Result<Option<File>> {
    let Some(path) = path else {
        return Ok(None);
    };
    let (doing, file) = match makes {
        true => ("make", File::create(path)),
        false => ("open", File::open(path)),
    };
    file.map(Some)
        .map_err(|e| crate::files::failed::host(doing, path, e))
}

/// Reads a packed archive to its end, where the program checks what it has unpacked.
///
/// # Errors
/// It cannot be read.
pub(super) fn drain(archive: &mut dyn Read, is_packed: bool) -> Result {
    match is_packed {
        true => io::copy(archive, &mut io::sink())
            .map(drop)
            .map_err(unreadable),
        false => Ok(()),
    }
}

/// The outcome of a command, with that of the program that packs or unpacks its archive.
///
/// # Errors
/// The command or the program failed.
pub(super) fn ended(running: Option<Running>, done: Result) -> Result {
    let ended = running.map_or(Ok(()), Running::end);
    match done {
        // A program that failed is the reason of an archive that ends early.
        Err(e) if e.code == Code::Interrupted => Err(e),
        done => ended.and(done),
    }
}
