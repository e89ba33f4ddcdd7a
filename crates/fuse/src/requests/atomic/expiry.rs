//! The time limit of groups. A group without changes keeps all other programs from writing its
//! files, so it is aborted after a while.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use stetfs::low::Ino;

use super::AtomicFiles;

/// A mount whose groups have a time limit.
pub(crate) trait Watcher: Send + 'static {
    /// Whether groups may expire now: not while their programs cannot continue.
    fn is_due(&self) -> bool;

    /// Called after these files got their old content back.
    fn ended(&self, files: &[Ino]);
}

/// The thread that aborts expired groups. It ends when this is dropped.
pub(crate) struct Expiry(Arc<AtomicFiles>);

impl Expiry {
    /// Starts the thread: groups may be without a change for `limit`.
    ///
    /// # Errors
    /// The thread could not be started.
    pub(crate) fn start(
        files: Arc<AtomicFiles>,
        limit: Duration,
        watcher: impl Watcher,
    ) -> io::Result<Expiry> {
        let its = Arc::clone(&files);
        std::thread::Builder::new()
            .name("fuse-atomic".to_owned())
            .spawn(move || its.watch(limit, &watcher))?;
        Ok(Expiry(files))
    }
}

impl Drop for Expiry {
    fn drop(&mut self) {
        self.0.table(|table| table.is_over = true);
        self.0.news.notify_all();
    }
}

impl AtomicFiles {
    fn watch(&self, limit: Duration, watcher: &impl Watcher) {
        while self.wait_until_due(limit) {
            match watcher.is_due() {
                true => watcher.ended(&self.expire(limit)),
                false => self.touch_all(),
            }
        }
    }

    /// Waits until a group may have expired; false once the mount has ended.
    fn wait_until_due(&self, limit: Duration) -> bool {
        let mut table = self.table.lock();
        while !table.is_over {
            // No reference to a group is kept during the wait.
            let writing = table.files.values();
            let left = writing.map(|writing| limit.saturating_sub(writing.group.idle()));
            match left.min() {
                None => self.news.wait(&mut table),
                Some(Duration::ZERO) => return true,
                Some(left) => {
                    let _ = self.news.wait_for(&mut table, left);
                }
            }
        }
        false
    }

    /// Aborts the groups without a change for `limit`: returns their files.
    pub(super) fn expire(&self, limit: Duration) -> Vec<Ino> {
        let groups = AtomicFiles::groups(&self.table.lock());
        let mut ended = Vec::new();
        for group in groups.iter().filter(|group| group.idle() >= limit) {
            // The condition is checked again under the group's lock: a write may have taken long.
            let files = self.break_if(group, |group| group.idle() >= limit);
            ended.extend(files.unwrap_or_default());
        }
        ended
    }

    /// Restarts the time limit of all groups: their programs could not change anything.
    pub(crate) fn touch_all(&self) {
        let groups = AtomicFiles::groups(&self.table.lock());
        groups.iter().for_each(|group| group.touch());
    }
}
