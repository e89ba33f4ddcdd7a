//! `image build`: makes an image with the content of directories, archives and container images.
//!
//! * `source`, `oci`: the sources and their layers;
//! * `need`: the room that they take; `fit`: the size of the image;
//! * `target`: the file that becomes the image.
//!
//! The sources are looked through for their room, a volume of that size is made beside the name of
//! the image, the layers go into it in order, and the file gets its name. What whiteouts removed
//! leaves a volume that is too large: its content is copied to a smaller one then.

mod fit;
mod need;
mod oci;
mod source;
mod target;

use std::fs::File;
use std::path::Path;

use serde_json::{Value, json};
use stetfs::low::{FormatOptions, FormatTarget, Formatted, Profile};
use stetfs::{MountOptions, Space, Volume};
use tracing::subscriber::NoSubscriber;

use self::fit::fit;
use self::need::{Need, Sizes};
use self::source::{Layer, Source};
use self::target::Target;
use super::args::{BuildArgs, ImageSize};
use super::copy;
use super::failed::host;
use super::meter::Meter;
use super::size::human;
use super::tar::unpack_layer;
use super::tree::{Ahead, Inside};
use crate::failure::{Code, Failure, Result};
use crate::options;

/// Bytes of a block, unless the profile is another one or the user says so: below 512 MiB mke2fs
/// would take 1 KiB, and half the speed.
const BLOCK: u32 = 4096;
/// Bytes that are not worth a second copy, and of which a file of this size is not short.
const SMALL: u64 = 1 << 20;
/// Most attempts to find a size.
const ATTEMPTS: u32 = 6;
/// How the volume is written: nobody has it before the end, so no commit is needed and no flush. A
/// small cache keeps its memory warm: a page that is used again needs no page fault.
const WRITING: &str = "nobarrier,commit=3600,noatime,cache=32M";

/// A complete image.
struct Built {
    formatted: Formatted,
    space: Space,
    sources: Vec<Value>,
    counts: Value,
}

/// Runs `stetfs image build`.
pub(crate) fn run(args: &BuildArgs, json: bool) -> Result {
    crate::log::to_stderr();
    let mut meter = Meter::start();
    let done = build(args, &mut meter);
    // A program that unpacks an archive ends by the same Ctrl-C, and its end is no reason.
    let done = done.or_else(|e| meter.go_on().and(Err(e)));
    meter.end(false);
    tell(args, &done?, json);
    Ok(())
}

fn build(args: &BuildArgs, meter: &mut Meter) -> Result<Built> {
    let mut options = args.new.read()?;
    options.reserved = options.reserved.or(Some(0));
    if options.profile == Profile::Mke2fs {
        options.block_size = options.block_size.or(Some(BLOCK));
    }
    let target = Target::new(&args.image, args.force)?;
    let platform = args.platform.as_deref();
    let sources = args
        .from
        .iter()
        .map(|path| Source::open(path, platform, meter));
    let sources = sources.collect::<Result<Vec<Source>>>()?;
    for dir in sources.iter().filter_map(Source::dir) {
        if target.is_inside(dir)? {
            let message = format!("the image would be part of its source {}", dir.display());
            return Err(Failure::new(Code::Usage, message).hint("make it in another directory"));
        }
    }
    let build = Build {
        args,
        sources: &sources,
        target: &target,
    };
    let (formatted, space, counts) = build.fitted(options, meter)?;
    target.finish()?;
    Ok(Built {
        formatted,
        space,
        sources: sources.iter().map(Source::to_json).collect(),
        counts,
    })
}

/// A build, in as many attempts as it takes.
struct Build<'a> {
    args: &'a BuildArgs,
    sources: &'a [Source],
    target: &'a Target,
}

