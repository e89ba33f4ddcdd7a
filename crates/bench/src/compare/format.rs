//! The file systems that can be made on images.

use std::process::Command;

use anyhow::{Context, Result};
use stetfs_testkit::{Image, LoopDev, Mkfs, cmd};

/// The file system on the image of a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// ext4 as mke2fs makes it.
    #[default]
    Ext4,
    /// ext4 with the `fast_commit` feature.
    FastCommit,
    /// XFS.
    Xfs,
}

impl Format {
    /// Makes the file system, with its journal on the device `journal` if there is one.
    pub(super) fn make(
        self,
        image: &Image,
        journal_mib: u32,
        journal: Option<&LoopDev>,
    ) -> Result<()> {
        if self == Format::Xfs {
            let log = format!("size={journal_mib}m");
            let mut mkfs = Command::new("mkfs.xfs");
            // Without discards, which would punch holes into the written image.
            mkfs.args(["-q", "-f", "-K", "-m", "reflink=1", "-l", &log]);
            mkfs.arg(image.path());
            return cmd::run(&mut mkfs)
                .map(drop)
                .context("making an XFS (Debian: apt install xfsprogs)");
        }
        // Not lazily: the kernel would zero inode tables during the first workload.
        let mut mkfs = Mkfs::new()
            .extended("lazy_itable_init=0")
            .extended("lazy_journal_init=0")
            .extended("nodiscard");
        mkfs = match journal {
            None => mkfs.journal_mib(journal_mib),
            Some(device) => mkfs.journal_device(device.path()),
        };
        if self == Format::FastCommit {
            mkfs = mkfs.feature("fast_commit");
        }
        image.mkfs(&mkfs)
    }

    /// Checks the unmounted image.
    pub(super) fn check(self, image: &Image) -> Result<()> {
        match self {
            Format::Xfs => {
                cmd::run(Command::new("xfs_repair").arg("-n").arg(image.path())).map(drop)
            }
            Format::Ext4 | Format::FastCommit => image.e2fsck_fn(),
        }
    }

    pub(super) fn kernel_type(self) -> &'static str {
        match self {
            Format::Xfs => "xfs",
            Format::Ext4 | Format::FastCommit => "ext4",
        }
    }
}
