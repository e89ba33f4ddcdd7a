//! The seccomp filter: system calls that a server and its run-time libraries make while it serves.
//! All others fail with EPERM, so that a call forgotten here gives an error and does not kill the
//! process.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

/// System calls allowed with any arguments.
const ANY: &[libc::c_long] = &[
    // I/O on the device and on open files.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_lseek,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_fallocate,
    libc::SYS_fadvise64,
    libc::SYS_flock,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_close,
    // Rings that exist, for the operations that they were made for: a filter cannot inspect
    // requests of a ring.
    libc::SYS_io_uring_enter,
    // Access by name: Landlock restricts the names.
    libc::SYS_openat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_getdents64,
    libc::SYS_readlinkat,
    libc::SYS_chdir,
    libc::SYS_getcwd,
    // Memory, except executable memory.
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_msync,
    libc::SYS_mincore,
    libc::SYS_brk,
    // Threads.
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_membarrier,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_getparam,
    libc::SYS_getcpu,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_restart_syscall,
    // Signals to the process itself.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    // Time.
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_clock_nanosleep,
    libc::SYS_nanosleep,
    libc::SYS_gettimeofday,
    // Waiting.
    libc::SYS_ppoll,
    libc::SYS_eventfd2,
    // Sockets that are open: the control socket, and those to the helper, to syslog and to the
    // service manager.
    libc::SYS_accept4,
    libc::SYS_accept,
    libc::SYS_recvfrom,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_shutdown,
    // Facts about the process and the machine.
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getrusage,
    libc::SYS_getrandom,
    // A call that the C library tries first; a second filter reports that it does not exist.
    libc::SYS_clone3,
];

/// The same, for this architecture only.
#[cfg(target_arch = "x86_64")]
const ANY_HERE: &[libc::c_long] = &[libc::SYS_poll, libc::SYS_dup2, libc::SYS_time];
#[cfg(not(target_arch = "x86_64"))]
const ANY_HERE: &[libc::c_long] = &[];

/// System calls allowed until the mount stands.
const MOUNTING: &[libc::c_long] = &[
    // To receive the connection and the control socket from the mounter, and its exit status.
    libc::SYS_recvmsg,
    libc::SYS_listen,
    libc::SYS_wait4,
    // The pair that wakes the signal-handling thread; it reaches no other process.
    libc::SYS_socketpair,
    // To install the filter of the next stage.
    libc::SYS_seccomp,
];

/// The stage of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The volume is opened and mounted.
    Mounting,
    /// The mount stands.
    Serving,
}

/// Flags of clone(2) for new namespaces (`CLONE_NEW*`).
const NAMESPACES: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u32 as u64;
const THREAD: u64 = libc::CLONE_THREAD as u64;

/// Allowed ioctls: of `/dev/fuse` (FUSE_DEV_IOC_CLONE), of block devices (BLKDISCARD, BLKZEROOUT,
/// BLKROGET), and of images that share blocks (FICLONERANGE, FS_IOC_FIEMAP).
const IOCTLS: [u64; 7] = [
    0x8004_e500,
    0x1277,
    0x127f,
    0x125e,
    0x8018_ef02,
    0x4020_940d,
    0xc020_660b,
];
/// `STETFS_IOC_SHARE` with any size of its argument.
const SHARE: (u64, u64) = (0xc000_ffff, 0x4000_ef01);

/// Commands of fcntl(2) that choose a signal and its receiver.
const F_SETSIG: libc::c_int = 10;
const F_SETOWN_EX: libc::c_int = 15;

fn when(argument: u8, is: SeccompCmpOp, value: u64) -> seccompiler::Result<SeccompCondition> {
    // Flags and numbers are 32 bits wide here; the rest of the register may be anything.
    Ok(SeccompCondition::new(
        argument,
        SeccompCmpArgLen::Dword,
        is,
        value,
    )?)
}

/// The condition for fcntl(2): no command that chooses which process gets which signal when a file
/// is ready or changes.
fn no_signals() -> seccompiler::Result<Vec<SeccompCondition>> {
    let signals = [libc::F_SETOWN, F_SETSIG, F_SETOWN_EX, libc::F_NOTIFY];
    let others =
        signals.map(|command| when(1, SeccompCmpOp::Ne, u64::from(command.unsigned_abs())));
    others.into_iter().collect()
}

