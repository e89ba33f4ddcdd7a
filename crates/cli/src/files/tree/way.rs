//! The path through a tree: directories that stay open while paths lead through them.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

/// Most directories open at a time: on the host each takes a descriptor.
const OPEN_MOST: usize = 1000;

/// The directories on the way to the last named file, the lowest [`OPEN_MOST`] of them. A directory
/// below one of them is one step away, so the time of a walk depends on the files it visits, not on
/// their depth.
pub(super) struct Way<D> {
    base: Rc<D>,
    /// The path of the last of them.
    path: Vec<u8>,
    /// Each directory below the one before it, with the length of its path.
    dirs: VecDeque<(usize, Rc<D>)>,
}

/// Whether `path` is `dir` or lies below it.
fn leads_through(path: &[u8], dir: &[u8]) -> bool {
    path.strip_prefix(dir)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

impl<D> Way<D> {
    pub(super) fn new(base: D) -> Way<D> {
        Way {
            base: Rc::new(base),
            path: Vec::new(),
            dirs: VecDeque::new(),
        }
    }

    pub(super) fn base(&self) -> &Rc<D> {
        &self.base
    }

    /// The directory at `path`, which consists of names joined by single slashes. `step` opens a
    /// directory by its name in the one above; it also gets the path.
    ///
    /// # Errors
    /// The errors of `step`.
    pub(super) fn dir<E>(
        &mut self,
        path: &Path,
        mut step: impl FnMut(&D, &OsStr, &Path) -> Result<D, E>,
    ) -> Result<Rc<D>, E> {
        let wanted = path.as_os_str().as_bytes();
        while !leads_through(wanted, &self.path) && self.dirs.pop_back().is_some() {
            self.path
                .truncate(self.dirs.back().map_or(0, |(length, _)| *length));
        }
        let known = if self.dirs.is_empty() {
            0
        } else {
            self.path.len()
        };
        let rest = wanted.get(known..).unwrap_or_default();
        let mut at = self.dirs.back().map_or(&self.base, |(_, dir)| dir).clone();
        for name in rest.split(|b| *b == b'/').filter(|name| !name.is_empty()) {
            let above = Path::new(OsStr::from_bytes(&self.path));
            at = Rc::new(step(&at, OsStr::from_bytes(name), above)?);
            if !self.path.is_empty() {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(name);
            self.dirs.push_back((self.path.len(), Rc::clone(&at)));
            if self.dirs.len() > OPEN_MOST {
                // A later path to a dropped directory starts at the base again, once per so many
                // levels.
                self.dirs.pop_front();
            }
        }
        Ok(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Walks to `path`; returns the number of steps.
    fn steps(way: &mut Way<String>, path: &str) -> usize {
        let mut taken = 0;
        let at = way.dir(Path::new(path), |dir, name, _| {
            taken += 1;
            Ok::<_, ()>(format!("{dir}/{}", name.display()))
        });
        let expected = if path.is_empty() {
            String::new()
        } else {
            format!("/{path}")
        };
        assert_eq!(at.as_deref(), Ok(&expected));
        taken
    }

    #[test]
    fn only_what_is_not_open_takes_a_step() {
        let mut way = Way::new(String::new());
        for (path, expected) in [
            ("", 0),
            ("a", 1),
            ("a/b/c", 2),
            ("a/b", 0),
            ("a/b/c", 1),
            ("a/bb", 1),
            ("a/b", 1),
            ("b", 1),
            ("", 0),
            ("a", 1),
        ] {
            assert_eq!(steps(&mut way, path), expected, "{path}");
        }
    }

    #[test]
    fn of_a_long_way_the_end_stays_open() {
        let mut way = Way::new(String::new());
        let path = |depth: usize| vec!["d"; depth].join("/");
        assert_eq!(steps(&mut way, &path(2500)), 2500);
        assert_eq!(way.dirs.len(), OPEN_MOST);
        // On the way up, directories that are no longer open are opened again.
        let all: usize = (1..2500)
            .rev()
            .map(|depth| steps(&mut way, &path(depth)))
            .sum();
        assert_eq!(all, 1500 + 500);
        assert_eq!(steps(&mut way, ""), 0);
    }
}
