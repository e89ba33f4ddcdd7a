//! The codec policy for jbd2's format.

use std::time::{SystemTime, UNIX_EPOCH};

use stetfs_cache::PageRef;
use stetfs_ondisk::jbd2::commit::TransactionSum;
use stetfs_ondisk::jbd2::descriptor::{FLAG_ESCAPE, Tag, image_checksum};
use stetfs_ondisk::jbd2::{commit, descriptor, revoke};
use stetfs_ondisk::num::{count32, low32, to_usize};

use super::codec::Jbd2Codec;
use super::collect;
use super::ring::page;
use crate::error::Result;
use crate::ids::TxId;
use crate::policy::{Codec, Early, Encoded, ImageRef, LogTail, Medium, Scan};
use crate::tx::Snapshot;

impl Codec for Jbd2Codec {
    fn bound(&self, images: u64, revokes: u64) -> u64 {
        let per_revoke_block = (revoke::entries_per_block(&self.config) as u64).max(1);
        images + images.div_ceil(self.tags_per_block()) + revokes.div_ceil(per_revoke_block) + 1
    }

    fn encode(&self, tx: &Snapshot, _: &mut Early<'_>) -> Result<Encoded> {
        let named = tx
            .images
            .iter()
            .map(|i| i.nr)
            .chain(tx.revokes.iter().copied());
        self.check_width(named)?;
        let tid = low32(tx.id.seq);
        let size = self.config.block_size;
        let mut body = Vec::with_capacity(to_usize(
            self.bound(tx.images.len() as u64, tx.revokes.len() as u64),
        ));
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
        for images in tx.images.chunks(to_usize(self.tags_per_block())) {
            let mut tags = Vec::with_capacity(images.len());
            let mut stored = Vec::with_capacity(images.len());
            for image in images {
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
                verbatim.push((!escaped).then_some(count32(body.len())));
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
            // Images of a transaction are next to each other in the log, so a run is read at once.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canary::Canary;
    use crate::ids::{CommitPoint, Lane};
    use stetfs_ondisk::jbd2::superblock::{Config, Csum};

    fn revoked(wide: bool, revokes: Vec<u64>) -> Result<Encoded> {
        let codec = Jbd2Codec {
            config: Config {
                block_size: 1024,
                wide,
                csum: Csum::None,
                seed: 0,
            },
            uuid: [0; 16],
            async_commit: false,
            canary: Canary::default(),
        };
        let tx = Snapshot {
            id: TxId {
                lane: Lane(0),
                seq: 1,
            },
            stamp: 1,
            floor: 0,
            images: Vec::new(),
            revokes,
            edges: CommitPoint::none(),
        };
        codec.encode(&tx, &mut |_, _| Ok(()))
    }

    /// A block number cut to 32 bits would void the images of another block.
    #[test]
    fn a_revoked_block_is_never_cut_to_another_one() {
        assert!(revoked(false, vec![7, u32::MAX.into()]).is_ok());
        assert!(revoked(true, vec![7, 7 << 32]).is_ok());
        let e = revoked(false, vec![7, 7 << 32]).err().unwrap();
        assert!(e.to_string().contains("block 30064771072"), "{e}");
    }
}
