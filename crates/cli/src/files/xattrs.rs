//! `setfattr` and `getfattr`.

use std::ffi::{OsStr, OsString};
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde_json::{Value, json};
use stetfs::Volume;

use super::args::{Encoding, GetfattrArgs, SetfattrArgs};
use super::base64;
use super::below::{Top, each_below};
use super::failed::output;
use super::tree::{Inside, Xattr};
use super::troubles::Troubles;
use super::volumes::{Use, change_each, each};
use crate::failure::{Code, Failure, Result};

/// Runs `stetfs setfattr`.
pub(super) fn set(args: &SetfattrArgs, json: bool) -> Result<Code> {
    let said = args.value.as_deref().unwrap_or_default();
    let value = value(said.as_bytes()).ok_or_else(|| {
        let message = format!("{} is no value of an attribute", said.display());
        Failure::new(Code::Usage, message)
            .hint("write text, \"text\", 0x and hexadecimal digits, or 0s and Base64")
    })?;
    change_each(&args.inside, "changed", json, |volume, path, _| {
        if let Some(name) = &args.remove {
            return remove(args, volume, path, name);
        }
        let name = args.name.as_deref().unwrap_or_default();
        let done = match args.no_dereference {
            true => volume.set_symlink_xattr(path, name, &value),
            false => volume.set_xattr(path, name, &value),
        };
        Ok(done?)
    })
}

fn remove(args: &SetfattrArgs, volume: &Volume, path: &Path, name: &OsStr) -> Result {
    let found = match args.no_dereference {
        true => volume.symlink_xattr(path, name)?,
        false => volume.xattr(path, name)?,
    };
    if found.is_none() {
        let message = format!("{} has no attribute {}", path.display(), name.display());
        return Err(Failure::new(Code::NotFound, message));
    }
    if args.no_dereference && volume.symlink_metadata(path)?.is_symlink() {
        let message = format!("cannot take an attribute from the link {}", path.display());
        return Err(Failure::new(Code::Usage, message));
    }
    Ok(volume.remove_xattr(path, name)?)
}

/// The bytes of a value: as text, in quotes with escapes, as `0x…` or as `0s…`.
fn value(said: &[u8]) -> Option<Vec<u8>> {
    match said {
        [b'0', b'x' | b'X', digits @ ..] => {
            let (pairs, rest) = digits.as_chunks::<2>();
            let byte = |pair: &[u8; 2]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
            let is_hex = rest.is_empty() && digits.iter().all(u8::is_ascii_hexdigit);
            pairs
                .iter()
                .map(byte)
                .collect::<Option<Vec<_>>>()
                .filter(|_| is_hex)
        }
        [b'0', b's' | b'S', digits @ ..] => base64::decode(digits),
        [b'"', text @ .., b'"'] => unescaped(text),
        text => unescaped(text),
    }
}

/// Resolves `\\`, `\"` and `\NNN` (octal).
fn unescaped(text: &[u8]) -> Option<Vec<u8>> {
    let (mut bytes, mut rest) = (Vec::new(), text);
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        match rest {
            [
                a @ b'0'..=b'3',
                b @ b'0'..=b'7',
                c @ b'0'..=b'7',
                behind @ ..,
            ] => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = behind;
            }
            [escaped @ (b'\\' | b'"'), behind @ ..] => {
                bytes.push(*escaped);
                rest = behind;
            }
            _ => return None,
        }
    }
    Some(bytes)
}

/// A value as getfattr(1) shows it.
fn shown(value: &[u8], encoding: Option<Encoding>) -> String {
    // A zero at the end is part of many texts.
    let body = value.strip_suffix(b"\0").unwrap_or(value);
    let is_text = str::from_utf8(body).is_ok_and(|text| !text.contains(char::is_control));
    let encoding = encoding.unwrap_or(match is_text {
        true => Encoding::Text,
        false => Encoding::Base64,
    });
    match encoding {
        Encoding::Hex => value.iter().fold("0x".to_owned(), |mut text, byte| {
            text.push_str(&format!("{byte:02x}"));
            text
        }),
        Encoding::Base64 => format!("0s{}", base64::encode(value)),
        Encoding::Text => {
            let mut text = String::from("\"");
            for chunk in value.utf8_chunks() {
                for c in chunk.valid().chars() {
                    match c {
                        '"' | '\\' => text.extend(['\\', c]),
                        c if c.is_ascii_control() => {
                            text.push_str(&format!("\\{:03o}", u32::from(c)));
                        }
                        c => text.push(c),
                    }
                }
                for byte in chunk.invalid() {
                    text.push_str(&format!("\\{byte:03o}"));
                }
            }
            text.push('"');
            text
        }
    }
}

/// The attributes of a file that are shown, with their values.
struct Shown {
    path: std::path::PathBuf,
    all: Vec<Xattr>,
}

