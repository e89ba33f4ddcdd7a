//! The file systems to be aged, each on an image of its own.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use stetfs::low::{Composition, FsOptions, Volume, VolumeOptions};
use stetfs_testkit::{Attach, Image, Mkfs, Mounter};

use super::surface::{Directory, Library, Surface};

/// The implementation that writes the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The kernel's ext4 over a loop device.
    Kernel,
    /// StetFS in this process.
    Library,
    /// A mount of StetFS by this program.
    Mount(PathBuf),
}

/// A file system to age.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerSpec {
    /// Its name in the report.
    pub name: String,
    /// The implementation.
    pub kind: Kind,
    /// StetFS's journal.
    pub journal: Composition,
}

pub(super) struct Peer {
    image: Image,
    kind: Kind,
    journal: Composition,
}

impl Peer {
    pub(super) fn make(spec: &PeerSpec, bytes: u64) -> Result<Self> {
        if spec.kind != Kind::Library && !rustix::process::geteuid().is_root() {
            bail!("mounting {} needs root", spec.name);
        }
        // Nothing is reserved for root, so that "95 % full" is of all space. Not lazily: the kernel
        // would write inode tables meanwhile.
        let mut mkfs = Mkfs::new()
            .journal_mib(32)
            .extended("lazy_itable_init=0")
            .extended("lazy_journal_init=0");
        mkfs.args.extend(["-m".into(), "0".into()]);
        Ok(Self {
            image: Image::make(bytes, &mkfs)?,
            kind: spec.kind.clone(),
            journal: spec.journal.clone(),
        })
    }

    pub(super) fn image(&self) -> &Path {
        self.image.path()
    }

    /// Mounts or opens the volume.
    pub(super) fn start(&self) -> Result<Box<dyn Surface>> {
        let mounter = match &self.kind {
            Kind::Library => {
                let fs = FsOptions {
                    journal: self.journal.clone(),
                    ..FsOptions::default()
                };
                let options = VolumeOptions {
                    fs,
                    ..VolumeOptions::default()
                };
                let volume = Volume::open(self.image.path(), &options)?;
                return Ok(Box::new(Library::new(volume)));
            }
            Kind::Kernel => Mounter::ext4(""),
            Kind::Mount(program) => Mounter::Stetfs {
                binary: program.clone(),
                options: format!("journal={}", self.journal),
                attach: Attach::File,
                deadline: None,
            },
        };
        Ok(Box::new(Directory::new(mounter.mount(self.image.path())?)))
    }

    /// Checks the volume: a damaged volume has no valid result.
    pub(super) fn check(&self) -> Result<()> {
        self.image.e2fsck_fn().context("after the phase")
    }
}
