//! The server of a mount: open, mount, serve, close.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use stetfs::low::{
    FsError, LatencyStats, NbdAddress, OpenedDevices, ReadDevices, RegionInfo, Volume,
};
use stetfs_fuse::{Entrance, Limits, MountError, Mounter, Plan, Server, is_root};

use crate::cmd::{atomic, freeze, quota, sync};
use crate::control::{self, server::Control};
use crate::failure::{Code, Failure, Result};
use crate::job::Job;
use crate::limits;
use crate::live::Live;
use crate::log;
use crate::memory::CacheBound;
use crate::net;
use crate::record;
use crate::sandbox::Sandbox;

/// Threads that may use the device at once, beside one for each processor: more requests are under
/// way when some wait, and journal and caches have threads of their own.
const OTHERS: usize = 12;

/// Serves until the volume is unmounted and closed. `ready` is called once the mount stands, with
/// warnings where the mount is not as requested.
pub(crate) fn serve(job: &Job, limits: Limits, ready: impl FnOnce(Vec<String>)) -> Result {
    abort_on_panic();
    limits::check(&limits, &job.options)?;
    // Checked first: no journal is replayed for a mount that is impossible.
    let dir = stetfs_fuse::check_dir(&job.dir)?;
    // The look starts a process, so it comes before other threads.
    let job = &job.looked_at()?;
    let mut mounter = mounter(job, dir.clone())?;
    let _in_use = hold_hosts(job);
    let moved = leave()?;
    mounter.begin(moved).map_err(MountError::Session)?;
    let journal = job.options.request.journal_path.as_deref();
    let nvm = job.options.request.nvm.path.as_deref();
    let devices = [Some(job.source.as_path()), journal, nvm];
    let servers = net::servers(&devices);
    // The files by which lost servers are found again.
    let ways = net::ways(&servers);
    let ways: Vec<_> = ways.iter().map(|path| Some(path.as_path())).collect();
    let_go_of_mounts(moved, &[devices.as_slice(), &ways].concat());
    let mut sandbox = Sandbox::prepare(job.options.sandbox, mounter.facts(), &servers)?;
    let (devices, ref job) = open(job, &sandbox)?;
    // The devices are open, and keep the file systems that hold them in use.
    let_go_of_mounts(moved, &ways);
    if sandbox.is_on() {
        let cores = std::thread::available_parallelism().map_or(4, usize::from);
        devices.prepare_rings(cores + OTHERS);
        debug_assert!(!devices.were_read(), "with privileges nothing is read");
    }
    sandbox.enter()?;
    #[cfg(debug_assertions)]
    stetfs_fuse::taken_over_before();
    // Every process that this one starts is there.
    log::join();
    let (devices, ref job) = read(&devices, job)?;
    log::volume_is(&job.source, &devices.label());
    let bound = Arc::new(CacheBound::of(&job.options));
    let memory = bound.prepare(job.options.volume()?.fs.cache_bytes);
    let is_sparse = devices.is_sparse();
    let volume = devices.start(&job.options.volume()?).map_err(|e| match e {
        // The mount is read-only, and there is a journal to replay.
        FsError::Errno(libc::EROFS) => unreplayed(&job.source, is_sparse),
        e => e.into(),
    })?;
    let mut warnings = warnings_of(job, &limits, &dir, &volume);
    let serve = job.options.serve(&job.source);
    let mut server = match Server::mount(Arc::clone(&volume), &serve, mounter) {
        Ok(server) => server,
        Err(e) => {
            volume.close()?;
            return match e {
                MountError::Gone => {
                    ready(warnings);
                    Ok(())
                }
                e => Err(e.into()),
            };
        }
    };
    drop(volume);
    warnings.extend(without_sync(job, &server));
    let entrance = server.entrance();
    let live = Arc::new(Live::new(&server, job, memory, bound));
    handle_signals(&live, job.daemon)?;
    let control = entrance.and_then(|entrance| listen(&live, entrance));
    if !job.options.request.fs.read_only
        && let Some(volume) = live.fs.volume()
        && let Err(e) = volume.fs().set_last_mounted(dir.as_os_str().as_bytes())
    {
        tracing::warn!("cannot record the mount point in the superblock: {e}");
    }
    if let Err(e) = sandbox.seal() {
        take_down(server, &live);
        return Err(e);
    }
    live.note(sandbox);
    tell_mount(job, &dir);
    ready(warnings);
    serve_until_unmounted(server, control, &dir)
}

