//! The first look at a volume: a separate process reads it, so that the server of a mount reads
//! nothing while it has privileges.
//!
//! A copy of the server opens the volume, gives up its privileges ([`crate::sandbox`]), and only
//! then reads where the volume is, and which mount options it stores. The form of its report is
//! checked; a taken-over copy can report nothing that the maker of the volume could not have
//! written there. The server reads the volume again when it has no privileges (decisions/0040).

use serde_json::{Value, json};
use stetfs::low::{
    FirstLook, NbdAddress, NbdOptions, Place, Source, Span, Unlooked, UnlookedJournal, own_option,
};
use stetfs_fuse::apart;

use crate::failure::{Code, Failure, Result};
use crate::sandbox::{self, Wanted};

/// Looks at a volume, and at the device that it names for its journal.
///
/// # Errors
/// It cannot be opened, has no such part, or names a device that is not a journal.
pub(crate) fn look(source: &Source, nbd: NbdOptions, wanted: Wanted) -> Result<FirstLook> {
    let has_network = NbdAddress::is_meant(&source.path);
    let said = ask(
        (wanted, has_network),
        || Unlooked::open(source, nbd),
        |unlooked| unlooked.look().map(|look| to_json(&look)),
    )?;
    let look = from_json(&said).ok_or_else(|| ended("its report was invalid"))?;
    if source.journal_path.is_none()
        && let Some(uuid) = &look.journal
    {
        ask(
            (wanted, false),
            || UnlookedJournal::open(uuid),
            |journal| {
                journal
                    .map_or(Ok(()), UnlookedJournal::look)
                    .map(|()| json!({}))
            },
        )?;
    }
    Ok(look)
}

fn ended(how: impl std::fmt::Display) -> Failure {
    let message = format!("the process that takes the first look at the volume failed: {how}");
    Failure::new(Code::Volume, message)
}

/// Opens with all privileges, and reads with none, unless the sandbox is off.
fn ask<T>(
    (wanted, has_network): (Wanted, bool),
    open: impl FnOnce() -> stetfs::low::Result<T>,
    read: impl FnOnce(T) -> stetfs::low::Result<Value>,
) -> Result<Value> {
    if wanted == Wanted::Off {
        return Ok(read(open()?)?);
    }
    let said = apart(|| {
        let done = open().map_err(Failure::from).and_then(|opened| {
            sandbox::enter_alone(wanted, has_network)?;
            #[cfg(debug_assertions)]
            stetfs_fuse::taken_over_before();
            Ok(read(opened)?)
        });
        done.unwrap_or_else(|e| e.to_json())
            .to_string()
            .into_bytes()
    });
    let said = serde_json::from_slice(&said.map_err(ended)?).map_err(ended)?;
    match Failure::from_json(&said) {
        Some(failure) => Err(failure),
        None => Ok(said),
    }
}

fn to_json(look: &FirstLook) -> Value {
    json!({
        "is_sparse": look.place.is_sparse,
        "span": look.place.span.map(|span| [span.start, span.len]),
        "journal": look.journal,
        "own_options": look.own_options,
    })
}

/// Reads a report; `None` if no volume could cause it.
fn from_json(said: &Value) -> Option<FirstLook> {
    let span = match &said["span"] {
        Value::Null => None,
        span => {
            let [start, len] = [span[0].as_u64()?, span[1].as_u64()?];
            start.checked_add(len)?;
            Some(Span { start, len })
        }
    };
    let journal = match &said["journal"] {
        Value::Null => None,
        uuid => Some(uuid.as_str().filter(|uuid| is_uuid(uuid))?.to_owned()),
    };
    let own_options = said["own_options"].as_array()?.iter();
    let own_options = own_options.map(|option| own_option(option.as_str()?));
    Some(FirstLook {
        place: Place {
            is_sparse: said["is_sparse"].as_bool()?,
            span,
        },
        journal,
        own_options: own_options.collect::<Option<_>>()?,
    })
}

/// Whether the text has the form of a UUID: it becomes a part of a path.
fn is_uuid(text: &str) -> bool {
    text.len() == 36 && text.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn a_look() -> FirstLook {
        FirstLook {
            place: Place {
                is_sparse: false,
                span: Some(Span {
                    start: 512,
                    len: 1 << 20,
                }),
            },
            journal: Some("12345678-9abc-def0-0102-030405060708".into()),
            own_options: vec!["data=journal", "discard"],
        }
    }

    #[test]
    fn a_look_is_told_whole() {
        for look in [a_look(), FirstLook::default()] {
            assert_eq!(from_json(&to_json(&look)).unwrap(), look);
        }
    }

    #[test]
    fn what_no_volume_can_say_is_nothing() {
        let with = |name: &str, value: Value| {
            let mut said = to_json(&a_look());
            said[name] = value;
            from_json(&said)
        };
        assert!(with("span", json!([0, 1])).is_some());
        for (name, value) in [
            ("span", json!([1, u64::MAX])),
            ("span", json!([1])),
            ("journal", json!("../../sda-78-9abc-def0-0102-03040506")),
            ("journal", json!("12345678")),
            ("journal", json!(3)),
            ("own_options", json!(["discard", "suid"])),
            ("own_options", json!("discard")),
            ("is_sparse", json!(null)),
        ] {
            assert_eq!(with(name, value.clone()), None, "{name} {value}");
        }
    }
}
