//! The same work with increasing numbers of threads, to see whether they block each other
//! (Z-Journal, §5).

use anyhow::Result;
use std::path::Path;

use super::drive::{Hand, drive};
use super::measured::{Below, Measured, Meter, Outcome};
use super::place::{How, Place};
use super::profile;
use crate::compare::Better;
use crate::compare::{Sizes, Target};

/// Size of a write, bytes.
const PAGE: usize = 4096;
/// Number of pages of an overwritten file.
const PAGES: u64 = 1024;
/// Files that all threads together make, in multiples of the workload on names. Five numbers of
/// threads then fit into the 65,536 inodes of an image of 1 GiB.
const NAMES: u32 = 2;

/// The work of each thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Creates empty files in a directory of its own.
    Create,
    /// Creates files of one page, in a directory of its own.
    Files,
    /// Appends a page to a file of its own, and syncs it.
    Append,
    /// Overwrites a page of a file of its own.
    #[cfg_attr(
        not(feature = "virtual"),
        expect(dead_code, reason = "for `bench scale`")
    )]
    Write,
    /// Overwrites a page of a file of its own, and syncs it.
    Overwrite,
    /// Renames a file in a directory of its own.
    #[cfg_attr(
        not(feature = "virtual"),
        expect(dead_code, reason = "for `bench scale`")
    )]
    Rename,
    /// Filebench's varmail, in one directory.
    Varmail,
}

impl Work {
    /// The standard kinds of work.
    pub(crate) const ALL: [Self; 4] = [Self::Create, Self::Append, Self::Overwrite, Self::Varmail];

    /// Its title in a report.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Files => "files of 4 KiB",
            Self::Append => "append 4 KiB + fsync",
            Self::Write => "overwrite 4 KiB",
            Self::Rename => "rename",
            Self::Overwrite => "overwrite 4 KiB + fsync",
            Self::Varmail => "varmail",
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::Create | Self::Files | Self::Write | Self::Rename => "/s",
            Self::Append | Self::Overwrite => "syncs/s",
            Self::Varmail => "ops/s",
        }
    }

    /// The result of `operations` operations in `seconds` seconds.
    pub(crate) fn measured(
        self,
        threads: u32,
        (done, seconds): (f64, f64),
        below: Below,
    ) -> Measured {
        let s = if threads == 1 { "" } else { "s" };
        Measured {
            title: format!("{}, {threads} thread{s}", self.title()),
            unit: self.unit().into(),
            better: Better::Higher,
            value: done / seconds,
            below,
        }
    }

    /// The threads of this work, after everything that they need is created.
    pub(crate) fn hands<'a>(
        self,
        place: &'a Place<'a>,
        threads: u32,
        sizes: &Sizes,
    ) -> Result<Vec<Hand<'a>>> {
        if self == Self::Varmail {
            let mail = profile::VARMAIL.of(sizes.mail_files);
            return profile::hands(&mail.by(threads.into()), place);
        }
        let made = sizes.made_files.filter(|_| self == Self::Files);
        let each = made.unwrap_or(sizes.names * NAMES).div_ceil(threads);
        (0..threads)
            .map(|t| -> Result<Hand<'a>> {
                let dir = format!("{t}");
                place.make_dir(&dir)?;
                match self {
                    Self::Create => Ok(creating(place, dir, each, false)),
                    Self::Files => Ok(creating(place, dir, each, true)),
                    Self::Append => appending(place, &dir),
                    Self::Rename => renaming(place, &dir),
                    Self::Write => overwriting(place, &dir, false),
                    Self::Overwrite | Self::Varmail => overwriting(place, &dir, true),
                }
            })
            .collect()
    }
}

fn creating<'a>(place: &'a Place<'a>, dir: String, files: u32, filled: bool) -> Hand<'a> {
    let mut n = 0;
    Box::new(move || {
        if n == files {
            return Ok(None);
        }
        let file = place.must_open(&format!("{dir}/{n}"), How::Create)?;
        if filled {
            file.write_at(0, &[0x5A; PAGE])?;
        }
        n += 1;
        Ok(Some(1))
    })
}

fn appending<'a>(place: &'a Place<'a>, dir: &str) -> Result<Hand<'a>> {
    let file = place.must_open(&format!("{dir}/log"), How::Create)?;
    // The first sync of the file itself is not measured.
    file.sync()?;
    let mut at = 0;
    Ok(Box::new(move || {
        file.write_at(at, &[0x5A; PAGE])?;
        file.sync()?;
        at += PAGE as u64;
        Ok(Some(1))
    }))
}

fn renaming<'a>(place: &'a Place<'a>, dir: &str) -> Result<Hand<'a>> {
    let names = [format!("{dir}/one"), format!("{dir}/other")];
    place.must_open(&names[0], How::Create)?;
    let mut turn = false;
    Ok(Box::new(move || {
        let [from, to] = [&names[usize::from(turn)], &names[usize::from(!turn)]];
        place.rename(from, to)?;
        turn = !turn;
        Ok(Some(1))
    }))
}

fn overwriting<'a>(place: &'a Place<'a>, dir: &str, sync: bool) -> Result<Hand<'a>> {
    let path = format!("{dir}/table");
    let made = place.must_open(&path, How::Create)?;
    for page in 0..PAGES {
        made.write_at(page * PAGE as u64, &[0xA5; PAGE])?;
    }
    made.sync()?;
    let file = place.must_open(&path, How::Write)?;
    let (mut n, mut page) = (0u64, [0; PAGE]);
    Ok(Box::new(move || {
        page[..8].copy_from_slice(&n.to_le_bytes());
        // A fixed permutation of all pages: the multiplier is coprime to their number.
        let at = n.wrapping_mul(2_654_435_761) % PAGES * PAGE as u64;
        file.write_at(at, &page)?;
        if sync {
            file.sync()?;
        }
        n += 1;
        Ok(Some(1))
    }))
}

/// The work on a mount, with each number of threads.
pub(super) fn mounted(work: Work, target: &Target, dir: &Path, sizes: &Sizes) -> Result<Outcome> {
    let each = |&threads: &u32| {
        let root = dir.join(format!("by-{threads}"));
        std::fs::create_dir(&root)?;
        let place = Place::Mounted(root);
        let hands = work.hands(&place, threads, sizes)?;
        let meter = Meter::start(target)?;
        let done = drive(&place, hands, sizes.profile_time())?;
        Ok(work.measured(threads, done, meter.below(done.0)?))
    };
    sizes.threads.iter().map(each).collect()
}
