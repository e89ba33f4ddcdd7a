//! Transactions in flight: from their snapshots to the checkpoint list.
//!
//! A transaction is laid out in its ring ([`InFlight::lay_out`]), its blocks are written, it is
//! sealed, and it is listed as durable ([`InFlight::end`]).

use std::sync::Arc;

use stetfs_block::WriteList;

use super::base::Base;
use super::log_space::{Durable, LogSpace, Pending};
use crate::error::Result;
use crate::ids::{Ino, Stamp, TxId};
use crate::policy::{Encoded, HomeImage, Medium};
use crate::stats::{bump, micros};
use crate::tx::{Snapshot, Tx, TxRest};

/// A transaction whose snapshot is taken.
pub(super) struct InFlight {
    tx: Arc<Tx>,
    /// The stamp of its first handle.
    opened: Stamp,
    pub(super) snapshot: Snapshot,
    rest: TxRest,
}

/// A transaction with its place in the log.
pub(super) struct LaidOut<'e> {
    flight: InFlight,
    medium: &'e dyn Medium,
    /// Its first log block.
    at: u64,
    encoded: Encoded,
}

/// Joins write lists into one.
pub(super) fn joined<'a>(
    lists: impl Iterator<Item = Result<WriteList<'a>>>,
) -> Result<WriteList<'a>> {
    let mut lists = lists;
    let mut all = lists.next().transpose()?.unwrap_or_default();
    for list in lists {
        all.extend(&list?);
    }
    Ok(all)
}

impl InFlight {
    pub(super) fn new(tx: Arc<Tx>, opened: Stamp, snapshot: Snapshot, rest: TxRest) -> InFlight {
        InFlight {
            tx,
            opened,
            snapshot,
            rest,
        }
    }

    pub(super) fn id(&self) -> TxId {
        self.tx.id
    }

    /// The inodes whose dirty data is written home before the transaction is sealed.
    pub(super) fn ordered(&self) -> &[Ino] {
        &self.rest.ordered
    }

    /// Lays the transaction out at the head of its ring, where `reserved` log blocks are set aside.
    ///
    /// # Errors
    /// The errors of the codec and the device; `Aborted` if it takes more than was reserved, an
    /// impossible state.
    pub(super) fn lay_out<'e>(
        self,
        base: &Base,
        space: &'e LogSpace,
        reserved: u64,
    ) -> Result<LaidOut<'e>> {
        let (id, tx) = (self.tx.id, &self.snapshot);
        let (at, encoded) = space.lay_out(id, reserved, |medium, at| {
            base.codec.encode(tx, &mut |from, blocks| {
                medium.write_early(medium.advance(at, from), blocks)
            })
        })?;
        Ok(LaidOut {
            flight: self,
            medium: &*space.ring(id.lane)?.medium,
            at,
            encoded,
        })
    }
}

impl LaidOut<'_> {
    /// The transaction, and the log block where it begins.
    pub(super) fn start(&self) -> (TxId, u64) {
        (self.flight.tx.id, self.at)
    }

    pub(super) fn medium(&self) -> &dyn Medium {
        self.medium
    }

    /// The transaction's [`Medium::payload`].
    pub(super) fn payload(&self) -> Result<WriteList<'_>> {
        self.medium.payload(self.at, &self.encoded)
    }

    /// Notes that the payload was written.
    pub(super) fn payload_went_out(&mut self) {
        self.encoded.payload_went_out();
    }

    /// The transaction's [`Medium::blocks`].
    pub(super) fn blocks(&self, barrier: bool) -> Result<WriteList<'_>> {
        self.medium.blocks(self.at, &self.encoded, barrier)
    }

    /// Notes that the device has the transaction's blocks.
    ///
    /// # Errors
    /// `Aborted` for an impossible state (tx.T6).
    pub(super) fn wrote(&self) -> Result<()> {
        self.flight.tx.wrote()
    }

    /// Seals the transaction ([`Medium::seal`]).
    pub(super) fn seal(&self, barrier: bool) -> Result<()> {
        self.medium.seal(self.at, &self.encoded, barrier)
    }

    /// The images that are verbatim in the log.
    ///
    /// # Errors
    /// `Corrupt` if the log has no such block.
    pub(super) fn verbatim(&self) -> Result<Vec<HomeImage>> {
        let places = self.medium.places(self.at, &self.encoded)?;
        let images = self.flight.snapshot.images.iter().zip(places);
        let images = images.filter(|(_, place)| place.is_some());
        let images = images.map(|(image, place)| HomeImage {
            nr: image.nr,
            page: Arc::clone(&image.page),
            place,
        });
        Ok(images.collect())
    }

    /// Counts the transaction, which is durable, and returns its entry for the checkpoint list.
    ///
    /// # Errors
    /// `Corrupt` if the log has no such block; `Aborted` for an impossible state (tx.T6).
    pub(super) fn end(self, base: &Base) -> Result<Durable> {
        self.count(base);
        let LaidOut {
            flight,
            medium,
            at,
            encoded,
        } = self;
        let InFlight {
            tx,
            opened,
            snapshot,
            rest,
        } = flight;
        tx.sealed()?;
        let homes = snapshot.images.iter().map(|i| i.nr).collect();
        let places = medium.places(at, &encoded)?;
        let images = snapshot.images.into_iter().zip(places);
        let images = images.map(|(image, place)| {
            (
                image.nr,
                Pending {
                    id: tx.id,
                    stamp: snapshot.stamp,
                    page: image.page,
                    block: image.block,
                    place,
                    touched: image.touched,
                },
            )
        });
        Ok(Durable {
            stamp: snapshot.stamp,
            opened,
            floor: snapshot.floor,
            edges: snapshot.edges,
            images: images.collect(),
            freed: rest.freed,
            after: rest.after,
            at,
            blocks: encoded.blocks(),
            homes,
            tx,
        })
    }

    fn count(&self, base: &Base) {
        let (counters, encoded) = (&base.counters, &self.encoded);
        let snapshot = &self.flight.snapshot;
        bump(&counters.blocks_logged, encoded.blocks());
        bump(&counters.edges, snapshot.edges.iter().count() as u64);
        let block_size = base.block_size();
        let unit = self.medium.unit().unwrap_or(block_size);
        bump(&counters.bytes_logged, encoded.blocks() * unit);
        let images = snapshot.images.len() as u64;
        bump(&counters.bytes_packed, images * block_size);
        let packing = encoded.packing;
        bump(&counters.chunks_raw, packing.raw);
        bump(&counters.chunks_lz4, packing.lz4);
        bump(&counters.chunks_zstd, packing.zstd);
        bump(&counters.packing_micros, micros(packing.time));
    }
}
