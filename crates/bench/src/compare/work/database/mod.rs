//! Database servers that are started for the time of a workload.

pub(super) mod mariadb;
pub(super) mod postgres;
mod server;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

pub(super) use server::Server;

/// The programs of a database system, and the user that runs them.
pub(super) struct Programs {
    /// The name of the system.
    name: &'static str,
    /// The directories of the programs.
    dirs: Vec<PathBuf>,
    /// The user, if this process is root.
    user: Option<User>,
}

struct User {
    name: String,
    uid: u32,
    gid: u32,
}

/// The directories of PATH.
fn path() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).collect()
}

impl Programs {
    /// The programs in `dirs`. The server refuses root, so root runs them as the first of `users`
    /// that exists.
    fn of(
        name: &'static str,
        dirs: Vec<PathBuf>,
        users: &[&str],
    ) -> std::result::Result<Self, String> {
        let user = if rustix::process::geteuid().is_root() {
            let table = fs::read_to_string("/etc/passwd").unwrap_or_default();
            let user = users.iter().find_map(|name| User::of(&table, name));
            let none = || {
                format!(
                    "{name} refuses root, and there is no user {}",
                    users.join(" or ")
                )
            };
            Some(user.ok_or_else(none)?)
        } else {
            None
        };
        Ok(Self { name, dirs, user })
    }

    /// The reason why the server's user has no access to this directory, if so.
    pub(super) fn cannot_reach(&self, dir: &Path) -> Option<String> {
        let user = self.user.as_ref()?;
        let closed = dir.ancestors().find(|a| user.is_kept_out_of(a))?;
        Some(format!(
            "{} refuses root, and the user {} cannot reach {}: {} is closed to it (chmod o+x opens it)",
            self.name,
            user.name,
            dir.display(),
            closed.display()
        ))
    }

    /// Gives a file to the server's user.
    fn give(&self, path: &Path) -> Result<()> {
        if let Some(user) = &self.user {
            std::os::unix::fs::chown(path, Some(user.uid), Some(user.gid))
                .with_context(|| format!("giving {} to {}", path.display(), user.name))?;
        }
        Ok(())
    }

    /// A command for one of the programs, as the server's user, with a clean environment.
    fn command(&self, program: &str) -> Command {
        let mut places = self.dirs.iter().map(|dir| dir.join(program));
        let found = places.find(|p| p.is_file());
        let mut command = Command::new(found.unwrap_or_else(|| program.into()));
        command
            .current_dir("/")
            .env_clear()
            .env("PATH", std::env::join_paths(&self.dirs).unwrap_or_default())
            .env("LC_ALL", "C")
            .stdin(Stdio::null());
        if let Some(user) = &self.user {
            command.uid(user.uid).gid(user.gid);
        }
        command
    }

    /// Makes a data directory, and lets `init` fill it.
    fn fill(&self, data: &Path, init: impl FnOnce() -> Result<()>) -> Result<()> {
        fs::create_dir(data)?;
        self.give(data)?;
        init().with_context(|| match &self.user {
            Some(user) => format!(
                "making a data directory as {} (a FUSE mount lets other users in with allow_other)",
                user.name
            ),
            None => "making a data directory".to_owned(),
        })
    }
}

impl User {
    /// The user of this name in a password table.
    fn of(table: &str, name: &str) -> Option<Self> {
        table.lines().find_map(|line| {
            let mut fields = line.split(':');
            (fields.next()? == name).then_some(())?;
            let mut number = |skip| fields.nth(skip)?.parse().ok();
            Some(Self {
                name: name.to_owned(),
                uid: number(1)?,
                gid: number(0)?,
            })
        })
    }

    fn is_kept_out_of(&self, dir: &Path) -> bool {
        let Ok(found) = fs::metadata(dir) else {
            return false;
        };
        let needed = if found.uid() == self.uid {
            0o100
        } else if found.gid() == self.gid {
            0o010
        } else {
            0o001
        };
        found.mode() & needed == 0
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn users_are_found_by_name() {
        let table = "root:x:0:0::/:/bin/sh\nnobody:x:65534:65533::/:/bin/false\nbroken:x:a:b\n";
        let nobody = User::of(table, "nobody").unwrap();
        assert_eq!((nobody.uid, nobody.gid), (65534, 65533));
        assert!(User::of(table, "postgres").is_none());
        assert!(User::of(table, "broken").is_none());
    }

    #[test]
    fn a_closed_directory_is_told_before() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("inner");
        fs::create_dir(&inner).unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let owner = fs::metadata(dir.path()).unwrap();
        let user = |uid, gid| Programs {
            name: "It",
            dirs: Vec::new(),
            user: Some(User {
                name: "someone".into(),
                uid,
                gid,
            }),
        };
        let reason = user(owner.uid() + 7, owner.gid() + 7)
            .cannot_reach(&inner)
            .unwrap();
        assert!(
            reason.contains("someone") && reason.contains("chmod o+x"),
            "{reason}"
        );
        assert_eq!(user(owner.uid(), owner.gid()).cannot_reach(&inner), None);
    }
}
