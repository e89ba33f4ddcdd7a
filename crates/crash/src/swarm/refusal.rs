//! The refusals that a volume is entitled to.

use stetfs::low::FsError;

use super::plan::Plan;
use crate::workload::Op;
use crate::workload::model::State;

/// The features by which a volume may refuse operations.
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

    /// Whether an operation may fail with this error in this state: a resource is missing, or a
    /// flag, a limit or a group forbids it. An operation that makes changes durable, or frees
    /// something, must not fail.
    pub fn allow(self, op: &Op, why: &FsError, state: &State) -> bool {
        if is_sure(op) {
            return false;
        }
        let errno = match (why, op) {
            (FsError::Errno(errno), _) => errno,
            // The file is in a group, or the group is full.
            (FsError::InUse(_) | FsError::GroupFull { .. }, _) => return state.has_group(),
            // The file's data does not go through the journal.
            (FsError::Unsupported(_), Op::Atomic { .. }) => return true,
            _ => return false,
        };
        match (*errno, op) {
            (libc::ENOSPC, op) => takes(op),
            (libc::EDQUOT, op) => self.has_quota && takes(op),
            (libc::EPERM, Op::Chattr { .. } | Op::Chown { .. }) if !self.is_root => true,
            (libc::EPERM, _) => state.has_guarded(),
            // The memory for all groups together is limited.
            (libc::EBUSY | libc::ENOMEM, _) => state.has_group(),
            (libc::EXDEV, _) => self.has_projects,
            // The form of the map, inline data, a group, or the volume's accounting does not allow
            // it.
            (
                libc::EOPNOTSUPP,
                Op::Allocate { .. }
                | Op::Zero { .. }
                | Op::Punch { .. }
                | Op::Chattr { .. }
                | Op::Project { .. },
            ) => true,
            // The inode has no room for a project, or the value is too large for the volume.
            (libc::EOVERFLOW, Op::Project { .. }) => true,
            (libc::ESRCH, Op::Limit { .. }) => true,
            (libc::E2BIG | libc::ERANGE, Op::SetXattr { .. }) => true,
            _ => false,
        }
    }
}

/// Whether the operation must never be refused.
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

/// Whether an operation may take space or inodes.
fn takes(op: &Op) -> bool {
    !matches!(
        op,
        Op::Unlink { .. } | Op::Rmdir { .. } | Op::HoldUnlink { .. } | Op::Hold { .. } | Op::Trim
    )
}
