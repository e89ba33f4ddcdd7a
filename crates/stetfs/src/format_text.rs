//! [`FormatOptions`] as text, for languages and programs in which a user writes them.

use std::str::FromStr;

use crate::FormatOptions;
use crate::low::options::Value::{Bytes, Flag, Number, Size, Text};
use crate::low::options::{Concern, LARGEST, OptionRow, Remount, Value, epoch, names, set};
use crate::low::{FeatureEdits, did_you_mean, format_values};
use crate::option_text::{BadOption, each_option};

const fn row(
    words: &'static [(&'static str, Value<FormatOptions>)],
    help: &'static str,
) -> OptionRow<FormatOptions> {
    OptionRow {
        words,
        default: "",
        help,
        concern: Concern::Program,
        remount: Remount::Changes,
    }
}

const fn text(
    form: &'static str,
    set: fn(&mut FormatOptions, &str) -> Result<(), String>,
) -> Value<FormatOptions> {
    Text { form, set }
}

/// The options of a new volume, with the names that `stetfs mkfs` has.
pub static FORMAT_OPTIONS: &[OptionRow<FormatOptions>] = &[
    row(
        &[(
            "size",
            Bytes(|o, n| {
                o.size(n);
            }),
        )],
        "size of the volume",
    ),
    row(
        &[(
            "offset",
            Bytes(|o, n| {
                o.part(n, None);
            }),
        )],
        "first byte of the volume",
    ),
    row(
        &[("partition", text("N|NAME|UUID", set_partition))],
        "partition to make it in",
    ),
    row(
        &[("like", text("PROFILE", set_profile))],
        "defaults of everything else",
    ),
    row(&[("block_size", Size(set_block_size))], "bytes of a block"),
    row(
        &[("cluster_size", Size(set_cluster_size))],
        "bytes of a cluster, with feature=bigalloc",
    ),
    row(
        &[("feature", text("FEATURE|^FEATURE", set_feature))],
        "a feature to add or to leave out; may stand several times",
    ),
    row(
        &[("label", text("LABEL", set_label))],
        "label, 16 bytes at most",
    ),
    row(&[("uuid", text("UUID", set_uuid))], "UUID"),
    row(
        &[("reserved", text("PERCENT", set_reserved))],
        "blocks reserved for root",
    ),
    row(
        &[(
            "inode_ratio",
            Bytes(|o, n| o.numbers().inode_ratio = Some(n)),
        )],
        "bytes of the volume for each inode",
    ),
    row(&[("inodes", text("N", set_inodes))], "number of inodes"),
    row(
        &[(
            "inode_size",
            Number {
                least: 128,
                most: 32768,
                set: |o, n| o.numbers().inode_size = u16::try_from(n).ok(),
            },
        )],
        "bytes of an inode",
    ),
    row(
        &[(
            "journal_size",
            Bytes(|o, n| o.numbers().journal_size = Some(n)),
        )],
        "bytes of the journal",
    ),
    row(
        &[("root_owner", text("UID:GID", set_root_owner))],
        "owner of the root directory",
    ),
    row(
        &[("root_mode", text("OCTAL", set_root_mode))],
        "permissions of the root directory",
    ),
    row(
        &[("epoch", text("SECONDS", set_epoch))],
        "time of everything in the volume",
    ),
    row(
        &[(
            "seed",
            Number {
                least: 0,
                most: LARGEST,
                set: |o, n| o.numbers().seed = u64::try_from(n).ok(),
            },
        )],
        "number that UUID and hash seed follow from",
    ),
    row(
        &[("zero_tables", Flag(|o| o.numbers().zero_tables = true))],
        "zero all inode tables of a device now",
    ),
    row(
        &[(
            "force",
            Flag(|o| {
                o.force(true);
            }),
        )],
        "overwrite what is recognised",
    ),
    row(
        &[(
            "dry_run",
            Flag(|o| {
                o.dry_run(true);
            }),
        )],
        "write nothing",
    ),
];

fn named<T>(name: &str, read: Result<T, String>) -> Result<T, String> {
    read.map_err(|why| format!("{name} {why}"))
}

fn narrow(bytes: u64) -> Result<u32, String> {
    u32::try_from(bytes).map_err(|_| "is too large".to_owned())
}

fn set_partition(o: &mut FormatOptions, text: &str) -> Result<(), String> {
    o.partition(text);
    Ok(())
}