/// Serves until the volume is unmounted, and tells the log and clients.
fn serve_until_unmounted(server: Server, control: Option<Control>, dir: &Path) -> Result {
    let result = server.run().map_err(Failure::from);
    if result.is_ok() {
        tracing::info!("unmounted from {}", dir.display());
    }
    if let Some(control) = control {
        control.closed(&result);
    }
    result
}

/// Logs that the mount stands.
fn tell_mount(job: &Job, dir: &Path) {
    let how = match job.options.request.fs.read_only {
        true => "mounted read-only",
        false => "mounted",
    };
    let options = match job.text.as_str() {
        "" => "no options",
        text => text,
    };
    tracing::info!("{how} on {}: {options}", dir.display());
}

/// The warning for a volume that other machines can reach.
fn others() -> String {
    "other machines can mount this volume, too, and destroy it: protect it with tune2fs -O mmp"
        .into()
}

/// The warning for a mount to which the kernel does not pass syncs of the whole volume.
fn without_sync(job: &Job, server: &Server) -> Option<String> {
    let is_told = !job.options.request.fs.read_only && !server.connection().passes_sync();
    is_told.then(|| {
        "sync(2) and syncfs(2) do not reach this mount, and make nothing durable; fsync(2) does, \
         and for the whole volume: stetfs sync DIR"
            .into()
    })
}

/// Takes down a mount that was not reported. The unmount waits for an answer of the server.
fn take_down(server: Server, live: &Live) {
    let mounted = live.mounted.clone();
    let down = std::thread::spawn(move || mounted.unmount());
    let _ = server.run();
    let _ = down.join();
}

/// Warnings where the mount is not as requested, or could be better.
fn warnings_of(job: &Job, limits: &Limits, dir: &Path, volume: &Volume) -> Vec<String> {
    if job.protected {
        // The words of mount(8).
        let dir = dir.display();
        return vec![format!(
            "{dir}: WARNING: source write-protected, mounted read-only."
        )];
    }
    if job.options.request.fs.read_only {
        return Vec::new();
    }
    let is_open_to_others = volume.host().export().is_some() && volume.fs().mmp_range().is_none();
    let is_logged_elsewhere = job.daemon || job.options.log_file.is_some();
    let weak = volume.region().and_then(|region| weak(&region));
    let others = is_open_to_others.then(others);
    weak.into_iter()
        .chain(others)
        .chain(limits::warnings(limits, volume.host()))
        // In the foreground the library's log shows it on the terminal already.
        .chain(
            is_logged_elsewhere
                .then(|| without_journal(volume))
                .flatten(),
        )
        .collect()
}

/// The warning for a volume without a journal.
fn without_journal(volume: &Volume) -> Option<String> {
    let fs = volume.fs();
    let unclean = match fs.was_clean() {
        true => "",
        false => "; it was not unmounted cleanly: unmount it and run e2fsck -f",
    };
    (!fs.has_journal()).then(|| {
        format!(
            "the volume has no journal: what is synced is durable, but a crash can leave the \
             volume inconsistent, for e2fsck to repair{unclean}"
        )
    })
}

/// Listens for requests of `stetfs stat` and the like.
fn listen(live: &Arc<Live>, entrance: Entrance) -> Option<Control> {
    let handler = Arc::clone(live);
    let answers = Arc::new(move |request: &Value| answer(&handler, request));
    Control::listen(entrance, answers)
        .inspect_err(|e| {
            tracing::warn!("no control socket, `stetfs stat` and `remount` will not work: {e}")
        })
        .ok()
}

/// The warning for a region of persistent memory that is less safe than a device.
fn weak(region: &RegionInfo) -> Option<String> {
    let RegionInfo { path, survives, .. } = region;
    let (what, lost) = match region.has_log {
        true => (
            "the whole log",
            "the volume's changes since the last checkpoint, and e2fsck has to repair it",
        ),
        false => (
            "records of synced files",
            "what was synced since the last commit",
        ),
    };
    tracing::info!("{what}: in {path}, which survives {survives}");
    (!region.is_safe).then(|| {
        format!("{what}: in {path}, which survives {survives}: a loss of power loses {lost}")
    })
}

/// Starts the mounter, while this process still has its privileges.
fn mounter(job: &Job, dir: PathBuf) -> Result<Mounter> {
    let is_elsewhere = NbdAddress::is_meant(&job.source);
    let plan = Plan {
        dir,
        options: job.options.serve(&job.source),
        device: (!is_elsewhere).then(|| job.source.clone()),
    };
    Ok(Mounter::start(plan, |mounted| {
        control::bind(mounted.dev())
    })?)
}

