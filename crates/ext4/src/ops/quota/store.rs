//! Quota files on the volume: read when it is opened, changed through the journal.

use stetfs_journal::{BlockNr, Credits, Handle};
use stetfs_ondisk::ext4::features::RoCompat;
use stetfs_ondisk::ext4::quota::{BLOCK, Entry, Info, QuotaKind};
use stetfs_ondisk::ext4::superblock::{GRP_QUOTA_INO, Superblock, USR_QUOTA_INO};
use stetfs_sync::{Mutex, Rank};

use crate::data::Mapping;
use crate::error::{FsError, Result};
use crate::fs::Fs;
use crate::inode::{Inode, InodeBody};
use crate::quota::tree::{self, Blocks, Bytes};
use crate::quota::{Account, Accounts, CREDITS, KINDS, QuotaFile, Quotas};
use crate::space::BlockRun;
use crate::space::credits::{ALLOC_BLOCKS, WRITE_INODE};
use crate::types::Ino;
use crate::volume::Volume;
use stetfs_ondisk::num::{bounded32, count32, to_usize};

/// Existing blocks that one new entry changes: header, four levels, a leaf, and the next leaf with
/// room.
const ENTRY_CREDITS: Credits = 7;

fn inum(sb: &Superblock, kind: QuotaKind) -> Ino {
    match kind {
        QuotaKind::User => sb.usr_quota_inum.get(),
        QuotaKind::Group => sb.grp_quota_inum.get(),
        QuotaKind::Project => sb.prj_quota_inum.get(),
    }
}

/// The steps that an account of an id still needs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    Nothing,
    Entry,
    /// It has an entry in this leaf, but no reference leads to it.
    Link(u32),
}

/// The blocks of a quota file. They can be changed if there is a handle.
struct FileBlocks<'a> {
    fs: &'a Fs,
    inode: &'a Inode,
    body: &'a InodeBody,
    h: Option<&'a Handle<'a>>,
}

impl FileBlocks<'_> {
    /// The block of the volume with block `nr` of the file, and the byte offset in it.
    fn locate(&self, nr: u32) -> Result<(BlockNr, usize)> {
        let fs = self.fs;
        let at = u64::from(nr) * BLOCK as u64;
        let bad = |detail: &str| {
            let detail = format!("inode {}, block {nr}: {detail}", self.inode.ino);
            Err(FsError::corrupt("quota file", 0, detail))
        };
        if at + BLOCK as u64 > self.body.size() {
            return bad("behind the end");
        }
        let Ok(lblk) = u32::try_from(at >> fs.vol.geo.block_bits) else {
            return bad("behind the end of any file");
        };
        match fs.data.map(self.inode, self.body, lblk, 1)? {
            Mapping::Mapped {
                start,
                unwritten: false,
                ..
            } => {
                fs.space.check_run(BlockRun { start, len: 1 })?;
                Ok((start, to_usize(at % u64::from(fs.vol.geo.block_size))))
            }
            _ => bad("a hole"),
        }
    }

    fn info(&self, kind: QuotaKind) -> Result<Info> {
        let info = Info::decode(kind, &self.read(0)?)?;
        if u64::from(info.blocks) * BLOCK as u64 > self.body.size() {
            let detail = format!(
                "inode {}: {} blocks in {} bytes",
                self.inode.ino,
                info.blocks,
                self.body.size()
            );
            return Err(FsError::corrupt("quota file", 0, detail));
        }
        Ok(info)
    }

    fn scan(&self, kind: QuotaKind) -> Result<Accounts> {
        let mut info = self.info(kind)?;
        let found = tree::scan(self, &mut info)?;
        let mut accounts = Accounts {
            info: Some(info),
            loose: found.loose,
            ..Accounts::default()
        };
        for (id, (place, entry)) in found.entries {
            let (nr, offset) = self.locate(place.block)?;
            let account = Account::new(entry, place.block, nr, offset + place.offset);
            accounts.by_id.insert(id, account);
        }
        Ok(accounts)
    }

    /// Adds what is missing for the account of an id. Returns the new account, unless the id
    /// already had an entry. The caller has locked the accounts.
    fn open(&mut self, mut info: Info, id: u32, need: Need) -> Result<(Info, Option<Account>)> {
        let entry = Entry {
            id,
            ..Entry::default()
        };
        let place = match need {
            Need::Link(leaf) => {
                tree::link(self, &mut info, id, leaf)?;
                None
            }
            _ => Some(tree::insert(self, &mut info, &entry)?),
        };
        let mut head = self.read(0)?;
        info.encode(&mut head)?;
        self.write(0, &head)?;
        let Some(place) = place else {
            return Ok((info, None));
        };
        let (nr, offset) = self.locate(place.block)?;
        let account = Account::new(entry, place.block, nr, offset + place.offset);
        Ok((info, Some(account)))
    }
}

