//! Temporary directories that leave nothing behind.
//!
//! One directory per process, `stetfs-test-PID-…`, holds all scratch directories of its tests. A
//! *guardian* (a small shell process that only waits for this process to end) takes down mounts
//! that are still there and removes it: so a `kill -9` of the test leaves nothing either. What even
//! the guardian could not take down, [`reap`] finds by its name at the next start.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, anyhow};

use crate::mounts;

/// What the names of all our temporary directories begin with.
pub const PREFIX: &str = "stetfs-test-";

/// Waits until standard input ends (this process is gone), then takes down all mounts below `$1`
/// and removes it. `umount -l` is the last resort for a mount whose server is dead.
const GUARDIAN: &str = r#"
cat >/dev/null
for try in 1 2 3 4 5; do
    mounts=$(awk -v root="$1/" 'index($5, root) == 1 { print $5 }' /proc/self/mountinfo | tac)
    [ -z "$mounts" ] && break
    sleep 0.3
    echo "$mounts" | while read -r dir; do
        umount "$dir" 2>/dev/null || { [ "$try" -ge 3 ] && umount -l "$dir"; }
    done
done
rm -rf --one-file-system "$1"
"#;

struct ProcessRoot {
    path: PathBuf,
    // Its pipe closes when this process ends, which wakes the guardian. Never waited for.
    _guardian: Child,
}

type Root = OnceLock<std::result::Result<ProcessRoot, String>>;
static ROOT: Root = OnceLock::new();
static IN_MEMORY: Root = OnceLock::new();

/// Where temporary directories go: `$STETFS_TEST_DIR`, else the system's temporary directory.
fn base() -> PathBuf {
    std::env::var_os("STETFS_TEST_DIR").map_or_else(std::env::temp_dir, PathBuf::from)
}

/// A file system in memory that everybody may write to.
const SHM: &str = "/dev/shm";

/// The same for what is best kept in memory: `$STETFS_TEST_DIR`, else a file system in memory if
/// there is one.
fn base_in_memory() -> PathBuf {
    let shm = Path::new(SHM);
    match std::env::var_os("STETFS_TEST_DIR") {
        None if rustix::fs::access(shm, rustix::fs::Access::WRITE_OK).is_ok() => shm.into(),
        _ => base(),
    }
}

fn open_root(base: &Path) -> Result<ProcessRoot> {
    let base = base
        .canonicalize()
        .context("the directory for temporary files")?;
    reap(&base);
    let dir = tempfile::Builder::new()
        .prefix(&format!("{PREFIX}{}-", std::process::id()))
        .tempdir_in(&base)
        .with_context(|| format!("a temporary directory in {}", base.display()))?;
    let path = dir.keep();
    let guardian = Command::new("sh")
        .args(["-c", GUARDIAN, "stetfs-test-guardian"])
        .arg(&path)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0) // Ctrl-C in the terminal must not reach it
        .spawn()
        .context("the guardian of the temporary directory")?;
    Ok(ProcessRoot {
        path,
        _guardian: guardian,
    })
}

fn open(root: &'static Root, base: fn() -> PathBuf) -> Result<&'static Path> {
    match root.get_or_init(|| open_root(&base()).map_err(|e| format!("{e:#}"))) {
        Ok(root) => Ok(&root.path),
        Err(e) => Err(anyhow!("{e}")),
    }
}

/// Takes down what earlier processes of ours left in `base`: directories named after a process that
/// no longer runs. Errors are ignored: the next run tries again.
pub fn reap(base: &Path) {
    let Ok(entries) = fs::read_dir(base) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(rest) = name.to_str().and_then(|n| n.strip_prefix(PREFIX)) else {
            continue;
        };
        let Some(pid) = rest.split('-').next().and_then(|p| p.parse::<u32>().ok()) else {
            continue;
        };
        if Path::new("/proc").join(pid.to_string()).exists() {
            continue;
        }
        mounts::detach_below(&entry.path());
        // A mount that is still there makes this fail with EBUSY before anything in it is touched:
        // its mount point is a directory that cannot be removed, and we removed none of its
        // content.
        if mounts::mounts_below(&entry.path()).is_empty() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// A temporary directory below the process's own, removed when dropped.
#[derive(Debug)]
pub struct Scratch {
    dir: tempfile::TempDir,
}

impl Scratch {
    /// Makes an empty directory whose name begins with `label`.
    pub fn new(label: &str) -> Result<Self> {
        Self::within(open(&ROOT, base)?, label)
    }

    /// The same in memory, if this machine has a file system for that.
    pub fn in_memory(label: &str) -> Result<Self> {
        Self::within(open(&IN_MEMORY, base_in_memory)?, label)
    }

    fn within(root: &Path, label: &str) -> Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix(&format!("{label}-"))
            .tempdir_in(root)
            .with_context(|| format!("a scratch directory in {}", root.display()))?;
        Ok(Self { dir })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Lets other users pass through it, to what they know the name of.
    pub fn open_to_others(&self) -> Result<()> {
        for dir in self.path().ancestors().take(2) {
            fs::set_permissions(dir, fs::Permissions::from_mode(0o711))
                .with_context(|| format!("opening {} to others", dir.display()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::path::{Path, PathBuf};
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use crate::mounts::is_mounted;
    use crate::{Image, Mkfs, Mounter};

    fn mounted() -> (Image, crate::Mounted) {
        let image = Image::make(32 << 20, &Mkfs::new()).unwrap();
        let mount = Mounter::ext4("").mount(image.path()).unwrap();
        (image, mount)
    }

    #[test]
    fn a_panic_takes_everything_down() {
        let (send, receive) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let (image, mount) = mounted();
            assert!(is_mounted(mount.path()));
            send.send((
                image.dir().to_owned(),
                mount.path().to_owned(),
                mount.device().unwrap().to_owned(),
            ))
            .unwrap();
            panic!("on purpose");
        });
        assert!(thread.join().is_err());
        let (image, mount, device) = receive.recv().unwrap();
        assert!(!image.exists() && !mount.exists() && !is_mounted(&mount));
        // Its number may be another test's by now; what is behind it must not be our image.
        let name = device.file_name().unwrap();
        let behind = Path::new("/sys/block").join(name).join("loop/backing_file");
        let behind = std::fs::read_to_string(behind).unwrap_or_default();
        assert!(
            !Path::new(behind.trim_end()).starts_with(&image),
            "{} is still attached to {behind}",
            device.display()
        );
    }

    /// Not a test by itself: the process that the next one kills.
    #[test]
    #[ignore = "run by a_killed_process_leaves_nothing"]
    fn holds_a_mount_until_killed() {
        let (image, mount) = mounted();
        println!(
            "\nHOLDS {} {}",
            image.dir().display(),
            mount.path().display()
        );
        std::thread::sleep(Duration::from_secs(60));
    }

    #[test]
    fn a_killed_process_leaves_nothing() {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "scratch::tests::holds_a_mount_until_killed",
                "--ignored",
                "--nocapture",
            ])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let line = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .map_while(Result::ok)
            .find(|l| l.starts_with("HOLDS "))
            .expect("the child mounts");
        let paths: Vec<PathBuf> = line.split(' ').skip(1).map(PathBuf::from).collect();
        assert!(is_mounted(&paths[1]));
        child.kill().unwrap();
        child.wait().unwrap();
        let root = paths[0].parent().unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while root.exists() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(
            !is_mounted(&paths[1]),
            "{} is still mounted",
            paths[1].display()
        );
        assert!(!root.exists(), "{} is still there", root.display());
    }
}
