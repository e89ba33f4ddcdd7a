//! PAX headers (POSIX.1, pax, "pax Extended Header"): records with facts about an entry for which
//! its header has no room.
//!
//! A record is `LENGTH KEYWORD=VALUE\n`; its length says where it ends, and the value may be any
//! bytes. (The crate tar ends a record at its first newline.) Attributes come in the forms of GNU
//! tar, libarchive and star, holes in GNU tar's three forms (`GNU.sparse.`, its manual's "Sparse
//! Formats").

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::acl;
use crate::files::base64;
use crate::files::tree::Xattr;

/// The prefix of an attribute's name, as GNU tar, bsdtar and container runtimes write it.
const XATTR: &str = "SCHILY.xattr.";
/// The prefix of an attribute's name in percent-encoding, with its value in Base64.
const LIBARCHIVE: &str = "LIBARCHIVE.xattr.";
/// The keywords of ACLs as text, with the attributes that hold them.
const ACLS: [(&str, &str); 2] = [
    ("SCHILY.acl.access", "system.posix_acl_access"),
    ("SCHILY.acl.default", "system.posix_acl_default"),
];
/// The keyword of the SELinux label, which lacks the zero that ends the attribute.
const LABEL: &str = "RHT.security.selinux";
const SELINUX: &str = "security.selinux";
/// The prefix of the keywords about holes.
const HOLES: &[u8] = b"GNU.sparse.";

/// The records of an entry.
#[derive(Clone, Debug, Default)]
pub(super) struct Pax {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    /// The size of the stored data, bytes.
    pub(super) size: Option<u64>,
    pub(super) uid: Option<u64>,
    pub(super) gid: Option<u64>,
    pub(super) modified: Option<SystemTime>,
    xattrs: BTreeMap<OsString, Vec<u8>>,
    pub(super) sparse: Sparse,
    /// Attributes that cannot be read: a sentence for each.
    pub(super) unread: Vec<String>,
}

/// Records about holes.
#[derive(Clone, Debug, Default)]
pub(super) struct Sparse {
    /// Size of the file, bytes.
    pub(super) size: Option<u64>,
    /// Offsets and lengths of data in turn (forms 0.0 and 0.1).
    pub(super) map: Vec<u64>,
    /// The map stands before the data (form 1.0).
    pub(super) map_in_data: bool,
    name: Option<Vec<u8>>,
}

fn wrong(key: &[u8]) -> io::Error {
    let key = String::from_utf8_lossy(key);
    io::Error::other(format!("a PAX header with an invalid {key}"))
}

/// A number in decimal.
pub(super) fn number(text: &[u8]) -> Option<u64> {
    let digits = text.iter().all(u8::is_ascii_digit);
    str::from_utf8(text).ok().filter(|_| digits)?.parse().ok()
}

/// Splits off the next record: keyword, value and the bytes that follow.
fn record(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = bytes.iter().take(20).position(|b| *b == b' ')?;
    let length = usize::try_from(number(bytes.get(..space)?)?).ok()?;
    let (record, rest) = bytes.split_at_checked(length)?;
    let text = record.get(space + 1..)?.strip_suffix(b"\n")?;
    let equals = text.iter().position(|b| *b == b'=')?;
    Some((text.get(..equals)?, text.get(equals + 1..)?, rest))
}

