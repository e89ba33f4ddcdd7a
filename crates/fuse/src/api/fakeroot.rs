//! Translation of owners on a mount with the option `fakeroot`.

use stetfs::low::{Attr, Ctx, SetAttr};

/// The translation of the volume's ids. Without `fakeroot` it changes nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ids {
    /// The user and group that are exchanged with root.
    in_place_of: Option<(u32, u32)>,
}

impl Ids {
    /// The translation for `fakeroot`: the user of the mount is root in the volume. Root's files
    /// are shown as those of this process's user and group, and theirs as root's. The exchange
    /// keeps ids distinct, and a file given to one of them is shown as its own.
    pub fn fakeroot() -> Ids {
        let uid = rustix::process::getuid().as_raw();
        let gid = rustix::process::getgid().as_raw();
        Ids {
            in_place_of: Some((uid, gid)),
        }
    }

    /// Translates a user id; the same in both directions.
    fn uid(self, uid: u32) -> u32 {
        self.in_place_of.map_or(uid, |(user, _)| swap(uid, user))
    }

    /// Translates a group id.
    fn gid(self, gid: u32) -> u32 {
        self.in_place_of.map_or(gid, |(_, group)| swap(gid, group))
    }

    /// The caller as the volume sees it.
    pub(crate) fn caller(self, ctx: Ctx) -> Ctx {
        match self.in_place_of {
            Some(_) => Ctx {
                uid: 0,
                gid: 0,
                ..ctx
            },
            None => ctx,
        }
    }

    /// The attributes as the mount shows them.
    pub(crate) fn shown(self, attr: &Attr) -> Attr {
        Attr {
            uid: self.uid(attr.uid),
            gid: self.gid(attr.gid),
            ..attr.clone()
        }
    }

    /// A change of attributes as the volume gets it.
    pub(crate) fn asked(self, set: SetAttr) -> SetAttr {
        SetAttr {
            uid: set.uid.map(|uid| self.uid(uid)),
            gid: set.gid.map(|gid| self.gid(gid)),
            ..set
        }
    }
}

fn swap(id: u32, user: u32) -> u32 {
    match id {
        0 => user,
        _ if id == user => 0,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_and_the_user_change_places_and_nobody_else() {
        let ids = Ids {
            in_place_of: Some((1000, 100)),
        };
        let shown = [0, 1000, 100, 7].map(|id| (ids.uid(id), ids.gid(id)));
        assert_eq!(shown, [(1000, 100), (0, 1000), (100, 0), (7, 7)]);
        for id in [0, 1000, 100, 7] {
            assert_eq!((ids.uid(ids.uid(id)), ids.gid(ids.gid(id))), (id, id));
        }
        let asker = Ctx {
            uid: 1000,
            gid: 100,
            pid: 5,
        };
        let taken = ids.caller(asker);
        assert_eq!((taken.uid, taken.gid, taken.pid), (0, 0, 5));
        let plain = Ids::default().caller(asker);
        assert_eq!((plain.uid, plain.gid), (1000, 100));
    }
}
