//! ACLs in their two forms: text in archives (`SCHILY.acl.access`, the short text form of acl(5)),
//! and the attribute value of ext4 (`posix_acl_xattr_header` of Linux).
//!
//! A text entry is `TAG:QUALIFIER:PERMISSIONS`; star and libarchive append the number of a named
//! user or group as a fourth field. Texts written here name users and groups by number.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;

/// `POSIX_ACL_XATTR_VERSION`.
const VERSION: u32 = 2;
/// Longest text, bytes: more than an attribute can express.
const TEXT_MOST: usize = 256 << 10;
/// The id of entries that name no user or group.
const NO_ID: u32 = u32::MAX;

const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// A kind of entry: its tag, whether it names a user or group, and the tag's word.
const TAGS: [(u16, bool, &str); 6] = [
    (USER_OBJ, false, "user"),
    (USER, true, "user"),
    (GROUP_OBJ, false, "group"),
    (GROUP, true, "group"),
    (MASK, false, "mask"),
    (OTHER, false, "other"),
];

/// The text of an ACL attribute; `None` if the value is not an ACL of this version.
pub(super) fn to_text(value: &[u8]) -> Option<String> {
    let (version, entries) = value.split_first_chunk()?;
    let (entries, rest) = entries.as_chunks::<8>();
    if u32::from_le_bytes(*version) != VERSION || !rest.is_empty() {
        return None;
    }
    let mut text = String::new();
    for [t0, t1, p0, p1, id @ ..] in entries {
        let (tag, rights) = (
            u16::from_le_bytes([*t0, *t1]),
            u16::from_le_bytes([*p0, *p1]),
        );
        let (_, named, word) = TAGS.into_iter().find(|(known, ..)| *known == tag)?;
        let comma = if text.is_empty() { "" } else { "," };
        let _ = write!(text, "{comma}{word}:");
        if named {
            let _ = write!(text, "{}", u32::from_le_bytes(*id));
        }
        text.push(':');
        for (bit, letter) in [(4, 'r'), (2, 'w'), (1, 'x')] {
            text.push(if rights & bit != 0 { letter } else { '-' });
        }
    }
    Some(text)
}

/// The attribute value of an ACL text.
///
/// # Errors
/// A sentence that says what is wrong with the text.
pub(super) fn from_text(text: &[u8]) -> Result<Vec<u8>, String> {
    let text = str::from_utf8(text).map_err(|_| "an ACL that is not text".to_owned())?;
    if text.len() > TEXT_MOST {
        return Err(format!("an ACL of {} bytes", text.len()));
    }
    let mut entries = Vec::new();
    for line in text.split([',', '\n']) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            entries.push(entry(line).ok_or_else(|| format!("an ACL with the entry {line:?}"))?);
        }
    }
    entries.sort_unstable();
    let mut value = VERSION.to_le_bytes().to_vec();
    for (tag, id, rights) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(rights.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    Ok(value)
}

/// Tag, number and permissions of a text entry.
fn entry(line: &str) -> Option<(u16, u32, u16)> {
    let mut fields = line.split(':').map(str::trim);
    let word = fields.next()?;
    let second = fields.next()?;
    // `mask::r-x`, and `mask:r-x` as Solaris writes it.
    let (name, rights) = match fields.next() {
        Some(rights) => (second, rights),
        None => ("", second),
    };
    let number = fields.next().and_then(|number| number.parse().ok());
    let (tag, named, _) = TAGS.into_iter().find(|(_, named, known)| {
        let is_short = word.len() == 1 && known.starts_with(word);
        (word == *known || is_short) && *named != name.is_empty()
    })?;
    let id = match named {
        false => NO_ID,
        true => number
            .or_else(|| name.parse().ok())
            .or_else(|| id_of(word, name))?,
    };
    let mut bits = 0;
    for letter in rights.chars() {
        bits |= match letter {
            'r' => 4,
            'w' => 2,
            'x' => 1,
            '-' => 0,
            _ => return None,
        };
    }
    Some((tag, id, bits))
}

/// The id of a name that comes without one, as on this host: GNU tar looks there, too.
fn id_of(word: &str, name: &str) -> Option<u32> {
    let file = match word.starts_with('u') {
        true => "/etc/passwd",
        false => "/etc/group",
    };
    let text = fs::read_to_string(file).ok()?;
    let numbers: HashMap<&str, &str> = text
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(':');
            Some((fields.next()?, fields.nth(1)?))
        })
        .collect();
    numbers.get(name)?.parse().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_say_the_same() {
        let text = "user::rw-,user:1000:rwx,group::r--,group:70000:r-x,mask::rwx,other::---";
        let value = from_text(text.as_bytes()).unwrap();
        assert_eq!(value.len(), 4 + 6 * 8);
        assert_eq!(to_text(&value).as_deref(), Some(text));
        // The text as other programs write it: in lines, in another order, with names and numbers.
        let other = "other::---\nmask::rwx\ngroup::r--\ngroup:staff:r-x:70000\n\
                     user:lisa:rwx:1000 # effective\nu::rw\n";
        assert_eq!(from_text(other.as_bytes()).unwrap(), value);
        let root = from_text(b"user:root:r--").unwrap();
        assert_eq!(to_text(&root).as_deref(), Some("user:0:r--"));
        for wrong in [
            "user",
            "user::rwz",
            "nobody::r--",
            "user:no-such-user-:r--",
            "mask:x:r--",
        ] {
            assert!(from_text(wrong.as_bytes()).is_err(), "{wrong}");
        }
        assert_eq!(to_text(b"\x01\0\0\0"), None);
        assert_eq!(to_text(&value[..21]), None);
    }
}
