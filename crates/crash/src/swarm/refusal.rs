//! Which refusals are a volume's right.

use stetfs::low::FsError;

use super::plan::Plan;
use crate::workload::Op;
use crate::workload::model::State;

/// The features that make a volume refuse.
#[derive(Clone, Copy, Debug)]
pub struct Refusals {
    has_quota: bool,
    has_projects: bool,
    is_root: bool,
}

impl Refusals {
    /// The features of a plan.
    pub fn of(plan: &Plan) -> Refusals {
        Refusals {
            has_quota: !plan.is("quota", "no"),
            has_projects: plan.is("quota", "project"),
            is_root: plan.is("user", "root"),
        }
    }

    /// Whether an operation may end so in a state: what it needs is not there, or a flag, a limit
    /// or a group stands against it. What makes durable, or gives up, never may.
    pub fn allow(self, op: &Op, why: &FsError, state: &State) -> bool {
        if is_sure(op) {
            return false;
        }
        let errno = match (why, op) {
            (FsError::Errno(errno), _) => errno,
            // The file is in a group, or the group is full.
            (FsError::InUse(_) | FsError::GroupFull { .. }, _) => return state.has_group(),
            // Its data goes through no journal.
            (FsError::Unsupported(_), Op::Atomic { .. }) => return true,
            _ => return false,
        };
        match (*errno, op) {
            (libc::ENOSPC, op) => takes(op),
            (libc::EDQUOT, op) => self.has_quota && takes(op),
            (libc::EPERM, Op::Chattr { .. } | Op::Chown { .. }) if !self.is_root => true,
            (libc::EPERM, _) => state.has_guarded(),
            // All groups together may keep so much in memory.
            (libc::EBUSY | libc::ENOMEM, _) => state.has_group(),
            (libc::EXDEV, _) => self.has_projects,
            // The form of the map, data in the inode, a group, or what the volume counts cannot do
            // it.
            (
                libc::EOPNOTSUPP,
                Op::Allocate { .. }
                | Op::Zero { .. }
                | Op::Punch { .. }
                | Op::Chattr { .. }
                | Op::Project { .. },
            ) => true,
            // An inode without room for it, and a value that is too large for the volume.
            (libc::EOVERFLOW, Op::Project { .. }) => true,
            (libc::ESRCH, Op::Limit { .. }) => true,
            (libc::E2BIG | libc::ERANGE, Op::SetXattr { .. }) => true,
            _ => false,
        }
    }
}

/// Whether nothing can stand against it.
fn is_sure(op: &Op) -> bool {
    matches!(
        op,
        Op::Fsync { .. }
            | Op::Fdatasync { .. }
            | Op::SyncAll
            | Op::Freeze
            | Op::Thaw
            | Op::Remount
            | Op::Commit
            | Op::Abort
            | Op::Close { .. }
            | Op::Memory { .. }
            | Op::Act { .. }
            | Op::Refused { .. }
    )
}

/// Whether it may take space or inodes.
fn takes(op: &Op) -> bool {
    !matches!(
        op,
        Op::Unlink { .. } | Op::Rmdir { .. } | Op::HoldUnlink { .. } | Op::Hold { .. } | Op::Trim
    )
}
