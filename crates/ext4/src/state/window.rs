//! The inode's side of its window: the space that is set aside for a growing file.

/// The inode's side of its window: the group that holds it, and the size of the next one.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// The group, if there is a window. The window may have been taken away meanwhile.
    pub(crate) group: Option<u32>,
    /// Clusters of the next window.
    pub(crate) next: u32,
    /// No window is set aside yet: the last close of the file cannot be seen here, and the file has
    /// not shown that it grows.
    pub(crate) waits: bool,
}
