//! Temporary directories that are removed in any case.
//!
//! One directory per process, `stetfs-test-PID-…`, holds all scratch directories of its tests. A
//! *guardian*, a small shell process, waits for the end of this process, then takes down remaining
//! mounts and removes the directory; so even `kill -9` of the test leaves nothing. If the guardian
//! fails, too, [`reap`] finds the directory by its name at the next start.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, anyhow};

use crate::mounts;

/// Prefix of the names of all temporary directories of tests.
pub const PREFIX: &str = "stetfs-test-";

/// The guardian's script: waits until standard input ends (when this process ends), then takes down
/// all mounts below `$1` and removes it. `umount -l` is the last resort for a mount whose server is
/// dead.
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
    // The guardian, which wakes when this process ends and its pipe closes. It is never waited for.
    _guardian: Child,
}

type Root = OnceLock<std::result::Result<ProcessRoot, String>>;
static ROOT: Root = OnceLock::new();
static IN_MEMORY: Root = OnceLock::new();

/// The place for temporary directories: `$STETFS_TEST_DIR`, else the system's temporary directory.
fn base() -> PathBuf {
    std::env::var_os("STETFS_TEST_DIR").map_or_else(std::env::temp_dir, PathBuf::from)
}

/// A file system in memory that every user can write to.
const SHM: &str = "/dev/shm";

/// The place for temporary directories in memory: `$STETFS_TEST_DIR`, else a file system in memory
/// if there is one, else the system's temporary directory.
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

/// Removes what earlier test processes left in `base`: directories named after a process that no
/// longer runs. Errors are ignored, because the next start tries again.
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
        // A remaining mount makes this fail with EBUSY before any of its content is touched: its
        // mount point cannot be removed, and no content was removed before.
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

    /// Makes such a directory in memory, if this machine has a file system in memory.
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

    /// Lets other users pass through the directory to paths that they know.
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
        // Another test may use the number by now, but not with our image behind it.
        let name = device.file_name().unwrap();
        let behind = Path::new("/sys/block").join(name).join("loop/backing_file");
        let behind = std::fs::read_to_string(behind).unwrap_or_default();
        assert!(
            !Path::new(behind.trim_end()).starts_with(&image),
            "{} is still attached to {behind}",
            device.display()
        );
    }

    /// Not a test by itself: the process that the next test kills.
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