impl Blocks for FileBlocks<'_> {
    fn read(&self, nr: u32) -> Result<Bytes> {
        let (block, offset) = self.locate(nr)?;
        let block = self.fs.vol.cache.read(block)?;
        let page = block.peek();
        let bytes = page.as_deref().and_then(|p| p.get(offset..));
        bytes
            .and_then(|b| b.first_chunk::<BLOCK>())
            .copied()
            .ok_or_else(|| FsError::corrupt("quota file", block.nr(), "the block has no content"))
    }

    fn write(&mut self, nr: u32, bytes: &Bytes) -> Result<()> {
        let (block, offset) = self.locate(nr)?;
        let h = self.h.ok_or(FsError::Errno(libc::EROFS))?;
        stetfs_sync::point(self.fs, "write-quota-block");
        let block = self.fs.vol.cache.read(block)?;
        let mut page = h.modify(&block)?;
        if let Some(to) = page.get_mut(offset..offset + BLOCK) {
            to.copy_from_slice(bytes);
        }
        Ok(())
    }
}

impl Account {
    fn new(entry: Entry, leaf: u32, nr: BlockNr, offset: usize) -> Account {
        Account {
            entry,
            leaf,
            nr,
            offset,
            promised_space: 0,
            promised_inodes: 0,
        }
    }

    /// Writes the entry into its block.
    pub(crate) fn store(&self, vol: &Volume, h: &Handle<'_>) -> Result<()> {
        let bytes = self.entry.encode();
        let block = vol.cache.read(self.nr)?;
        let mut page = h.modify(&block)?;
        match page.get_mut(self.offset..self.offset + bytes.len()) {
            Some(to) => to.copy_from_slice(&bytes),
            None => {
                let detail = "an entry past the end of its block";
                return Err(FsError::corrupt("quota file", self.nr, detail));
            }
        }
        Ok(())
    }
}

impl Fs {
    /// The quota files of the volume.
    pub(crate) fn quota_files(&self, sb: &Superblock) -> Result<Vec<QuotaFile>> {
        let mut files: Vec<QuotaFile> = Vec::new();
        if !sb.ro_compat().contains(RoCompat::QUOTA) {
            return Ok(files);
        }
        for kind in QuotaKind::ALL {
            let ino = inum(sb, kind);
            let right = match kind {
                QuotaKind::User => ino == USR_QUOTA_INO,
                QuotaKind::Group => ino == GRP_QUOTA_INO,
                QuotaKind::Project => ino >= self.vol.geo.first_ino,
            };
            if ino == 0 {
                continue;
            }
            let bad = |detail: &str| {
                let detail = format!("inode {ino}, of the {} quota file: {detail}", kind.name());
                FsError::corrupt("superblock", 0, detail)
            };
            if !right || files.iter().any(|f| f.inode.ino == ino) {
                return Err(bad("not a number that it may have"));
            }
            let inode = match self.inodes.iget_special(ino) {
                Err(FsError::Errno(_)) => return Err(bad("it is free")),
                other => other?,
            };
            let regular = {
                let body = inode.body.read();
                body.is_regular() && !body.is_inline() && body.links() > 0 && !body.is_value()
            };
            if !regular {
                return Err(bad("not a regular file"));
            }
            files.push(QuotaFile { kind, inode });
        }
        Ok(files)
    }

    /// Reads the quota files of a volume that is to be written, before anything is written.
    ///
    /// # Errors
    /// Damage; `Unsupported`.
    pub(crate) fn load_quotas(&self, sb: &Superblock) -> Result<()> {
        let files = self.quota_files(sb)?;
        if files.is_empty() {
            return Ok(());
        }
        self.vol.journal.set_margin(CREDITS * count32(files.len()));
        let quotas = self.read_quotas(files)?;
        self.inodes.count_in(quotas);
        Ok(())
    }

    /// Reads all entries of all files.
    pub(crate) fn read_quotas(&self, files: Vec<QuotaFile>) -> Result<Quotas> {
        let mut accounts: [Accounts; KINDS] = Default::default();
        for file in &files {
            let body = file.inode.body.read();
            let blocks = FileBlocks {
                fs: self,
                inode: &file.inode,
                body: &body,
                h: None,
            };
            accounts[file.index()] = blocks.scan(file.kind)?;
        }
        Ok(Quotas {
            files,
            accounts: Mutex::new(Rank::Quota, accounts),
        })
    }

