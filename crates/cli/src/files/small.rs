//! `cat`, `mkdir` and `rm`.

use std::io::{self, Write};

use serde_json::json;
use stetfs::SetMetadata;

use super::args::{CatArgs, InsideArgs, MkdirArgs, RmArgs};
use super::failed::output;
use super::volumes::{Use, each};
use crate::failure::Result;

/// Bytes that are read at a time.
const PART: usize = 1 << 20;

/// `stetfs cat`.
pub(super) fn cat(args: &CatArgs) -> Result {
    let mut buf = vec![0; PART];
    each(&args.inside, Use::Read, |volume, path| {
        let file = volume.open_file(path)?;
        file.check_map()?;
        let mut out = io::stdout().lock();
        let mut at = 0;
        loop {
            let n = file.read_at(&mut buf, at)?;
            let part = buf.get(..n).unwrap_or_default();
            if n == 0 {
                return out.flush().or_else(output);
            }
            if let Err(e) = out.write_all(part) {
                return output(e);
            }
            at += n as u64;
        }
    })
}

/// `stetfs mkdir`.
pub(super) fn mkdir(args: &MkdirArgs, json: bool) -> Result {
    each(&args.inside, Use::Write, |volume, path| {
        if args.parents {
            volume.create_dir_all(path)?;
        } else {
            volume.create_dir(path)?;
        }
        if let Some((uid, gid)) = args.owner {
            volume.set_metadata(path, SetMetadata::new().owner(uid).group(gid))?;
        }
        Ok(())
    })?;
    told("made", &args.inside, json);
    Ok(())
}

/// `stetfs rm`.
pub(super) fn rm(args: &RmArgs, json: bool) -> Result {
    each(&args.inside, Use::Write, |volume, path| {
        let removed = match args.recursive {
            true => volume.remove_dir_all(path),
            false => volume.remove_file(path),
        };
        match removed {
            Err(e) if args.force && e.kind() == io::ErrorKind::NotFound => Ok(()),
            other => Ok(other?),
        }
    })?;
    told("removed", &args.inside, json);
    Ok(())
}

/// What programs are told of that went well.
fn told(done: &str, inside: &InsideArgs, json: bool) {
    if json {
        outln!("{}", json!({ done: inside.places.len() }));
    }
}