impl Pax {
    /// Adds the records of a header; of two records with one keyword the last counts.
    ///
    /// # Errors
    /// A record is torn, or its value is invalid.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while bytes.iter().any(|b| *b != 0) {
            let torn = || io::Error::other("a truncated PAX header");
            let (key, value, rest) = record(bytes).ok_or_else(torn)?;
            self.add(key, value).ok_or_else(|| wrong(key))?;
            bytes = rest;
        }
        Ok(())
    }

    /// Adds a record; `None` if its value is invalid.
    fn add(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        match key {
            b"path" => self.path = Some(value.to_vec()),
            b"linkpath" => self.link = Some(value.to_vec()),
            b"size" => self.size = Some(number(value)?),
            b"uid" => self.uid = Some(number(value)?),
            b"gid" => self.gid = Some(number(value)?),
            b"mtime" => self.modified = Some(time(str::from_utf8(value).ok()?)?),
            _ => match key.strip_prefix(HOLES) {
                Some(key) => self.sparse.add(key, value)?,
                None => self.attribute(key, value),
            },
        }
        Some(())
    }

    fn attribute(&mut self, key: &[u8], value: &[u8]) {
        let name = |name: Vec<u8>| OsString::from_vec(name);
        if let Some((key, attribute)) = ACLS.iter().find(|(known, _)| key == known.as_bytes()) {
            match acl::from_text(value) {
                Ok(value) => drop(self.xattrs.insert(attribute.into(), value)),
                Err(e) => self.unread.push(format!("{key}: {e}")),
            }
        } else if key == LABEL.as_bytes() {
            self.xattrs.insert(SELINUX.into(), [value, b"\0"].concat());
        } else if let Some(encoded) = key.strip_prefix(XATTR.as_bytes()) {
            // GNU tar encodes these two characters; no other program does.
            let decoded = decoded(encoded, |b| matches!(b, b'%' | b'='));
            self.xattrs.insert(name(decoded), value.to_vec());
        } else if let Some(encoded) = key.strip_prefix(LIBARCHIVE.as_bytes()) {
            match base64::decode(value) {
                Some(value) => drop(self.xattrs.insert(name(decoded(encoded, |_| true)), value)),
                None => {
                    let key = String::from_utf8_lossy(key);
                    self.unread
                        .push(format!("{key}: a value that is not Base64"));
                }
            }
        }
    }

    /// The name of the entry, if a record has it.
    pub(super) fn name(&self) -> Option<&[u8]> {
        self.sparse.name.as_deref().or(self.path.as_deref())
    }

    /// The extended attributes, in the order of their names.
    pub(super) fn xattrs(self) -> Vec<Xattr> {
        self.xattrs.into_iter().collect()
    }
}

impl Sparse {
    /// Adds a record; `None` if its value is invalid.
    fn add(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        match key {
            b"size" | b"realsize" => self.size = Some(number(value)?),
            b"offset" | b"numbytes" => self.map.push(number(value)?),
            b"map" => {
                let numbers = value.split(|b| *b == b',').map(number);
                self.map = numbers.collect::<Option<_>>()?;
            }
            b"name" => self.name = Some(value.to_vec()),
            b"major" => self.map_in_data = number(value)? == 1,
            // `minor` and `numblocks` are not needed.
            _ => {}
        }
        Some(())
    }
}

