//! The parts of an open volume, before they are assembled.

use std::sync::Arc;

use stetfs_block::BlockDevice;
use stetfs_cache::CacheConfig;
use stetfs_journal::{Cache, Journal, RecoveryReport};
use stetfs_ondisk::ext4::features::Incompat;
use stetfs_ondisk::ext4::inode::FULL_EXTRA_ISIZE;
use stetfs_ondisk::ext4::superblock::{Geometry as Layout, Superblock};
use stetfs_sync::timed::atomic::AtomicU64;

use super::early::{Early, check_size};
use super::log::VolumeLog;
use super::{orphans, overhead, repeat};
use crate::data::DataStore;
use crate::error::Result;
use crate::fs::Fs;
use crate::geometry::Geometry;
use crate::inode::{InodeStore, Orphans};
use crate::names::Namespace;
use crate::space::{Allocator, Groups, Zones};
use crate::types::FsOptions;
use crate::volume::shared::Volume;
use crate::volume::{SuperState, mmp};

/// The parts of a recovered volume that are read before its journal runs.
pub(super) struct Parts {
    pub(super) cache: Arc<Cache>,
    sb: Superblock,
    geo: Geometry,
    groups: Groups,
    orphans: Orphans,
    found: orphans::Found,
    journal_blocks: u64,
}

impl Parts {
    /// Reads the parts.
    ///
    /// # Errors
    /// Damage.
    pub(super) fn read(
        device: Arc<dyn BlockDevice>,
        sb: &Superblock,
        log: Option<&VolumeLog>,
        opts: &FsOptions,
    ) -> Result<Parts> {
        let layout = sb.geometry()?;
        check_size(&layout, &*device)?;
        let early = Early::new(&*device, &layout, sb);
        let descs = early.descriptors()?;
        let mut zones = Zones::new(&layout, descs.iter())?;
        zones.add(log.iter().flat_map(|l| l.runs.iter().copied()));
        let (orphans, found) = orphans::find(&early, sb)?;
        let geo = geometry(sb, layout)?;
        let config = CacheConfig {
            block_size: geo.block_size as usize,
            capacity: opts.cache_bytes,
            policy: opts.cache_policy,
        };
        Ok(Parts {
            cache: Arc::new(Cache::with_erase_block(device, config, opts.erase_block)),
            sb: sb.clone(),
            geo,
            groups: Groups::new(descs, zones),
            orphans,
            found,
            journal_blocks: log.map_or(0, VolumeLog::blocks),
        })
    }

    /// The open volume, and its orphans.
    pub(super) fn assemble(
        self,
        journal: Arc<Journal>,
        opts: FsOptions,
        claim: Option<mmp::Claim>,
        recovered: Option<RecoveryReport>,
    ) -> Result<(Arc<Fs>, orphans::Found)> {
        let state = SuperState::new(
            &self.cache,
            &self.sb,
            overhead::overhead(
                &self.sb,
                &self.geo.layout,
                &self.groups.zones,
                self.journal_blocks,
            ),
            &opts,
            claim,
        )?;
        let generation = repeat::seed(&self.sb, opts.epoch);
        let vol = Arc::new(Volume {
            geo: self.geo,
            cache_bytes: AtomicU64::new(opts.cache_bytes),
            opts,
            cache: self.cache,
            journal,
            sb: state,
        });
        let space = Allocator::new(Arc::clone(&vol), self.groups, generation);
        let inodes = InodeStore::new(Arc::clone(&vol), Arc::clone(&space), self.orphans);
        let inodes = Arc::new(inodes);
        let data = DataStore::new(Arc::clone(&inodes));
        let fs = Arc::new_cyclic(|me| Fs {
            names: Namespace::new(Arc::clone(&data)),
            data,
            inodes,
            space,
            vol,
            recovered,
            me: me.clone(),
        });
        Ok((fs, self.found))
    }
}

fn geometry(sb: &Superblock, layout: Layout) -> Result<Geometry> {
    Ok(Geometry {
        block_size: layout.block_size,
        block_bits: layout.block_size.trailing_zeros(),
        blocks_count: layout.blocks_count,
        first_data_block: u64::from(layout.first_data_block),
        blocks_per_group: layout.blocks_per_group,
        inodes_per_group: layout.inodes_per_group,
        inodes_count: layout.inodes_count,
        first_ino: layout.first_inode,
        inode_size: layout.inode_size,
        desc_size: layout.desc_size,
        groups: layout.group_count,
        log_groups_per_flex: if sb.incompat().contains(Incompat::FLEX_BG) {
            sb.log_groups_per_flex
        } else {
            0
        },
        revision_0: sb.rev_level.get() == 0,
        compat: sb.compat(),
        incompat: sb.incompat(),
        ro_compat: sb.ro_compat(),
        csum_seed: sb.csum_seed(),
        hash_seed: sb.hash_seed(),
        hash: sb.default_hash()?,
        uuid: sb.uuid,
        checksums: sb.checksum_mode(),
        want_extra_isize: match sb.want_extra_isize.get() {
            0 => FULL_EXTRA_ISIZE,
            want => want.max(sb.min_extra_isize.get()),
        },
        layout,
    })
}