    /// Opens the accounts that do not exist yet. No handle may be open; inode locks may be held.
    ///
    /// # Errors
    /// ENOSPC; damage of the quota file; errors of the device.
    pub(crate) fn open_accounts(&self, quotas: &Quotas, ids: &[Option<u32>; KINDS]) -> Result<()> {
        for file in &quotas.files {
            if let Some(id) = ids[file.index()]
                && quotas.needs(file, id) != Need::Nothing
            {
                self.open_account(quotas, file, id)
                    .inspect_err(|e| self.vol.report(e))?;
            }
        }
        Ok(())
    }

    fn open_account(&self, quotas: &Quotas, file: &QuotaFile, id: u32) -> Result<()> {
        let inode = &*file.inode;
        // The last lock in the order of inodes: its holder takes no other one.
        let mut body = inode.body.write_nested();
        let need = quotas.needs(file, id);
        if need == Need::Nothing {
            return Ok(());
        }
        let info = {
            let accounts = quotas.accounts.lock();
            let accounts = &accounts[file.index()];
            if accounts.by_id.len() >= tree::IDS_MAX {
                return Err(FsError::Errno(libc::ENOSPC));
            }
            accounts.info.ok_or(FsError::Errno(libc::EIO))?
        };
        let missing = {
            let blocks = FileBlocks {
                fs: self,
                inode,
                body: &body,
                h: None,
            };
            tree::missing(&blocks, &info, id)?
        };
        let bytes = u64::from(info.blocks.saturating_add(missing)) * BLOCK as u64;
        let new = bytes
            .saturating_sub(body.size())
            .div_ceil(u64::from(self.vol.geo.block_size));
        let nodes = if new > 0 {
            self.data.map_space(&body, new)
        } else {
            0
        };
        let _room = self.space.reserve(new + nodes, true)?;
        let each = self.data.map_credits(&body) + ALLOC_BLOCKS + 1;
        let h = self.vol.begin(
            inode.ino,
            ENTRY_CREDITS + WRITE_INODE + bounded32(new) * each,
        )?;
        self.vol.whole(|| {
            self.grow_quota_file(&h, inode, &mut body, bytes)?;
            let mut blocks = FileBlocks {
                fs: self,
                inode,
                body: &body,
                h: Some(&h),
            };
            // Leaves are written back as they were read, and hold entries of other ids (quota.Q4).
            let locked = (!self.vol.opts.canary.leaf_unlocked).then(|| quotas.accounts.lock());
            let (info, account) = blocks.open(info, id, need)?;
            let mut accounts = locked.unwrap_or_else(|| quotas.accounts.lock());
            let accounts = &mut accounts[file.index()];
            accounts.info = Some(info);
            accounts.loose.remove(&id);
            accounts.by_id.extend(account.map(|a| (id, a)));
            Ok(())
        })
    }

    /// Grows a quota file to at least `bytes` bytes; the new ones are zero.
    fn grow_quota_file(
        &self,
        h: &Handle<'_>,
        inode: &Inode,
        body: &mut InodeBody,
        bytes: u64,
    ) -> Result<()> {
        let old = body.size();
        if bytes <= old {
            return Ok(());
        }
        let size = u64::from(self.vol.geo.block_size);
        for lblk in old.div_ceil(size)..bytes.div_ceil(size) {
            let lblk = u32::try_from(lblk).map_err(|_| FsError::Errno(libc::EFBIG))?;
            let nr = match self.data.map(inode, body, lblk, 1)? {
                Mapping::Hole { .. } => self.data.add_meta_block(h, inode, body, lblk)?,
                // The size was reduced earlier without freeing the blocks behind it.
                Mapping::Mapped {
                    start,
                    unwritten: false,
                    ..
                } => start,
                Mapping::Mapped { start, .. } => {
                    let detail = format!("inode {}: unwritten, behind its end", inode.ino);
                    return Err(FsError::corrupt("quota file", start, detail));
                }
            };
            h.create(&self.vol.cache.get(nr))?;
        }
        body.set_size(bytes);
        self.inodes.write_inode_data(h, inode, body)
    }
}

impl Quotas {
    fn needs(&self, file: &QuotaFile, id: u32) -> Need {
        let all = self.accounts.lock();
        let accounts = &all[file.index()];
        match accounts.by_id.get(&id) {
            None => Need::Entry,
            Some(account) if accounts.loose.contains(&id) => Need::Link(account.leaf),
            Some(_) => Need::Nothing,
        }
    }
}
