//! Users and groups by the volume's own /etc/passwd and /etc/group: names of the host mean other
//! numbers there.

use stetfs::Volume;

use crate::failure::{Code, Failure, Result};
use crate::ids;

/// Largest file of accounts that is read, bytes.
const LARGEST: u64 = 64 << 20;

/// The file and the field of the numbers.
const USERS: (&str, usize) = ("/etc/passwd", 2);
const GROUPS: (&str, usize) = ("/etc/group", 2);
/// The field of /etc/passwd with a user's group.
const GROUP_OF_USER: (&str, usize) = ("/etc/passwd", 3);

/// An owner and a group, as far as they are named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Ids {
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
}

/// Reads `OWNER`, `OWNER:GROUP`, `:GROUP` or `OWNER:`.
///
/// # Errors
/// A name is not in the volume's files.
pub(super) fn owner(volume: &Volume, text: &str) -> Result<Ids> {
    let (user, group) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (text, None),
    };
    let uid = match user {
        "" => None,
        user => Some(id(volume, USERS, "user", user)?),
    };
    let gid = match (group, uid) {
        (Some(""), Some(uid)) => Some(group_of(volume, user, uid)?),
        (None | Some(""), _) => None,
        (Some(group), _) => Some(id(volume, GROUPS, "group", group)?),
    };
    Ok(Ids { uid, gid })
}

/// Reads a group.
///
/// # Errors
/// The name is not in the volume's file.
pub(super) fn group(volume: &Volume, text: &str) -> Result<Ids> {
    let gid = match text {
        "" => None,
        text => Some(id(volume, GROUPS, "group", text)?),
    };
    Ok(Ids { uid: None, gid })
}

/// The name of a user of the volume, and that of a group.
pub(super) fn names_of(volume: &Volume, uid: u32, gid: u32) -> (Option<String>, Option<String>) {
    let name = |(path, field): (&str, usize), id: u32| {
        let text = read(volume, path)?;
        ids::lines(&text, field)
            .find(|(_, number)| *number == id)
            .map(|(name, _)| name.to_owned())
    };
    (name(USERS, uid), name(GROUPS, gid))
}

fn read(volume: &Volume, path: &str) -> Option<String> {
    let is_small = volume.metadata(path).ok()?.len() <= LARGEST;
    let bytes = volume.read(path).ok().filter(|_| is_small)?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The number of a name; a number stands for itself unless it is a name, too.
fn id(volume: &Volume, (path, field): (&str, usize), kind: &str, text: &str) -> Result<u32> {
    let number = |text: &str| text.parse().ok().filter(|id| *id != u32::MAX);
    let found = match text.strip_prefix('+') {
        Some(digits) => number(digits),
        None => named(volume, path, field, text).or_else(|| number(text)),
    };
    found.ok_or_else(|| {
        let message = format!("there is no {kind} {text:?} in the volume's {path}");
        Failure::new(Code::Usage, message)
            .hint("give the number: names of the host mean nothing in the volume")
    })
}

fn named(volume: &Volume, path: &str, field: usize, name: &str) -> Option<u32> {
    let text = read(volume, path)?;
    let mut found = ids::lines(&text, field).filter(|(known, _)| *known == name);
    found.next().map(|(_, id)| id)
}

fn group_of(volume: &Volume, user: &str, uid: u32) -> Result<u32> {
    let (path, field) = GROUP_OF_USER;
    let by_number = || names_of(volume, uid, 0).0;
    named(volume, path, field, user)
        .or_else(|| named(volume, path, field, &by_number()?))
        .ok_or_else(|| {
            let message = format!("the volume's {path} has no group of the user {user:?}");
            Failure::new(Code::Usage, message).hint("name the group: OWNER:GROUP")
        })
}
