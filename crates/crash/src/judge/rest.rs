//! Oracle 10: files outside the scripts' directories stay as they were.

use stetfs::low::{FsOptions, ROOT_INO};

use super::finding::{Finding, Oracle, gone};
use super::recovery::opened;
use crate::machine::Crashed;
use crate::tree::Seen;
use crate::volume::DIRS;
use crate::work::{Rest, Work};

impl Work {
    /// Compares the files outside the scripts' directories with their state before the run.
    ///
    /// # Errors
    /// The difference.
    pub(super) fn check_rest(&self, seen: &Seen) -> Result<(), Finding> {
        let before = match self.rest.get() {
            Some(rest) => rest,
            None => {
                let rest = self.look_at_rest()?;
                self.rest.get_or_init(|| rest)
            }
        };
        for (ino, (path, node)) in before {
            match seen.nodes.get(ino) {
                Some(now) if now == node => {}
                Some(_) => {
                    return Err(Oracle::Promise.says(format!(
                        "{path} (inode {ino}) is not as it was, and nobody changed it"
                    )));
                }
                None => {
                    return Err(Oracle::Promise.says(format!(
                        "{path} (inode {ino}) is gone, and nobody removed it"
                    )));
                }
            }
        }
        Ok(())
    }

    fn look_at_rest(&self) -> Result<Rest, Finding> {
        let before = Crashed::of(self.base.image.fork());
        // The base volume was unmounted, so there is nothing to replay.
        let options = FsOptions {
            read_only: true,
            no_recovery: true,
            ..self.options.clone()
        };
        let fs = opened(&before, &options)?;
        let seen = Seen::capture(&fs).map_err(|e| Oracle::Opens.says(e));
        gone(fs)?;
        Ok(rest_of(&seen?))
    }
}

fn rest_of(seen: &Seen) -> Rest {
    let mut rest = Rest::new();
    let mut dirs = vec![(ROOT_INO, String::new())];
    while let Some((dir, path)) = dirs.pop() {
        let entries = seen.nodes.get(&dir).map(|node| &node.entries);
        for (name, ino) in entries.into_iter().flatten() {
            let is_worked_on = dir == ROOT_INO && DIRS.contains(&&**name);
            let path = format!("{path}/{name}");
            let Some(node) = seen.nodes.get(ino).filter(|_| !is_worked_on) else {
                continue;
            };
            dirs.push((*ino, path.clone()));
            rest.insert(*ino, (path, node.clone()));
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::setup::{JournalSpec, Shape};
    use crate::workload::cases;

    #[test]
    fn what_nobody_works_on_may_not_change() {
        let journal: JournalSpec = "ordered".parse().unwrap();
        let case = &cases("smoke", 1).unwrap()[0];
        let recording =
            crate::record::Recording::make(&journal, Shape::default(), case, 1).unwrap();
        let work = &recording.work;
        let rest = work.look_at_rest().unwrap();
        let names: Vec<&String> = rest.values().map(|(path, _)| path).collect();
        assert_eq!(names, ["/lost+found"]);
        let fs = opened(&work.machine(), &work.options).unwrap();
        let mut seen = Seen::capture(&fs).unwrap();
        work.check_rest(&seen).unwrap();
        let ino = *rest.keys().next().unwrap();
        seen.nodes.get_mut(&ino).unwrap().mode ^= 1;
        work.check_rest(&seen).unwrap_err();
        seen.nodes.remove(&ino);
        work.check_rest(&seen).unwrap_err();
    }
}
