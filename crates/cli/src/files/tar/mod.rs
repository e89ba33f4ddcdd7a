//! `tar`: archives in and out of a volume.

mod acl;
mod archive;
mod bounded;
mod create;
mod extract;
mod pax;
mod sparse;
mod unpacked;

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, IsTerminal, Read, Write};
use std::path::Path;

use stetfs::Volume;
use stetfs::low::{ForeignKind, known_format};

use self::archive::{PART, unreadable};
use super::args::TarArgs;
use super::failed::host;
use super::meter::Meter;
use super::volumes::{Use, open};
use crate::failure::{Code, Failure, Result};

/// `stetfs tar`.
pub(super) fn run(args: &TarArgs, json: bool) -> Result<Code> {
    let (image, path) = args.place.inside()?;
    let how = if args.create { Use::Read } else { Use::Write };
    let file = args.file.as_deref().filter(|file| *file != Path::new("-"));
    let mut meter = Meter::start();
    // Before the volume changes.
    let done = if args.create {
        let archive = writer(file)?;
        let volume = open(image, how, &args.opening)?;
        let done = create::create(args, &volume, path, archive, &mut meter);
        close(volume, done)
    } else {
        let archive = reader(file)?;
        let volume = open(image, how, &args.opening)?;
        let done = extract::extract(args, &volume, path, archive, &mut meter);
        close(volume, done)
    };
    // Standard output may be the archive.
    let json = json && (args.extract || file.is_some());
    meter.end(json && done.is_ok());
    let what = if args.create { "packed" } else { "unpacked" };
    done.and_then(|()| meter.troubles.end(what, json))
}

fn close(volume: Volume, done: Result) -> Result {
    let closed = volume.close();
    done?;
    Ok(closed?)
}

fn writer(file: Option<&Path>) -> Result<Box<dyn Write>> {
    Ok(match file {
        Some(path) => {
            let file = File::create(path).map_err(|e| host("make", path, e))?;
            Box::new(BufWriter::with_capacity(PART, file))
        }
        None if io::stdout().is_terminal() => {
            return Err(Failure::new(Code::Usage, "a terminal shows no archive")
                .hint("name a file with -f, or redirect standard output"));
        }
        None => Box::new(BufWriter::with_capacity(PART, io::stdout())),
    })
}

fn reader(file: Option<&Path>) -> Result<Box<dyn Read>> {
    Ok(match file {
        Some(path) => {
            let file = File::open(path).map_err(|e| host("open", path, e))?;
            Box::new(unpacked(BufReader::with_capacity(PART, file))?)
        }
        None => Box::new(unpacked(BufReader::with_capacity(PART, io::stdin()))?),
    })
}

/// The archive, unless it begins as something that has to be unpacked first.
fn unpacked<R: BufRead>(mut archive: R) -> Result<R> {
    /// Where a tar archive says so.
    const MAGIC: std::ops::Range<usize> = 257..262;
    let head = archive.fill_buf().map_err(unreadable)?;
    let known = known_format(head).filter(|known| known.kind == ForeignKind::Packed);
    match known {
        Some(known) if head.get(MAGIC) != Some(b"ustar") => {
            let message = format!("this is no tar archive: it holds {}", known.name);
            Err(Failure::new(Code::Usage, message)
                .hint("unpack it on the way, such as: zcat layer.tar.gz | stetfs tar -x IMAGE:/"))
        }
        _ => Ok(archive),
    }
}
