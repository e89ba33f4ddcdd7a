//! `tar`: packs files of a volume into an archive, unpacks archives into a volume, and lists them.

mod acl;
mod archive;
mod bounded;
mod chosen;
mod create;
mod extract;
mod layer;
mod list;
mod packed;
mod pax;
mod sparse;
mod told;
mod unpacked;

use std::io::{self, IsTerminal};
use std::path::Path;

use stetfs::Volume;

use self::chosen::Chosen;
use self::extract::Unpacking;
pub(super) use self::layer::{Archived, apply as unpack_layer, look_through};
use self::packed::{drain, ended};
use self::told::Told;
use super::args::TarArgs;
use super::meter::Meter;
use super::volumes::{Use, open};
use crate::failure::{Code, Failure, Result};

/// Runs `stetfs tar`.
pub(super) fn run(args: &TarArgs, json: bool) -> Result<Code> {
    let file = args.file.as_deref().filter(|file| *file != Path::new("-"));
    if args.list {
        return list::run(args, file, json);
    }
    let mut meter = Meter::start();
    let mut told = Told {
        is_on: args.verbose,
        // Standard output may be the archive.
        to_stderr: json || (args.create && file.is_none()),
    };
    let done = match args.create {
        true => create(args, file, &mut told, &mut meter),
        false => extract(args, file, &mut told, &mut meter),
    };
    let json = json && (args.extract || file.is_some());
    meter.end(json && done.is_ok());
    let what = if args.create { "packed" } else { "unpacked" };
    done.and_then(|()| meter.troubles.end(what, json))
}

fn create(args: &TarArgs, file: Option<&Path>, told: &mut Told, meter: &mut Meter) -> Result {
    let (place, names) = args.place_and_names()?;
    let (image, path) = place.inside()?;
    if args.directory.is_some() && names.is_empty() {
        return Err(Failure::new(Code::Usage, "no name to pack is given")
            .hint("name files in the directory of -C; . is all of it"));
    }
    if file.is_none() && io::stdout().is_terminal() {
        return Err(
            Failure::new(Code::Usage, "an archive is not written to a terminal")
                .hint("name a file with -f, or redirect standard output"),
        );
    }
    // The archive is opened before the volume.
    let (archive, running) = packed::writer(args, packed::open(file, true)?)?;
    let volume = open(image, Use::Read, &args.opening)?;
    let done = create::create(args, &volume, (path, names), archive, told, meter);
    close(volume, ended(running, done))
}

fn extract(args: &TarArgs, file: Option<&Path>, told: &mut Told, meter: &mut Meter) -> Result {
    let (place, names) = args.place_and_names()?;
    let (image, path) = place.inside()?;
    let mut chosen = Chosen::new(names, &args.exclude);
    let (mut archive, running) = packed::reader(packed::asked(args), packed::open(file, false)?)?;
    let volume = open(image, Use::Write, &args.opening)?;
    let how = Unpacking {
        owner: args.owner,
        whiteouts: args.whiteouts,
    };
    let done = extract::extract(how, &volume, path, &mut archive, (&mut chosen, told), meter);
    let done = done.and_then(|()| drain(&mut archive, running.is_some()));
    drop(archive);
    close(volume, ended(running, done))?;
    tell_missing(&chosen, meter);
    Ok(())
}

/// Tells which of the wanted names were not in the archive.
fn tell_missing(chosen: &Chosen, meter: &mut Meter) {
    for name in chosen.missing() {
        let message = format!("{} is not in the archive", name.display());
        meter.troubles.tell(&Failure::new(Code::NotFound, message));
    }
}

fn close(volume: Volume, done: Result) -> Result {
    let closed = volume.close();
    done?;
    Ok(closed?)
}
