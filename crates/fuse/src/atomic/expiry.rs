//! The time limit of groups. A group that holds a file and changes nothing keeps all others from
//! writing it, so it is aborted.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use stetfs::low::Ino;

use super::AtomicFiles;

/// A mount whose groups have a time limit.
pub(crate) trait Watcher: Send + 'static {
    /// Whether groups may end now: not while their programs are kept from going on.
    fn is_due(&self) -> bool;

    /// These files are as they were before.
    fn ended(&self, files: &[Ino]);
}

/// The thread that ends groups without a change. It ends when this is dropped.
pub(crate) struct Expiry(Arc<AtomicFiles>);

impl Expiry {
    /// Starts it: groups may be without a change for as long as `limit`.
    ///
    /// # Errors
    /// There can be no thread.
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

    /// Waits for a group that may be over; whether there can be any more.
    fn wait_until_due(&self, limit: Duration) -> bool {
        let mut table = self.table.lock();
        while !table.is_over {
            // Nothing of a group is kept while it is waited for.
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

    /// Aborts the groups that were not changed for so long: gives their files.
    pub(super) fn expire(&self, limit: Duration) -> Vec<Ino> {
        let groups = AtomicFiles::groups(&self.table.lock());
        let mut ended = Vec::new();
        for group in groups.iter().filter(|group| group.idle() >= limit) {
            // Looked at again when nobody does anything with it: a write may have taken long.
            let files = self.break_if(group, |group| group.idle() >= limit);
            ended.extend(files.unwrap_or_default());
        }
        ended
    }

    /// Time begins anew for all of them: their programs could change nothing.
    pub(crate) fn touch_all(&self) {
        let groups = AtomicFiles::groups(&self.table.lock());
        groups.iter().for_each(|group| group.touch());
    }
}
