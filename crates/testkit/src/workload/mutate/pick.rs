//! Random choices of paths.

use super::Mutator;

impl Mutator {
    pub(super) fn file(&mut self) -> Option<String> {
        let paths = self.model.files();
        let index = self.rng.usize(..paths.len().max(1));
        paths.get(index).map(|p| (*p).to_owned())
    }

    pub(super) fn directory(&mut self) -> Option<String> {
        let paths = self.model.directories();
        let index = self.rng.usize(..paths.len().max(1));
        paths.get(index).map(|p| (*p).to_owned())
    }

    pub(super) fn any(&mut self) -> Option<String> {
        let paths = self.model.all();
        let index = self.rng.usize(..paths.len().max(1));
        paths.get(index).map(|p| (*p).to_owned())
    }

    /// A path that does not exist, in an existing directory.
    pub(super) fn fresh(&mut self) -> Option<String> {
        let dir = self.directory()?;
        self.serial += 1;
        let leaf = format!(
            "{}{}",
            self.serial,
            "-long-name".repeat(self.rng.usize(..5))
        );
        Some(if dir.is_empty() {
            leaf
        } else {
            format!("{dir}/{leaf}")
        })
    }

    pub(super) fn not_symlink(&mut self) -> Option<String> {
        self.any().filter(|p| !self.model.is_symlink(p))
    }
}