/// A name with `%XX` decoded, for the bytes that `is_encoded` names.
fn decoded(name: &[u8], is_encoded: impl Fn(u8) -> bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((first, tail)) = rest.split_first() {
        let code = tail.get(..2).filter(|_| *first == b'%');
        let byte = code.and_then(|code| u8::from_str_radix(str::from_utf8(code).ok()?, 16).ok());
        match byte.filter(|b| is_encoded(*b)) {
            Some(byte) => {
                out.push(byte);
                rest = tail.get(2..).unwrap_or_default();
            }
            None => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    out
}

/// Seconds since 1970, possibly with a fraction.
fn time(text: &str) -> Option<SystemTime> {
    let (sign, text) = match text.strip_prefix('-') {
        Some(text) => (true, text),
        None => (false, text),
    };
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let nanos = format!("{:0<9}", fraction.get(..9).unwrap_or(fraction));
    let span = Duration::new(seconds.parse().ok()?, nanos.parse().ok()?);
    match sign {
        true => UNIX_EPOCH.checked_sub(span),
        false => UNIX_EPOCH.checked_add(span),
    }
}

/// The bytes of records to be written.
#[derive(Debug, Default)]
pub(super) struct Records(Vec<u8>);

impl Records {
    pub(super) fn add(&mut self, key: &[u8], value: &[u8]) {
        // The blank, the equals sign and the newline.
        let rest = key.len() + value.len() + 3;
        // The length counts its own digits.
        let mut length = rest + 1;
        while length != rest + length.to_string().len() {
            length = rest + length.to_string().len();
        }
        self.0.extend(format!("{length} ").into_bytes());
        self.0.extend_from_slice(key);
        self.0.push(b'=');
        self.0.extend_from_slice(value);
        self.0.push(b'\n');
    }

    /// Adds an extended attribute, in the form that most programs read.
    pub(super) fn add_xattr(&mut self, (name, value): &Xattr) {
        let name = name.as_encoded_bytes();
        let acl = ACLS
            .iter()
            .find(|(_, attribute)| name == attribute.as_bytes());
        if let Some((key, text)) = acl.and_then(|(key, _)| Some((key, acl::to_text(value)?))) {
            return self.add(key.as_bytes(), text.as_bytes());
        }
        if let (true, Some(label)) = (name == SELINUX.as_bytes(), value.strip_suffix(b"\0")) {
            self.add(LABEL.as_bytes(), label);
        }
        let mut key = XATTR.as_bytes().to_vec();
        for byte in name {
            match byte {
                b'%' => key.extend_from_slice(b"%25"),
                b'=' => key.extend_from_slice(b"%3D"),
                byte => key.push(*byte),
            }
        }
        self.add(&key, value);
    }

    /// The bytes of all records; empty if there are none.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> io::Result<Pax> {
        let mut pax = Pax::default();
        pax.read(bytes).map(|()| pax)
    }

    #[test]
    fn values_end_where_their_length_says() {
        let mut records = Records::default();
        let xattrs = [
            ("user.a", &b"\n15 user.x=none\n"[..]),
            ("user.b=%3D", b"\n"),
            ("user.c", b""),
            ("security.selinux", b"label\0"),
        ]
        .map(|(name, value)| (OsString::from(name), value.to_vec()));
        for xattr in &xattrs {
            records.add_xattr(xattr);
        }
        // Lengths around an additional digit.
        for n in 85..100 {
            records.add(b"comment", &vec![b'x'; n]);
        }
        records.add(b"size", b"7");
        let pax = read(records.bytes()).unwrap();
        assert_eq!(pax.size, Some(7));
        let mut sorted = xattrs.to_vec();
        sorted.sort_unstable();
        assert_eq!(pax.xattrs(), sorted);
        for torn in [
            &b"9 size=7"[..],
            b"99 size=7\n",
            b"x",
            b"8 size=7\n",
            b" size=7\n",
        ] {
            assert!(read(torn).is_err(), "{torn:?}");
        }
        assert!(read(b"10 size=x\n").is_err());
    }

    #[test]
    fn attributes_are_read_in_each_form() {
        let mut records = Records::default();
        records.add(b"LIBARCHIVE.xattr.user.caf%C3%A9", b"Cg");
        records.add(b"SCHILY.xattr.user.100%", b"%41");
        records.add(b"RHT.security.selinux", b"label");
        records.add(b"SCHILY.acl.access", b"user::rw-\ngroup::r--\nother::---");
        records.add(b"SCHILY.acl.default", b"nonsense");
        let pax = read(records.bytes()).unwrap();
        assert_eq!(pax.unread.len(), 1, "{:?}", pax.unread);
        let xattrs = pax.xattrs();
        assert_eq!(xattrs.len(), 4);
        for (name, value) in [
            ("user.caf\u{e9}", &b"\n"[..]),
            ("user.100%", b"%41"),
            ("security.selinux", b"label\0"),
        ] {
            let found = xattrs.iter().find(|(known, _)| known == name);
            assert_eq!(found.map(|(_, value)| value.as_slice()), Some(value));
        }
    }

    #[test]
    fn times_have_fractions() {
        let after = |s, n| Some(UNIX_EPOCH + Duration::new(s, n));
        assert_eq!(time("12"), after(12, 0));
        assert_eq!(time("12.5"), after(12, 500_000_000));
        assert_eq!(time("12.1234567891"), after(12, 123_456_789));
        assert_eq!(time("-1.5"), Some(UNIX_EPOCH - Duration::from_millis(1500)));
        assert_eq!(time("soon"), None);
    }
}
