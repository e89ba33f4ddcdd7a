//! The kernel's switch for FUSE over io_uring.
//!
//! The kernel looks at it when it offers the transport (mount(2) sends INIT) and when it takes the
//! answer to that offer; a connection that has it keeps it (decisions/0018). So it is turned on for
//! that moment, and put back. It is the whole machine's: a lock keeps mounts from undoing each
//! other's, and a note in the lock's file says what it was, for the next one, should a server be
//! killed in between.

use std::fs::{DirBuilder, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

/// The switch (Linux 6.14 and newer; off at first).
pub(crate) const PATH: &str = "/sys/module/fuse/parameters/enable_uring";
/// The lock, with the note.
const LOCK: &str = "/run/stetfs/enable_uring.lock";
/// In the note: it was off.
const WAS_OFF: &str = "N\n";
/// How long another mount's moment is waited for. It takes milliseconds.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The switch and its lock.
struct Switch {
    path: PathBuf,
    lock: PathBuf,
}

/// The switch is on while this is held, and then again what it was.
#[derive(Debug)]
pub(crate) struct Moment {
    path: PathBuf,
    /// It was off, and is put back: the switch, open, as this process may not be allowed to open
    /// it then, and its lock.
    back: Option<(File, File)>,
}

/// Whether the kernel has it.
pub(crate) fn is_known() -> bool {
    system().is_on().is_ok()
}

/// Whether it is on.
pub(crate) fn is_on() -> bool {
    system().is_on().unwrap_or_default()
}

/// Turns it on for the moment.
///
/// # Errors
/// The kernel has no switch, this process may not write it, or another mount holds it for long.
pub(crate) fn for_a_moment() -> io::Result<Moment> {
    system().for_a_moment()
}

/// Turns it on for good.
///
/// # Errors
/// As [`for_a_moment`].
pub(crate) fn for_good() -> io::Result<()> {
    let switch = system();
    let lock = switch.locked()?;
    std::fs::write(&switch.path, "Y")?;
    lock.set_len(0)
}

/// Puts it back if a server that is gone left it on.
pub fn mend_switch() {
    let switch = system();
    // Without the note nobody was killed there.
    if switch.lock.metadata().is_ok_and(|m| m.len() > 0)
        && let Ok(mut lock) = switch.locked()
        && let Err(e) = switch.mend(&mut lock)
    {
        tracing::warn!("cannot put {PATH} back: {e}");
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

    /// The lock's file, locked.
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

    /// Puts it back if the note says that somebody who is gone turned it on.
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
        // Told first, as no lock is needed to see that there is none.
        self.is_on()?;
        let mut lock = self.locked()?;
        self.mend(&mut lock)?;
        let path = self.path.clone();
        if self.is_on()? {
            // Somebody wants it so; and nobody turns it off meanwhile but by hand.
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
            tracing::warn!("cannot put {} back: {e}", self.path.display());
        }
    }
}

fn put_back(switch: &File, lock: &File) -> io::Result<()> {
    switch.write_all_at(b"N", 0)?;
    // The last: whoever comes after a kill in between puts it back once more.
    lock.set_len(0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// A switch of our own, off, in a directory that goes with the second value.
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
        // What a kill leaves: the lock let go, the rest as it is.
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