/// System calls allowed with some arguments only.
fn conditional(
    stage: Stage,
    has_network: bool,
) -> seccompiler::Result<Vec<(libc::c_long, Vec<SeccompRule>)>> {
    use SeccompCmpOp::{Eq, MaskedEq};
    let rule = |conditions| Ok::<_, seccompiler::Error>(SeccompRule::new(conditions)?);
    let one_of = |argument, values: &[u64]| -> seccompiler::Result<Vec<SeccompRule>> {
        let each = values.iter().map(|v| rule(vec![when(argument, Eq, *v)?]));
        each.collect()
    };
    let exec = MaskedEq(libc::PROT_EXEC as u64);
    let mut ioctls = one_of(1, &IOCTLS)?;
    if has_network {
        ioctls.extend(one_of(1, &[libc::FIONBIO])?);
    }
    ioctls.push(rule(vec![when(1, MaskedEq(SHARE.0), SHARE.1)?])?);
    // Operations on a ring: registering the connection (IORING_REGISTER_FILES), and enabling the
    // ring in its thread (IORING_REGISTER_ENABLE_RINGS).
    let of_rings: &[u64] = match stage {
        Stage::Mounting => &[2, 12],
        Stage::Serving => &[12],
    };
    let mut of_thread = vec![
        libc::PR_SET_NAME as u64,
        libc::PR_GET_NAME as u64,
        libc::PR_SET_VMA as u64,
    ];
    if stage == Stage::Mounting {
        of_thread.push(libc::PR_SET_NO_NEW_PRIVS as u64);
    }
    let mut conditional = vec![
        // No new executable code.
        (libc::SYS_mmap, vec![rule(vec![when(2, exec.clone(), 0)?])?]),
        (libc::SYS_mprotect, vec![rule(vec![when(2, exec, 0)?])?]),
        // Threads, and no other processes.
        (
            libc::SYS_clone,
            vec![rule(vec![when(0, MaskedEq(THREAD | NAMESPACES), THREAD)?])?],
        ),
        (libc::SYS_fcntl, vec![rule(no_signals()?)?]),
        // For the calling thread only.
        (libc::SYS_sched_setaffinity, one_of(0, &[0])?),
        (libc::SYS_sched_setscheduler, one_of(0, &[0])?),
        (libc::SYS_ioctl, ioctls),
        (libc::SYS_io_uring_register, one_of(1, of_rings)?),
        // Names of threads and of memory.
        (libc::SYS_prctl, one_of(0, &of_thread)?),
        // Reading its own limits, not setting them.
        (
            libc::SYS_prlimit64,
            vec![rule(vec![
                when(0, Eq, 0)?,
                SeccompCondition::new(2, SeccompCmpArgLen::Qword, Eq, 0)?,
            ])?],
        ),
        // Only to the connected peer.
        (
            libc::SYS_sendto,
            vec![rule(vec![SeccompCondition::new(
                4,
                SeccompCmpArgLen::Qword,
                Eq,
                0,
            )?])?],
        ),
        // Abort after a bug.
        (
            libc::SYS_tgkill,
            one_of(0, &[u64::from(std::process::id())])?,
        ),
    ];
    if has_network {
        // The helper passes connections.
        conditional.push((libc::SYS_recvmsg, Vec::new()));
    }
    Ok(conditional)
}

/// The filters, and the number of system calls that they leave.
fn programs(stage: Stage, has_network: bool) -> seccompiler::Result<([BpfProgram; 2], usize)> {
    let arch: TargetArch = std::env::consts::ARCH.try_into()?;
    let any = |calls: &[libc::c_long]| calls.iter().map(|call| (*call, Vec::new())).collect();
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = any(ANY);
    rules.extend::<BTreeMap<_, _>>(any(ANY_HERE));
    rules.extend(conditional(stage, has_network)?);
    if stage == Stage::Mounting {
        rules.extend::<BTreeMap<_, _>>(any(MOUNTING));
    }
    // Without clone3, which the other filter denies.
    let left = rules.len() - 1;
    let errno = |code: libc::c_int| SeccompAction::Errno(code.unsigned_abs());
    let allowed = SeccompFilter::new(rules, errno(libc::EPERM), SeccompAction::Allow, arch)?;
    // The flags of clone3 are in memory, where a filter cannot look; when it is absent the C
    // library uses clone.
    let absent = SeccompFilter::new(
        BTreeMap::from([(libc::SYS_clone3, Vec::new())]),
        SeccompAction::Allow,
        errno(libc::ENOSYS),
        arch,
    )?;
    Ok(([absent.try_into()?, allowed.try_into()?], left))
}

/// Filters the system calls of all threads, and returns the number of those left.
///
/// # Errors
/// The kernel has no seccomp, or there is no filter for this architecture.
pub(super) fn filter(stage: Stage, has_network: bool) -> io::Result<usize> {
    let ([absent, allowed], left) = programs(stage, has_network).map_err(io::Error::other)?;
    // Filters add up; the one for the absent call stays.
    let first = (stage == Stage::Mounting).then_some(absent);
    for program in first.iter().chain([&allowed]) {
        seccompiler::apply_filter_all_threads(program).map_err(io::Error::other)?;
    }
    Ok(left)
}
