//! The attributes of copies: owner, permissions, times, extended attributes and flags.

use std::path::Path;

use super::Copy;
use crate::failure::Result;
use crate::files::left_out::LeftOut;
use crate::files::tree::{Finish, GUARDS, Item, Kind, Permissions, needs_owner, tame};

impl Copy<'_> {
    /// The attributes that a copy in a volume takes over from the file that it replaces. cp(1)
    /// writes into that file; here other names of it keep its content.
    pub(super) fn replaced(
        &self,
        to: &Path,
        there: Option<&Item>,
        item: &Item,
    ) -> Result<Option<Finish>> {
        let Some(there) = there.filter(|there| there.kind == Kind::File) else {
            return Ok(None);
        };
        if self.archive || self.to_host || item.kind != Kind::File {
            return Ok(None);
        }
        let mut xattrs = self.to.xattrs(to)?;
        // Linux takes these from a file whose content changes.
        xattrs.retain(|(name, _)| name != "security.capability");
        Ok(Some(Finish {
            owner: Some(self.owner.unwrap_or((there.uid, there.gid))),
            permissions: Some(Permissions::Kept(there.mode)),
            xattrs,
            flags: self.to.flags(to, there)?,
            ..Finish::default()
        }))
    }

    /// Whether the copy may have attributes with power. On the host it may not if `--owner` gives
    /// it to another user.
    fn may_have_power(&self, item: &Item) -> bool {
        let is_its = self.owner.is_none_or(|owner| owner == (item.uid, item.gid));
        self.keeps_special && (is_its || !self.to_host)
    }

    pub(super) fn permissions(&self, item: &Item) -> Permissions {
        match self.keeps_modes {
            false => Permissions::New(item.mode),
            true if self.may_have_power(item) => Permissions::Kept(item.mode),
            true => Permissions::Kept(tame(item.kind, item.mode)),
        }
    }

    /// The attributes of a copy. Without `-a` an existing directory keeps its mode.
    pub(super) fn finish(&mut self, from: &Path, item: &Item, is_new: bool) -> Result<Finish> {
        let mut finish = Finish {
            owner: self.owner,
            permissions: (is_new || self.archive).then(|| self.permissions(item)),
            ..Finish::default()
        };
        if let Some(Permissions::Kept(mode)) = finish.permissions {
            self.meter.left_out(LeftOut {
                bits: u64::from(item.kind != Kind::Symlink && mode != item.mode),
                ..LeftOut::default()
            });
        }
        if self.archive {
            finish.owner = self.owner.or(Some((item.uid, item.gid)));
            finish.modified = Some(item.modified);
            finish.accessed = Some(item.accessed);
            let xattrs = self.from.xattrs(from);
            finish.xattrs = self.meter.troubles.pass(xattrs)?.unwrap_or_default();
            if let Some(layer) = self.layer {
                layer.tidy(&mut finish.xattrs);
            }
            let flags = self.from.flags(from, item);
            finish.flags = self.meter.troubles.pass(flags)?.flatten();
        }
        if !self.may_have_power(item) {
            let guards = finish.flags.unwrap_or(0) & GUARDS;
            finish.flags = finish.flags.map(|flags| flags & !GUARDS);
            let all = finish.xattrs.len();
            finish.xattrs.retain(|(name, _)| !needs_owner(name));
            self.meter.left_out(LeftOut {
                attributes: (all - finish.xattrs.len()) as u64,
                flags: u64::from(guards != 0),
                ..LeftOut::default()
            });
        }
        Ok(finish)
    }
}
