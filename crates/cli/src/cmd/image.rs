//! `stetfs image`: new images with content; Android's sparse images and plain ones.

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;

use serde_json::json;
use stetfs::low::{DeviceOptions, Direct, FileDevice, Packed, SparseError, SparseMap, Zeroes};

use crate::args::{Image, SparseArgs, UnsparseArgs};
use crate::failure::{Code, Failure, Result};
use crate::{files, print};

/// Runs a command of `stetfs image`.
pub(crate) fn run(command: &Image, as_json: bool) -> Result {
    let (done, to) = match command {
        Image::Build(args) => return files::build::run(args, as_json),
        Image::Sparse(args) => (sparse(args)?, &args.sparse),
        Image::Unsparse(args) => (unsparse(args)?, &args.image),
    };
    if as_json {
        let answer = json!({
            "image": to.display().to_string(),
            "block_size": done.block,
            "blocks": done.blocks,
            "raw": done.raw,
            "filled": done.filled,
            "dont_care": done.skipped,
        });
        print::value(&answer, true);
    }
    Ok(())
}

fn sparse(args: &SparseArgs) -> Result<Packed> {
    // The claim keeps others from writing to the image meanwhile.
    let how = DeviceOptions {
        read_only: true,
        direct: Direct::Off,
        ..DeviceOptions::default()
    };
    let _claim = FileDevice::open(&args.image, how).map_err(|e| Failure::from(&e))?;
    let from = open(&args.image)?;
    let len = from.metadata().map_or(0, |m| m.len());
    if SparseMap::detect(&(&from, len)).unwrap_or(false) {
        let message = format!("{} is a sparse image already", args.image.display());
        return Err(Failure::new(Code::Usage, message));
    }
    let block = u32::try_from(args.block_size).unwrap_or(u32::MAX);
    let zeroes = match args.skip_zeroes {
        true => Zeroes::Skip,
        false => Zeroes::Fill,
    };
    make(&args.image, &args.sparse, |to| {
        stetfs::low::pack(&from, to, block, zeroes)
    })
}

fn unsparse(args: &UnsparseArgs) -> Result<Packed> {
    let from = open(&args.sparse)?;
    make(&args.sparse, &args.image, |to| {
        stetfs::low::unpack(&from, to, args.max_fill)
    })
}

fn open(path: &Path) -> Result<File> {
    File::open(path).map_err(|e| told("open", path, &e))
}

fn told(doing: &str, path: &Path, e: &std::io::Error) -> Failure {
    let code = match e.kind() {
        ErrorKind::NotFound => Code::NotFound,
        ErrorKind::PermissionDenied | ErrorKind::AlreadyExists => Code::Usage,
        _ => Code::Io,
    };
    Failure::new(code, format!("cannot {doing} {}: {e}", path.display()))
}

/// Makes the file `to` from `from`; removes it if that fails.
fn make(
    from: &Path,
    to: &Path,
    convert: impl FnOnce(&File) -> std::result::Result<Packed, SparseError>,
) -> Result<Packed> {
    let mut options = File::options();
    options.read(true).write(true).create_new(true);
    let file = options.open(to).map_err(|e| told("make", to, &e))?;
    convert(&file).map_err(|e| {
        if let Err(e) = std::fs::remove_file(to) {
            tracing::warn!("cannot remove the incomplete file {}: {e}", to.display());
        }
        let code = match &e {
            SparseError::Io(_) => Code::Io,
            SparseError::Block(_) | SparseError::Large(_) => Code::Usage,
            SparseError::Fill { .. } => Code::Usage,
            SparseError::Bad(_) | SparseError::Checksum(_) => Code::Volume,
        };
        let failure = Failure::new(code, format!("{}: {e}", from.display()));
        match e {
            SparseError::Fill { all, .. } => failure.hint(format!(
                "if that is meant, allow more with --max-fill, such as --max-fill {all}"
            )),
            _ => failure,
        }
    })
}