/// Runs `stetfs getfattr`.
pub(super) fn get(args: &GetfattrArgs, json: bool) -> Result<Code> {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut listed: Vec<Value> = Vec::new();
    let mut written = Ok(());
    let mut troubles = Troubles::default();
    each(&args.inside, Use::Read, |volume, path| {
        let mut give = |file: &Shown| {
            if json {
                listed.push(to_json(file));
            } else if written.is_ok() {
                written = print(&mut out, args, file);
            }
        };
        let done = look(args, volume, path, &mut troubles, &mut give);
        match args.inside.places.len() {
            1 => done,
            _ => troubles.pass(done).map(drop),
        }
    })?;
    if json {
        let all = json!({ "files": listed, "errors": troubles.to_json() });
        written = writeln!(out, "{all}");
    }
    written.and_then(|()| out.flush()).or_else(output)?;
    troubles.end("shown", json)
}

fn look(
    args: &GetfattrArgs,
    volume: &Volume,
    path: &Path,
    troubles: &mut Troubles,
    give: &mut dyn FnMut(&Shown),
) -> Result {
    if args.recursive {
        let mut missing = Vec::new();
        let top = if args.no_dereference {
            Top::Kept
        } else {
            Top::Followed
        };
        each_below(volume, path, top, troubles, &mut |file| {
            let names = file.dir.symlink_xattrs(file.name)?;
            let all = chosen(args, names, |name| file.dir.symlink_xattr(file.name, name))?;
            match all {
                Some(all) => give(&Shown {
                    path: file.path.to_owned(),
                    all,
                }),
                None => missing.push(file.path.to_owned()),
            }
            Ok(())
        })?;
        missing
            .iter()
            .for_each(|path| troubles.tell(&none(args, path)));
        return Ok(());
    }
    let found = match args.no_dereference {
        true => path.to_owned(),
        false => {
            volume.metadata(path)?;
            Inside::resolved(volume, path)?
        }
    };
    let names = volume.symlink_xattrs(&found)?;
    let all = chosen(args, names, |name| volume.symlink_xattr(&found, name))?;
    let all = all.ok_or_else(|| none(args, path))?;
    give(&Shown {
        path: path.to_owned(),
        all,
    });
    Ok(())
}

/// The failure for a file without the named attribute.
fn none(args: &GetfattrArgs, path: &Path) -> Failure {
    let name = args.name.as_deref().unwrap_or_default();
    let message = format!("{} has no attribute {}", path.display(), name.display());
    Failure::new(Code::NotFound, message)
}

/// The attributes that the arguments name, by name; `None` if the one that is named is missing.
fn chosen(
    args: &GetfattrArgs,
    mut names: Vec<OsString>,
    value: impl Fn(&OsStr) -> stetfs::Result<Option<Vec<u8>>>,
) -> stetfs::Result<Option<Vec<Xattr>>> {
    if let Some(name) = &args.name {
        return Ok(value(name)?.map(|value| vec![(name.clone(), value)]));
    }
    let prefix = args.r#match.trim_start_matches('^').replace('\\', "");
    names.retain(|name| prefix == "-" || name.as_bytes().starts_with(prefix.as_bytes()));
    names.sort_unstable();
    let mut all = Vec::new();
    for name in names {
        if let Some(value) = value(&name)? {
            all.push((name, value));
        }
    }
    Ok(Some(all))
}

fn print(out: &mut impl Write, args: &GetfattrArgs, file: &Shown) -> io::Result<()> {
    if file.all.is_empty() {
        return Ok(());
    }
    if args.only_values {
        return file
            .all
            .iter()
            .try_for_each(|(_, value)| out.write_all(value));
    }
    out.write_all(b"# file: ")?;
    out.write_all(file.path.as_os_str().as_bytes())?;
    out.write_all(b"\n")?;
    for (name, value) in &file.all {
        out.write_all(name.as_bytes())?;
        if args.dump || args.name.is_some() {
            write!(out, "={}", shown(value, args.encoding))?;
        }
        out.write_all(b"\n")?;
    }
    out.write_all(b"\n")
}

fn to_json(file: &Shown) -> Value {
    let all = file.all.iter().map(|(name, value)| {
        json!({
            "name": name.to_string_lossy(),
            "value": str::from_utf8(value).ok(),
            "value_base64": base64::encode(value),
        })
    });
    json!({ "path": file.path.to_string_lossy(), "attributes": all.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_and_shown_in_each_form() {
        for (said, is, shows) in [
            (&b"plain"[..], &b"plain"[..], "\"plain\""),
            (b"\"in quotes\"", b"in quotes", "\"in quotes\""),
            (br#"a\\\"\101"#, br#"a\"A"#, r#""a\\\"A""#),
            (b"0x00fF", b"\x00\xff", "0sAP8="),
            (b"0sAP8=", b"\x00\xff", "0sAP8="),
            (b"", b"", "\"\""),
            (b"0x6100", b"a\0", r#""a\000""#),
        ] {
            assert_eq!(value(said).as_deref(), Some(is));
            assert_eq!(shown(is, None), shows);
        }
        for wrong in [&b"0x1"[..], b"0xgg", b"0s*", b"\\", b"\\9", b"0x+1"] {
            assert_eq!(value(wrong), None);
        }
        assert_eq!(shown(b"a", Some(Encoding::Hex)), "0x61");
        assert_eq!(shown(b"\xff", Some(Encoding::Text)), r#""\377""#);
    }
}