fn set_profile(o: &mut FormatOptions, text: &str) -> Result<(), String> {
    o.profile(text.parse()?);
    Ok(())
}

fn set_block_size(o: &mut FormatOptions, bytes: u64) -> Result<(), String> {
    o.numbers().block_size = Some(narrow(bytes)?);
    Ok(())
}

fn set_cluster_size(o: &mut FormatOptions, bytes: u64) -> Result<(), String> {
    o.numbers().cluster_size = Some(narrow(bytes)?);
    Ok(())
}

fn set_feature(o: &mut FormatOptions, text: &str) -> Result<(), String> {
    text.parse::<FeatureEdits>()?;
    o.features(text);
    Ok(())
}

fn set_label(o: &mut FormatOptions, text: &str) -> Result<(), String> {
    o.label(text);
    Ok(())
}

fn set_uuid(o: &mut FormatOptions, text: &str) -> Result<(), String> {
    o.uuid(named("uuid", format_values::uuid(text))?);
    Ok(())
}

fn set_reserved(o: &mut FormatOptions, text: &str) -> Result<(), String> {
    o.numbers().reserved = Some(named("reserved", format_values::percent(text))?);
    Ok(())
}

fn set_inodes(o: &mut FormatOptions, text: &str) -> Result<(), String> {
    let inodes = text.parse().map_err(|_| "inodes must be a number")?;
    o.numbers().inodes = Some(inodes);
    Ok(())
}

fn set_root_owner(o: &mut FormatOptions, text: &str) -> Result<(), String> {
    let (uid, gid) = text.split_once(':').ok_or("root_owner must be UID:GID")?;
    let id = |text: &str| text.parse().map_err(|_| "root_owner must be two numbers");
    o.root_owner(id(uid)?, id(gid)?);
    Ok(())
}

fn set_root_mode(o: &mut FormatOptions, text: &str) -> Result<(), String> {
    o.numbers().root_mode = named("root_mode", format_values::mode(text))?;
    Ok(())
}

fn set_epoch(o: &mut FormatOptions, text: &str) -> Result<(), String> {
    o.numbers().epoch = Some(named("epoch", epoch(text))?);
    Ok(())
}

/// Reads options that are separated by commas: those of `stetfs mkfs`, with `_` in place of `-`,
/// and each feature by itself.
///
/// ```
/// use stetfs::FormatOptions;
///
/// let options: FormatOptions = "size=1G,label=data,feature=bigalloc".parse()?;
/// let wrong = "lable=data".parse::<FormatOptions>().unwrap_err();
/// assert_eq!(wrong.to_string(), "option lable=data: unknown; did you mean label?");
/// # Ok::<(), stetfs::BadOption>(())
/// ```
impl FromStr for FormatOptions {
    type Err = BadOption;

    fn from_str(text: &str) -> Result<FormatOptions, BadOption> {
        let mut options = FormatOptions::new();
        each_option(text, |name, value| {
            set(FORMAT_OPTIONS, &mut options, name, value).unwrap_or_else(|| {
                let meant = did_you_mean(name, names(FORMAT_OPTIONS));
                Err(format!("unknown{meant}"))
            })
        })?;
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn options_are_read_and_others_are_told() {
        let all = "size=1G,like=rootfs,block_size=2K,cluster_size=32K,feature=bigalloc,\
                   feature=^resize_inode,label=x,uuid=01234567-89ab-cdef-0123-456789abcdef,\
                   reserved=0.5,inode_ratio=8K,inodes=99,inode_size=512,journal_size=8M,\
                   root_owner=1:2,root_mode=1777,epoch=1,seed=2,zero_tables,force,dry_run";
        let mut options: FormatOptions = all.parse().unwrap();
        let numbers = options.numbers();
        assert_eq!(
            (numbers.block_size, numbers.reserved),
            (Some(2048), Some(50))
        );
        assert_eq!((numbers.root_owner, numbers.root_mode), ((1, 2), 0o1777));
        assert_eq!((numbers.inode_size, numbers.seed), (Some(512), Some(2)));
        for (senseless, why) in [
            ("lable=x", "did you mean label?"),
            ("force=1", "takes no value"),
            ("size", "needs a value"),
            ("feature=casefold", "StetFS does not write"),
            ("uuid=1", "32 hexadecimal digits"),
            ("like=ext5", "there are mke2fs"),
        ] {
            let said = senseless.parse::<FormatOptions>().unwrap_err().to_string();
            assert!(said.contains(why), "{senseless}: {said}");
        }
    }
}
