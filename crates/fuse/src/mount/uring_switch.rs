//! The kernel's switch for FUSE over io_uring.
//!
//! The kernel reads the switch when it offers the transport (mount(2) sends INIT) and when it
//! accepts the answer to that offer; a connection keeps the transport then (decisions/0018). So the
//! switch is turned on for that moment, and restored. It applies to the whole machine: a lock keeps
//! mounts from undoing each other's change. A note in the lock's file holds the old value, so that
//! the next mount can restore it if a server is killed in between.

use std::fs::{DirBuilder, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

/// The switch (Linux 6.14 and newer; off by default).
pub(crate) const PATH: &str = "/sys/module/fuse/parameters/enable_uring";
/// The lock file, with the note.
const LOCK: &str = "/run/stetfs/enable_uring.lock";
/// The note's content: the switch was off.
const WAS_OFF: &str = "N\n";
/// Time limit for waiting for another mount, which takes milliseconds.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The switch and its lock.
struct Switch {
    path: PathBuf,
    lock: PathBuf,
}

/// Keeps the switch on while it is held, and restores it then.
#[derive(Debug)]
pub(crate) struct Moment {
    path: PathBuf,
    /// The open switch and its lock, if the switch was off and has to be restored. It stays open as
    /// this process may not be allowed to open it later.
    back: Option<(File, File)>,
}

/// Whether the kernel has the switch.
pub(crate) fn is_known() -> bool {
    system().is_on().is_ok()
}

/// Whether the switch is on.
pub(crate) fn is_on() -> bool {
    system().is_on().unwrap_or_default()
}

/// Turns the switch on for the moment.
///
/// # Errors
/// The kernel has no switch, this process may not write it, or another mount holds the lock for
/// long.
pub(crate) fn for_a_moment() -> io::Result<Moment> {
    system().for_a_moment()
}

/// Turns the switch on permanently.
///
/// # Errors
/// The errors of [`for_a_moment`].
pub(crate) fn for_good() -> io::Result<()> {
    let switch = system();
    let lock = switch.locked()?;
    std::fs::write(&switch.path, "Y")?;
    lock.set_len(0)
}

/// Restores the switch if a killed server left it on.
pub fn mend_switch() {
    let switch = system();
    // Without the note no server was killed.
    if switch.lock.metadata().is_ok_and(|m| m.len() > 0)
        && let Ok(mut lock) = switch.locked()
        && let Err(e) = switch.mend(&mut lock)
    {
        tracing::warn!("cannot restore {PATH}: {e}");
    }
}

fn system() -> Switch {
    Switch {
        path: PATH.into(),
        lock: LOCK.into(),
    }
}

impl Switch {
    fn is_on(&self) -> io::Result<bool> {
        Ok(std::fs::read_to_string(&self.path)?.trim() == "Y")
    }

    /// Opens and locks the lock file.
    fn locked(&self) -> io::Result<File> {
        if let Some(dir) = self.lock.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        }
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&self.lock)?;
        let until = Instant::now() + TIMEOUT;
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(file),
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) if Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Restores the switch if the note says that a killed server turned it on.
    fn mend(&self, lock: &mut File) -> io::Result<()> {
        let mut note = String::new();
        lock.read_to_string(&mut note)?;
        if note == WAS_OFF {
            std::fs::write(&self.path, "N")?;
            lock.set_len(0)?;
        }
        Ok(())
    }

    fn for_a_moment(&self) -> io::Result<Moment> {
        // First, as no lock is needed to see that the kernel has no switch.
        self.is_on()?;
        let mut lock = self.locked()?;
        self.mend(&mut lock)?;
        let path = self.path.clone();
        if self.is_on()? {
            // It was turned on by the user, and only the user turns it off meanwhile.
            return Ok(Moment { path, back: None });
        }
        lock.rewind()?;
        lock.write_all(WAS_OFF.as_bytes())?;
        let switch = File::options().write(true).open(&path)?;
        let moment = Moment {
            path,
            back: Some((switch, lock)),
        };
        std::fs::write(&self.path, "Y")?;
        Ok(moment)
    }
}

impl Drop for Moment {
    fn drop(&mut self) {
        let Some((switch, lock)) = self.back.take() else {
            return;
        };
        let put = put_back(&switch, &lock);
        if let Err(e) = put {
            tracing::warn!("cannot restore {}: {e}", self.path.display());
        }
    }
}

fn put_back(switch: &File, lock: &File) -> io::Result<()> {
    switch.write_all_at(b"N", 0)?;
    // Last: after a kill in between, the next mount restores the switch once more.
    lock.set_len(0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A test's own switch, off, in a directory that is removed with the second value.
    fn switch(name: &str) -> (Switch, Gone) {
        let dir = std::env::temp_dir().join(format!("stetfs-switch-{name}-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let switch = Switch {
            path: dir.join("switch"),
            lock: dir.join("run/lock"),
        };
        std::fs::write(&switch.path, "N\n").unwrap();
        (switch, Gone(dir))
    }

    struct Gone(PathBuf);

    impl Drop for Gone {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn note(switch: &Switch) -> String {
        std::fs::read_to_string(&switch.lock).unwrap()
    }

    #[test]
    fn it_is_on_for_the_moment_and_then_what_it_was() {
        let (switch, _gone) = switch("moment");
        let moment = switch.for_a_moment().unwrap();
        assert!(switch.is_on().unwrap());
        assert_eq!(note(&switch), WAS_OFF);
        drop(moment);
        assert!(!switch.is_on().unwrap());
        assert_eq!(note(&switch), "");
        std::fs::write(&switch.path, "Y\n").unwrap();
        drop(switch.for_a_moment().unwrap());
        assert!(switch.is_on().unwrap(), "one that was on stays on");
    }

    #[test]
    fn two_mounts_take_turns() {
        let (switch, _gone) = switch("turns");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let moment = switch.for_a_moment().unwrap();
                        assert!(switch.is_on().unwrap());
                        drop(moment);
                    }
                });
            }
        });
        assert!(!switch.is_on().unwrap());
    }

    #[test]
    fn the_next_one_puts_back_what_a_killed_one_left() {
        let (switch, _gone) = switch("killed");
        // The state after a kill: the lock is free, the rest unchanged.
        let mut moment = switch.for_a_moment().unwrap();
        drop(moment.back.take());
        assert!(switch.is_on().unwrap());
        drop(switch.for_a_moment().unwrap());
        assert!(!switch.is_on().unwrap());
        assert_eq!(note(&switch), "");
    }

    #[test]
    fn a_kernel_without_it_says_so() {
        let (switch, _gone) = switch("none");
        std::fs::remove_file(&switch.path).unwrap();
        let refused = switch.for_a_moment().unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::NotFound);
        assert!(!switch.lock.exists(), "nothing was made for it");
    }
}
