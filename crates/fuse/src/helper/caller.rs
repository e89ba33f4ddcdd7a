//! Facts about callers that the kernel does not send: capabilities, groups, ids. A server without
//! the right to look them up asks its helper.

use std::path::Path;

use stetfs::low::Ctx;

use crate::helper::{self, Answer, Question};

/// `CAP_FOWNER`.
const FOWNER: u32 = 3;
/// `CAP_FSETID`.
const FSETID: u32 = 4;
/// `CAP_SYS_ADMIN`.
const SYS_ADMIN: u32 = 21;

/// Whether the caller has CAP_SYS_ADMIN in this server's user namespace. A caller that is gone or
/// invisible has not.
pub(crate) fn is_admin(ctx: &Ctx) -> bool {
    is_capable(ctx.pid, SYS_ADMIN)
}

/// Whether the caller has CAP_FOWNER: it may do what the owner of a file may.
pub(crate) fn acts_as_owner(ctx: &Ctx) -> bool {
    is_capable(ctx.pid, FOWNER)
}

/// Whether the caller has CAP_FSETID: set-group-id stays on a file that it gives away.
pub(crate) fn may_keep_sgid(ctx: &Ctx) -> bool {
    is_capable(ctx.pid, FSETID)
}

/// Whether a thread has a capability in this server's user namespace.
pub(crate) fn is_capable(pid: u32, capability: u32) -> bool {
    if let Some(helper) = helper::ours() {
        let answer = helper.ask(Question::Capable { pid, capability });
        return matches!(answer, Some(Answer([1, ..])));
    }
    let proc = Path::new("/proc").join(pid.to_string());
    // Root of a user namespace has all capabilities in it, and none here.
    let same_namespace = match (
        proc.join("ns/user").read_link(),
        Path::new("/proc/self/ns/user").read_link(),
    ) {
        (Ok(theirs), Ok(ours)) => theirs == ours,
        _ => false,
    };
    same_namespace
        && std::fs::read_to_string(proc.join("status"))
            .is_ok_and(|status| (effective(&status) >> capability) & 1 == 1)
}

/// The id "nobody", as Linux calls unmapped ids.
const NOBODY: u32 = 65_534;

/// The caller for a thread id alone. A thread that is gone or invisible counts as nobody.
pub(crate) fn identified(pid: u32) -> Ctx {
    let (uid, gid) = ids(pid);
    Ctx { uid, gid, pid }
}

/// User and group ids for file systems of a thread; nobody's if the thread is invisible.
pub(crate) fn ids(pid: u32) -> (u32, u32) {
    if let Some(helper) = helper::ours() {
        let answer = helper.ask(Question::Ids { pid });
        return answer.map_or((NOBODY, NOBODY), |Answer([uid, gid, _])| {
            (uid as u32, gid as u32)
        });
    }
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    (
        fs_id(&status, "Uid:").unwrap_or(NOBODY),
        fs_id(&status, "Gid:").unwrap_or(NOBODY),
    )
}

/// The id for file systems, the last of four, in the text of `/proc/PID/status`.
fn fs_id(status: &str, name: &str) -> Option<u32> {
    let ids = status.lines().find_map(|line| line.strip_prefix(name))?;
    ids.split_whitespace().nth(3)?.parse().ok()
}

/// Whether the caller is in the group. A caller that is gone is only in its primary group.
pub(crate) fn is_of_group(ctx: &Ctx, gid: u32) -> bool {
    ctx.gid == gid || in_group(ctx.pid, gid)
}

/// Whether `gid` is a supplementary group of the thread.
pub(crate) fn in_group(pid: u32, gid: u32) -> bool {
    if let Some(helper) = helper::ours() {
        let answer = helper.ask(Question::InGroup { pid, gid });
        return matches!(answer, Some(Answer([1, ..])));
    }
    std::fs::read_to_string(format!("/proc/{pid}/status"))
        .is_ok_and(|status| groups(&status).any(|group| group == gid))
}

/// Whether two threads may belong to one process: true unless both are visible and belong to
/// different ones.
pub(crate) fn of_one_process(pid: u32, other: u32) -> bool {
    if pid == other {
        return true;
    }
    if let Some(helper) = helper::ours() {
        let answer = helper.ask(Question::OneProcess { pid, other });
        return !matches!(answer, Some(Answer([0, ..])));
    }
    let process = |thread: u32| {
        let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
        process_id(&status)
    };
    match (process(pid), process(other)) {
        (Some(one), Some(two)) => one == two,
        _ => true,
    }
}

/// The process id in the text of `/proc/PID/status` of one of its threads.
fn process_id(status: &str) -> Option<u32> {
    let id = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    id.trim().parse().ok()
}

/// The supplementary groups in the text of `/proc/PID/status`.
fn groups(status: &str) -> impl Iterator<Item = u32> {
    status
        .lines()
        .find_map(|line| line.strip_prefix("Groups:"))
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|group| group.parse().ok())
}

/// The effective capabilities in the text of `/proc/PID/status`.
fn effective(status: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_one_process_are_told_from_others() {
        let me = std::process::id();
        let thread = std::thread::spawn(|| rustix::thread::gettid().as_raw_nonzero().get() as u32);
        let gone = thread.join().unwrap_or_default();
        assert!(of_one_process(me, me) && of_one_process(me, gone));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let here = rustix::thread::gettid().as_raw_nonzero().get() as u32;
                assert!(here != me && of_one_process(here, me));
            });
        });
        assert!(!of_one_process(me, 1));
    }

    #[test]
    fn capabilities_are_read_and_nobody_is_no_admin() {
        assert_eq!(effective("Uid:\t0\nCapEff:\t0000000000200001\n"), 0x20_0001);
        assert_eq!(effective("CapEff:\tnonsense\n"), 0);
        assert_eq!(effective(""), 0);
        let status = "Gid:\t1\t1\nGroups:\t4 24 1000 \n";
        assert_eq!(groups(status).collect::<Vec<_>>(), [4, 24, 1000]);
        assert_eq!(groups("").count(), 0);
        let status = "Uid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\n";
        assert_eq!(
            (fs_id(status, "Uid:"), fs_id(status, "Gid:")),
            (Some(4), Some(8))
        );
        assert_eq!(fs_id("", "Uid:"), None);
        assert_eq!(process_id("Name:\tx\nTgid:\t12\nPid:\t13\n"), Some(12));
        assert_eq!(identified(0).uid, NOBODY);
        let gone = Ctx {
            pid: u32::MAX,
            ..Ctx::default()
        };
        assert!(!is_admin(&gone));
    }
}