impl Build<'_> {
    /// Makes the image in the size that is asked for, or that fits.
    fn fitted(
        &self,
        options: FormatOptions,
        meter: &mut Meter,
    ) -> Result<(Formatted, Space, Value)> {
        let asked = match self.args.size {
            ImageSize::Bytes(bytes) => Some(bytes),
            ImageSize::Auto => None,
        };
        if asked.is_some() || self.target.is_device {
            let formatted = self.format(self.target.work(), asked, &options)?;
            let (space, filled) = self.fill(&options, meter)?;
            filled.map_err(|e| too_small(e, &space))?;
            return Ok((formatted, space, meter.to_json()));
        }
        meter.doing("looking: ");
        let mut need = need::look(self.sources, self.sizes(&options)?, meter)?;
        meter.doing("");
        let mut attempt = 1;
        loop {
            meter.restart();
            let fitted = fit(&self.target.second(), need, self.args.free, &options)?;
            let formatted = self.format(self.target.work(), Some(fitted.bytes), &fitted.options)?;
            let (space, filled) = self.fill(&options, meter)?;
            match filled {
                Ok(()) => return self.trimmed(formatted, space, &options, meter),
                Err(e) if attempt < ATTEMPTS && ran_out(&e, &space) => {
                    tracing::debug!("{} bytes are too few: {e}", fitted.bytes);
                    need.blocks += need.blocks / 2 + 1024;
                    need.inodes += need.inodes / 2 + 64;
                    attempt += 1;
                    self.target.clear()?;
                }
                Err(e) => return Err(too_small(e, &space)),
            }
        }
    }

    /// The sizes that the volume will have, from a plan of any size.
    fn sizes(&self, options: &FormatOptions) -> Result<Sizes> {
        let path = self.target.second();
        let planned = format(&path, Some(1 << 30), options, true, false)?;
        Ok(Sizes {
            block: planned.block_size.into(),
            cluster: planned.cluster_size,
            inode: planned.inode_size.into(),
        })
    }

    fn format(
        &self,
        path: &Path,
        bytes: Option<u64>,
        options: &FormatOptions,
    ) -> Result<Formatted> {
        format(path, bytes, options, false, self.args.force)
    }

    /// Puts the layers into the volume. The space of the volume comes with any outcome.
    fn fill(&self, options: &FormatOptions, meter: &mut Meter) -> Result<(Space, Result)> {
        let volume = open(self.target.work(), options)?;
        let filled = self.layers(&volume, meter);
        if filled.is_err() {
            let space = volume.space();
            // The file is removed.
            drop(volume);
            return Ok((space, filled));
        }
        volume.close()?;
        Ok((space_of(self.target.work())?, Ok(())))
    }

    fn layers(&self, volume: &Volume, meter: &mut Meter) -> Result {
        let owner = self.args.owner;
        let before = meter.troubles.count();
        for layer in self.sources.iter().flat_map(|source| &source.layers) {
            match layer {
                Layer::Dir(path) => {
                    let to = &Inside::below(volume, Path::new("/"))?;
                    let overlay = self.args.overlay;
                    let layer = copy::Layer { to, overlay, owner };
                    layer.apply(&Ahead::below(path)?, meter)?;
                }
                Layer::Archive(path) => {
                    let file = File::open(path).map_err(|e| host("open", path, e))?;
                    unpack_layer(volume, file, owner, meter)?;
                }
            }
        }
        match meter.troubles.count() - before {
            0 => Ok(()),
            n => {
                let s = if n == 1 { "" } else { "s" };
                let message = format!("{n} error{s}, reported above: the image was not made");
                Err(Failure::new(Code::Io, message)
                    .hint("mend the source, or leave these files out of it, and build again"))
            }
        }
    }

    /// Copies the content to a smaller volume if much room is left over.
    fn trimmed(
        &self,
        formatted: Formatted,
        space: Space,
        options: &FormatOptions,
        meter: &mut Meter,
    ) -> Result<(Formatted, Space, Value)> {
        let counts = meter.to_json();
        let used = used(&formatted, &space);
        let need = Need {
            blocks: used.blocks + used.blocks / 256 + 16,
            inodes: used.inodes,
        };
        let second = self.target.second();
        let fitted = fit(&second, need, self.args.free, options)?;
        if fitted.bytes + fitted.bytes / 16 + SMALL >= formatted.bytes {
            return Ok((formatted, space, counts));
        }
        meter.doing("fitting: ");
        meter.restart();
        let smaller = self.format(&second, Some(fitted.bytes), &fitted.options)?;
        let from = Volume::open(self.target.work(), MountOptions::new().read_only(true))?;
        let to = open(&second, options)?;
        let copied = copy_all(&from, &to, meter);
        from.close()?;
        if let Err(e) = copied {
            let is_full = is_full(&to.space());
            drop(to);
            return match is_full {
                true => Ok((formatted, space, counts)),
                false => Err(e),
            };
        }
        to.close()?;
        self.target.take_second()?;
        Ok((smaller, space_of(self.target.work())?, counts))
    }
}