/// Leaves the mount namespace in which the volume will be mounted, where possible: the server must
/// not be its last process. Returns whether it left.
fn leave() -> Result<bool> {
    // Without root fusermount3 mounts, with a type at whose end the kernel does not wait for the
    // server.
    if !is_root() {
        return Ok(false);
    }
    match stetfs_fuse::leave_namespace() {
        Ok(()) => Ok(true),
        Err(e)
            if matches!(
                e.kind(),
                ErrorKind::Unsupported | ErrorKind::PermissionDenied
            ) =>
        {
            tracing::warn!(
                "the server stays in the mount namespace of its user ({e}): do not kill it as the \
                 last process there"
            );
            Ok(false)
        }
        Err(e) => Err(Failure::new(
            Code::System,
            format!("cannot create a mount namespace for the server: {e}"),
        )),
    }
}

/// Detaches the mounts that `paths` do not need, if the namespace is the server's own.
fn let_go_of_mounts(moved: bool, paths: &[Option<&Path>]) {
    let control = control::place();
    let real = |path: &Path| path.canonicalize().ok();
    let needed: Vec<PathBuf> = paths.iter().flatten().filter_map(|p| real(p)).collect();
    let mut needed: Vec<&Path> = needed.iter().map(PathBuf::as_path).collect();
    needed.push(&control);
    if moved && let Err(e) = stetfs_fuse::let_go_of_mounts(&needed) {
        tracing::warn!("cannot detach other mounts from the server's namespace: {e}");
    }
}

/// Opens the images as the user sees them, so that the file systems that hold them stay in use in
/// the user's namespace, and cannot be unmounted.
fn hold_hosts(job: &Job) -> Vec<File> {
    let journal = job.options.request.journal_path.as_deref();
    let nvm = job.options.request.nvm.path.as_deref();
    let paths = [Some(job.source.as_path()), journal, nvm];
    let open = |path| {
        File::options()
            .read(true)
            .custom_flags(libc::O_PATH)
            .open(path)
    };
    // Errors are reported when the file is needed.
    paths
        .into_iter()
        .flatten()
        .filter_map(|p| open(p).ok())
        .collect()
}

/// Opens the devices of a job; read-only if they are write-protected, as mount(8) does. Returns the
/// job with that change.
fn open(job: &Job, sandbox: &Sandbox) -> Result<(OpenedDevices, Job)> {
    let tried = |job: &Job| {
        let mut options = job.options.volume()?;
        options.nbd.connector = sandbox.connector();
        let opened = OpenedDevices::open(&job.source, &options, &job.look);
        Ok::<_, Failure>(opened)
    };
    match tried(job)? {
        Err(e) if is_to_be_read(&e, job) => {
            let job = protected(job);
            Ok((tried(&job)??, job))
        }
        opened => Ok((opened?, job.clone())),
    }
}

/// Finds the volume in the devices, with the same fallback: exports state only then whether they
/// can be written.
fn read(devices: &OpenedDevices, job: &Job) -> Result<(ReadDevices, Job)> {
    match devices.read(&job.options.volume()?) {
        Err(e) if is_to_be_read(&e, job) => {
            let job = protected(job);
            Ok((devices.read(&job.options.volume()?)?, job))
        }
        read => Ok((read?, job.clone())),
    }
}

/// Whether the failure leaves a read-only mount possible.
fn is_to_be_read(e: &FsError, job: &Job) -> bool {
    stetfs::low::is_write_protected(e) && !job.options.request.fs.read_only
}

fn protected(job: &Job) -> Job {
    let mut job = job.clone();
    job.options.request.fs.read_only = true;
    job.protected = true;
    job
}

/// The failure for a volume that needs its journal replayed and cannot be written.
fn unreplayed(source: &Path, is_sparse: bool) -> Failure {
    let message = format!(
        "{} has a journal to be replayed: write access unavailable, cannot proceed",
        source.display()
    );
    let way = match is_sparse {
        true => "make a plain image of it (stetfs image unsparse)",
        false => "make it writable",
    };
    Failure::new(Code::Usage, message).hint(format!(
        "{way}, or look at it as it is, perhaps inconsistent, with -o ro,norecovery (noload)",
    ))
}

