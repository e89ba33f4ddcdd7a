//! jbd2's codec: descriptor and data blocks, revoke blocks, a commit block.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use stetfs_cache::{Page, PageRef};
use stetfs_ondisk::OnDiskError;
use stetfs_ondisk::jbd2::commit::TransactionSum;
use stetfs_ondisk::jbd2::descriptor::{FLAG_ESCAPE, Tag, image_checksum, tags_per_block};
use stetfs_ondisk::jbd2::{Config, MAGIC, commit, descriptor, revoke};

use super::collect;
use super::ring::page;
use crate::engine::Canary;
use crate::error::Result;
use crate::ids::TxId;
use crate::policy::{Codec, Early, Encoded, ImageRef, LogTail, Medium, Scan};
use crate::tx::Snapshot;

/// jbd2's format under a given configuration.
#[derive(Clone, Copy, Debug)]
pub struct Jbd2Codec {
    /// Widths and checksums.
    pub config: Config,
    /// UUID for the first tag of each descriptor.
    pub uuid: [u8; 16],
    /// Image checksums decide whether the last transaction is whole (`async_commit`).
    pub async_commit: bool,
    /// Deliberate faults.
    pub canary: Canary,
}

impl Jbd2Codec {
    fn tags_per_block(&self) -> u64 {
        (tags_per_block(&self.config) as u64).max(1)
    }

    /// The image as it is stored: jbd2 blanks the first word of a block that begins with its magic.
    fn stored(image: &PageRef) -> (PageRef, bool) {
        if !image.starts_with(&MAGIC.to_be_bytes()) {
            return (Arc::clone(image), false);
        }
        let mut copy = Page::copy_of(image);
        copy.iter_mut().take(4).for_each(|b| *b = 0);
        (Arc::new(copy), true)
    }
}

impl Codec for Jbd2Codec {
    fn bound(&self, images: u64, revokes: u64) -> u64 {
        let per_revoke_block = (revoke::entries_per_block(&self.config) as u64).max(1);
        images + images.div_ceil(self.tags_per_block()) + revokes.div_ceil(per_revoke_block) + 1
    }

    fn encode(&self, tx: &Snapshot, _: &mut Early<'_>) -> Result<Encoded> {
        let tid = tx.id.seq as u32;
        let size = self.config.block_size;
        let mut body = Vec::with_capacity(
            self.bound(tx.images.len() as u64, tx.revokes.len() as u64) as usize,
        );
        let mut verbatim = Vec::with_capacity(tx.images.len());
        let mut sum = TransactionSum::default();
        let mut revokes = &tx.revokes[..];
        while !revokes.is_empty() {
            let mut taken = 0;
            body.push(page(size, |b| {
                taken = revoke::encode(&self.config, tid, revokes, b)
            }));
            revokes = revokes.get(taken.max(1)..).unwrap_or(&[]);
        }
        for images in tx.images.chunks(self.tags_per_block() as usize) {
            let mut tags = Vec::with_capacity(images.len());
            let mut stored = Vec::with_capacity(images.len());
            for image in images {
                if !self.config.wide && image.nr > u64::from(u32::MAX) {
                    return Err(OnDiskError::Unsupported {
                        feature: format!(
                            "block {} in a journal with 32-bit block numbers",
                            image.nr
                        ),
                    }
                    .into());
                }
                let (page, escaped) = Self::stored(&image.page);
                let checksum = image_checksum(&self.config, tid, &page);
                tags.push(Tag {
                    block: image.nr,
                    flags: if escaped { FLAG_ESCAPE } else { 0 },
                    checksum,
                });
                stored.push((page, escaped));
            }
            if self.canary.short_tags && tags.len() > 1 {
                tags.pop();
            }
            let head = page(size, |b| {
                descriptor::encode(&self.config, tid, &self.uuid, &tags, b);
            });
            sum.add(&self.config, &head);
            body.push(head);
            for (page, escaped) in stored {
                sum.add(&self.config, &page);
                verbatim.push((!escaped).then_some(body.len() as u32));
                body.push(page);
            }
        }
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let seal = page(size, |b| {
            commit::encode(
                &self.config,
                tid,
                (now.as_secs(), now.subsec_nanos()),
                sum,
                b,
            );
            if self.canary.unsummed_seal
                && let Some(checksum) = b.get_mut(commit::CHECKSUM)
            {
                checksum.fill(0);
            }
        });
        Ok(Encoded {
            body,
            seal: Some(seal),
            verbatim,
            ..Encoded::default()
        })
    }

    fn scan(
        &self,
        log: &dyn Medium,
        tail: LogTail,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Scan> {
        collect::scan(self, log, tail, progress)
    }

    fn images(&self, log: &dyn Medium, tx: TxId, refs: &[ImageRef]) -> Result<Vec<PageRef>> {
        let mut out = Vec::with_capacity(refs.len());
        let mut rest = refs;
        while let Some(first) = rest.first() {
            // Images of a transaction stand one after the other: read a run at once.
            let mut run = 1;
            while rest
                .get(run)
                .is_some_and(|r| r.at == log.advance(first.at, run as u64))
                && run < 1024
            {
                run += 1;
            }
            let pages = log.read(first.at, run as u64)?;
            for (image, page) in rest.iter().zip(pages) {
                out.push(self.restore(tx, image, page)?);
            }
            rest = rest.get(run..).unwrap_or(&[]);
        }
        Ok(out)
    }
}

impl Jbd2Codec {
    /// Whether a stored image matches its tag.
    pub(super) fn image_matches(&self, tid: u32, check: u32, stored: &[u8]) -> bool {
        self.canary.skip_checksums
            || !self.config.csum.in_blocks()
            || image_checksum(&self.config, tid, stored) == check
    }

    fn restore(&self, tx: TxId, image: &ImageRef, stored: PageRef) -> Result<PageRef> {
        if !self.image_matches(tx.seq as u32, image.check, &stored) {
            return Err(OnDiskError::Corrupt {
                what: "journal image",
                detail: format!(
                    "checksum of log block {} in transaction {} does not match",
                    image.at, tx.seq
                ),
            }
            .into());
        }
        if image.flags & FLAG_ESCAPE == 0 || self.canary.keep_escaped {
            return Ok(stored);
        }
        let mut copy = Page::copy_of(&stored);
        copy.iter_mut()
            .zip(MAGIC.to_be_bytes())
            .for_each(|(to, from)| *to = from);
        Ok(Arc::new(copy))
    }
}