fn format(
    path: &Path,
    size: Option<u64>,
    options: &FormatOptions,
    dry_run: bool,
    force: bool,
) -> Result<Formatted> {
    let target = FormatTarget {
        size,
        force,
        dry_run,
        ..FormatTarget::default()
    };
    stetfs::low::format(path, &target, options).map_err(|e| Failure::of_format(path, &e))
}

/// Opens the new volume for its content.
fn open(path: &Path, options: &FormatOptions) -> Result<Volume> {
    let mut said = options::of_volume(path, WRITING)?;
    said.request.fs.epoch = options.epoch;
    let with = MountOptions::from(said.volume()?);
    // Nobody has the volume yet: the warning about one without a journal says nothing.
    tracing::subscriber::with_default(NoSubscriber::new(), || Ok(Volume::open(path, &with)?))
}

/// The space of a volume that is complete.
fn space_of(path: &Path) -> Result<Space> {
    let volume = Volume::open(path, MountOptions::new().read_only(true))?;
    let space = volume.space();
    volume.close()?;
    Ok(space)
}

fn copy_all(from: &Volume, to: &Volume, meter: &mut Meter) -> Result {
    let to = &Inside::below(to, Path::new("/"))?;
    let layer = copy::Layer {
        to,
        overlay: false,
        owner: None,
    };
    layer.apply(&Inside::below(from, Path::new("/"))?, meter)
}

/// The blocks and inodes that the content of a new volume takes.
fn used(formatted: &Formatted, space: &Space) -> Need {
    let free = space.free / u64::from(formatted.block_size);
    Need {
        blocks: formatted.free_blocks.saturating_sub(free),
        inodes: u64::from(formatted.free_inodes).saturating_sub(space.files_free),
    }
}

/// Whether a volume has no room left, of either kind.
fn is_full(space: &Space) -> bool {
    space.free <= space.total / 32 + SMALL || space.files_free == 0
}

/// Whether a build failed because the volume was too small.
fn ran_out(e: &Failure, space: &Space) -> bool {
    e.code == Code::Io && e.hint.is_empty() && is_full(space)
}

/// The failure of a build, with the way out where the volume is full.
fn too_small(e: Failure, space: &Space) -> Failure {
    match ran_out(&e, space) {
        true if space.files_free == 0 => {
            e.hint("it has too few inodes: give more with -N, or none")
        }
        true => e.hint("the image is too small: give a larger --size, or --size auto"),
        false => e,
    }
}

fn tell(args: &BuildArgs, built: &Built, json: bool) {
    let Built {
        formatted, space, ..
    } = built;
    let used = used(formatted, space);
    let (free, bytes) = (space.available, formatted.bytes);
    let percent = (space.total - space.free) * 100 / space.total.max(1);
    if json {
        let answer = json!({
            "image": args.image.display().to_string(),
            "bytes": bytes,
            "uuid": formatted.uuid,
            "label": formatted.label,
            "features": formatted.features,
            "block_size": formatted.block_size,
            "journal_bytes": formatted.journal_bytes,
            "used": used.blocks * u64::from(formatted.block_size),
            "available": free,
            "full_percent": percent,
            "inodes": formatted.inodes,
            "inodes_free": space.files_free,
            "sources": built.sources,
            "content": built.counts,
        });
        outln!("{answer}");
        return;
    }
    outln!(
        "{}: made an ext4 volume of {} ({bytes} bytes), {percent}% full, {} free, {} files, {} \
         inodes free",
        args.image.display(),
        human(bytes),
        human(free),
        built.counts["entries"],
        space.files_free
    );
    outln!("UUID {}", formatted.uuid);
    for note in &formatted.notes {
        outln!("{note}");
    }
}