fn answer(live: &Live, request: &Value) -> Result<Value> {
    let closing = || Failure::new(Code::NotFound, "the volume is being closed");
    let volume = || live.fs.volume().ok_or_else(closing);
    match request["op"].as_str() {
        Some("stat") => {
            let mut stats = json!(volume()?.stats());
            stats["requests"] = json!(stetfs_fuse::requests());
            let latency = stetfs_fuse::request_latency();
            for (name, latency) in [
                ("sync", latency.sync),
                ("write", latency.write),
                ("read", latency.read),
            ] {
                stats["latency"][name] = json!(LatencyStats::from(&latency));
            }
            stats["connection"] = json!(live.connection.stats());
            stats["sandbox"] = json!(live.sandbox());
            stats["frozen"] = freeze::shown(live.fs.frozen());
            stats["atomic_writes"] = atomic::shown(&live.fs.atomic_holders());
            // The largest write that no crash leaves torn, bytes (docs/atomic.md).
            stats["whole_write_bytes"] = json!(live.fs.whole_write());
            Ok(stats)
        }
        Some(op @ ("freeze" | "thaw")) => freeze::answer(&live.fs, op),
        Some("sync") => sync::answer(&*volume()?),
        Some("quota") => quota::answer(&*volume()?, request),
        Some("record") => record::answer(&*volume()?, request),
        Some("remount") => {
            let options = request["options"].as_str().unwrap_or_default();
            let kept = live
                .remount(options)
                .inspect_err(|e| tracing::warn!("not remounted ({options}): {e}"))?;
            tracing::info!("remounted: {options}");
            Ok(json!({ "remounted": true, "kept": kept }))
        }
        // For tests only: reports what a taken-over server cannot do.
        #[cfg(debug_assertions)]
        Some("taken over") => {
            let pid = request["pid"].as_u64().and_then(|pid| pid.try_into().ok());
            let path = |name: &str| Path::new(request[name].as_str().unwrap_or_default());
            let tried = stetfs_fuse::taken_over(stetfs_fuse::Victims {
                pid: pid.unwrap_or_default(),
                dir: path("dir"),
                other: path("other"),
            });
            let tried = tried
                .into_iter()
                .map(|(name, errno)| (name.to_owned(), json!(errno)));
            Ok(json!({ "tried": tried.collect::<serde_json::Map<_, _>>() }))
        }
        other => Err(Failure::new(
            Code::Usage,
            format!("the server knows no request {other:?}"),
        )),
    }
}

/// Aborts the process on a panic and for `errors=panic`, as in a crash: synced data is not lost,
/// and threads do not go on to write from a half-changed state.
fn abort_on_panic() {
    stetfs::low::set_panic_hook(|_| {
        log::finish();
        std::process::abort();
    });
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        tracing::error!("internal error (a bug): {info}; the next mount recovers the volume");
        log::finish();
        print(info);
        std::process::abort();
    }));
}

/// SIGTERM and SIGINT unmount; a second one does not wait for programs that still use the mount.
fn handle_signals(live: &Arc<Live>, daemon: bool) -> Result {
    let failed =
        |e: std::io::Error| Failure::new(Code::System, format!("cannot handle signals: {e}"));
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP]).map_err(failed)?;
    let seen = AtomicU32::new(0);
    let live = Arc::clone(live);
    let run = move || {
        for signal in signals.forever() {
            if signal == SIGHUP && daemon {
                continue;
            }
            if seen.fetch_add(1, Ordering::Relaxed) > 0 {
                tracing::warn!("second signal: ending the connection");
                if let Err(e) = live.mounted.abort() {
                    tracing::error!("cannot end the connection: {e}");
                }
                continue;
            }
            let name = signal_hook::low_level::signal_name(signal).unwrap_or("signal");
            tracing::info!("{name}: the volume is synced and unmounted");
            // Requests that wait for a thaw would block the unmount.
            if live.fs.frozen().is_some()
                && let Err(e) = live.fs.thaw()
            {
                tracing::error!("cannot thaw: {e}");
            }
            // The sender may be about to turn the machine off.
            if let Some(volume) = live.fs.volume() {
                volume.fs().sync_all(Box::new(|synced| {
                    if let Err(e) = synced {
                        tracing::error!("cannot sync: {e}");
                    }
                }));
            }
            if let Err(e) = live.mounted.unmount() {
                tracing::error!("{e}");
            }
        }
    };
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(run)
        .map_err(failed)?;
    Ok(())
}
