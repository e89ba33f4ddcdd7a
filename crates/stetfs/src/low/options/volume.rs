//! The rows of a volume's options.

use std::time::Duration;

use stetfs_cache::{PolicyKind, UnknownPolicy};
use stetfs_ext4::{Atime, FsOptions, MAX_EPOCH, OnDataError, OnError};
use stetfs_journal::compose::{Bad, did_you_mean};

use super::super::memory::usable_memory;
use super::request::VolumeRequest;
use super::table::Value::{Bytes, Flag, Number, Path, Seconds, Size, Text, Time, Words};
use super::table::{Concern, OptionRow, Remount, keep};

/// The options of a volume, in the order of help. `journal=` is one of them; what journals are made
/// of comes from their parts.
pub static VOLUME_OPTIONS: &[OptionRow<VolumeRequest>] = &[
    OptionRow {
        words: &[
            ("ro", Flag(|o| o.fs.read_only = true)),
            ("rw", Flag(|o| o.fs.read_only = false)),
        ],
        default: "rw",
        help: "read only, or not",
        concern: Concern::Use,
        remount: Remount::Changes,
    },
    OptionRow {
        words: &[(
            "journal",
            Text {
                form: "NAME",
                set: set_preset,
            },
        )],
        default: "ordered",
        help: "the journal preset, a name for some of the options of journals",
        // The laboratory's specifications begin with the preset.
        concern: Concern::Use,
        remount: Remount::Changes,
    },
    OptionRow {
        words: &[("commit", Seconds(set_commit))],
        default: "5",
        help: "longest time until a change is committed by itself; 0: the default",
        concern: Concern::FileSystem,
        remount: Remount::Changes,
    },
    OptionRow {
        words: &[("dirty_expire", Time(|o, age| o.fs.dirty_expire = age))],
        default: "30",
        help: "age at which file data that nobody synced is written by itself",
        concern: Concern::FileSystem,
        remount: Remount::Changes,
    },
    OptionRow {
        words: &[("cache", Size(set_cache))],
        default: "an eighth of the memory, 64M to 1G",
        help: "memory for the cache, such as 512M",
        concern: Concern::FileSystem,
        remount: Remount::Changes,
    },
    OptionRow {
        words: &[(
            "cache_policy",
            Text {
                form: "NAME",
                set: set_policy,
            },
        )],
        default: "clock",
        help: "which blocks leave the cache first: clock, or another of `stetfs flash run`",
        concern: Concern::FileSystem,
        remount: Remount::Changes,
    },
    OptionRow {
        words: &[("erase_block", Size(set_erase_block))],
        default: "4M",
        help: "size of the device's erase blocks, for policies that use it",
        concern: Concern::FileSystem,
        remount: Remount::Changes,
    },
    OptionRow {
        words: &[
            ("relatime", Flag(|o| o.fs.atime = Atime::Relatime)),
            ("noatime", Flag(|o| o.fs.atime = Atime::Noatime)),
            ("strictatime", Flag(|o| o.fs.atime = Atime::Strict)),
            ("nodiratime", Flag(|o| o.fs.nodiratime = true)),
        ],
        default: "relatime",
        help: "how access times are kept",
        concern: Concern::FileSystem,
        remount: Remount::Changes,
    },
    OptionRow {
        words: &[
            ("lazytime", Flag(|o| o.fs.lazytime = true)),
            ("nolazytime", Flag(|o| o.fs.lazytime = false)),
        ],
        default: "nolazytime",
        help: "access times are written with the next sync only, or as they change",
        concern: Concern::FileSystem,
        remount: Remount::Changes,
    },
    OptionRow {
        words: &[
            ("discard", Flag(|o| o.fs.discard = true)),
            ("nodiscard", Flag(|o| o.fs.discard = false)),
        ],
        default: "as the volume says, else nodiscard",
        help: "tell the device of blocks when they become free",
        concern: Concern::FileSystem,
        remount: Remount::Changes,
    },
    OptionRow {
        words: &[(
            "errors",
            Words(&[
                ("continue", |o| o.fs.on_error = Some(OnError::Continue)),
                ("remount-ro", |o| o.fs.on_error = Some(OnError::RemountRo)),
                ("panic", |o| o.fs.on_error = Some(OnError::Panic)),
            ]),
        )],
        default: "as the volume says",
        help: "what to do when damage is found",
        concern: Concern::FileSystem,
        remount: Remount::Changes,
    },
    OptionRow {
        words: &[(
            "data_err",
            Words(&[
                ("ignore", |o| o.fs.data_err = OnDataError::Ignore),
                ("abort", |o| o.fs.data_err = OnDataError::Abort),
            ]),
        )],
        default: "ignore",
        help: "what to do when file data cannot be written: tell the programs that sync the file, or \
               stop the volume",
        concern: Concern::FileSystem,
        remount: Remount::Changes,
    },
    OptionRow {
        words: &[
            ("sync", Flag(|o| o.fs.sync = true)),
            ("dirsync", Flag(|o| o.fs.dirsync = true)),
        ],
        default: "",
        help: "every write, or change of names, is durable when it returns",
        concern: Concern::FileSystem,
        remount: Remount::Changes,
    },
    OptionRow {
        words: &[
            ("grpid", Flag(|o| o.fs.bsd_groups = Some(true))),
            ("bsdgroups", Flag(|o| o.fs.bsd_groups = Some(true))),
            ("nogrpid", Flag(|o| o.fs.bsd_groups = Some(false))),
            ("sysvgroups", Flag(|o| o.fs.bsd_groups = Some(false))),
        ],
        default: "as the volume says, else nogrpid",
        help: "new files get their directory's group, or their maker's",
        concern: Concern::FileSystem,
        remount: Remount::Changes,
    },
    OptionRow {
        words: &[
            ("norecovery", Flag(|o| o.fs.no_recovery = true)),
            ("noload", Flag(|o| o.fs.no_recovery = true)),
        ],
        default: "",
        help: "do not replay the journal (with ro)",
        concern: Concern::Use,
        remount: Remount::Changes,
    },
    OptionRow {
        words: &[(
            "epoch",
            Text {
                form: "SECONDS",
                set: set_epoch,
            },
        )],
        default: "",
        help: "all times are this one and nothing is left to chance: an image made again is the same",
        concern: Concern::Use,
        remount: Remount::Changes,
    },
    OptionRow {
        words: &[
            ("nobarrier", Flag(|o| o.fs.barrier = false)),
            ("barrier", Flag(|o| o.fs.barrier = true)),
            (
                "barrier",
                Words(&[
                    ("0", |o| o.fs.barrier = false),
                    ("1", |o| o.fs.barrier = true),
                ]),
            ),
        ],
        default: "barrier=1",
        help: "no flushes: fast, and not safe against power failure",
        concern: Concern::FileSystem,
        remount: Remount::Changes,
    },
    OptionRow {
        words: &[("journal_async_commit", Flag(|o| o.fs.async_commit = true))],
        default: "",
        help: "commit blocks do not wait for the log before them",
        concern: Concern::FileSystem,
        remount: Remount::Changes,
    },
    OptionRow {
        words: &[("journal_path", Path(|o, path| o.journal_path = Some(path)))],
        default: "where udev links it",
        help: "where the journal is, on a volume that has it on another device",
        concern: Concern::Place,
        remount: Remount::Keeps(|own, now| keep(&mut own.journal_path, &now.journal_path)),
    },
    OptionRow {
        words: &[("nvm", Path(|o, path| o.nvm.path = Some(path)))],
        default: "",
        help: "file for records of synced files (with sync=file), in persistent memory or what stands \
               in for it: syncs wait for no device",
        concern: Concern::Place,
        remount: Remount::Refuses,
    },
    OptionRow {
        words: &[
            ("nvm_offset", Bytes(|o, bytes| o.nvm.offset = Some(bytes))),
            ("nvm_size", Bytes(|o, bytes| o.nvm.size = Some(bytes))),
        ],
        default: "all of it",
        help: "which part of that file it is: several volumes share one",
        concern: Concern::Place,
        remount: Remount::Refuses,
    },
    OptionRow {
        words: &[(
            "partition",
            Text {
                form: "N|NAME|UUID",
                set: set_partition,
            },
        )],
        default: "",
        help: "which partition of an image or a disk with a partition table it is",
        concern: Concern::Place,
        remount: Remount::Refuses,
    },
    OptionRow {
        words: &[
            ("offset", Bytes(|o, bytes| o.place.offset = Some(bytes))),
            ("size", Bytes(|o, bytes| o.place.size = Some(bytes))),
        ],
        default: "all of it",
        help: "which part of an image or a disk it is",
        concern: Concern::Place,
        remount: Remount::Refuses,
    },
    OptionRow {
        words: &[(
            "nbd_connections",
            Number {
                least: 1,
                most: 16,
                set: |o, n| o.nbd.connections = n,
            },
        )],
        default: "4",
        help: "of nbd:// addresses: connections, where there may be several",
        concern: Concern::Use,
        remount: Remount::Keeps(|own, now| keep(&mut own.nbd.connections, &now.nbd.connections)),
    },
    OptionRow {
        words: &[("nbd_reconnect", Seconds(|o, n| o.nbd.timeout = seconds(n)))],
        default: "60",
        help: "of nbd:// addresses: how long a lost server is looked for",
        concern: Concern::Use,
        remount: Remount::Keeps(|own, now| keep(&mut own.nbd.timeout, &now.nbd.timeout)),
    },
    OptionRow {
        words: &[("nbd_answer", Seconds(set_answer))],
        default: "180",
        help: "of nbd:// addresses: how long an answer may take; 0: as long as it takes",
        concern: Concern::Use,
        remount: Remount::Keeps(|own, now| keep(&mut own.nbd.answer, &now.nbd.answer)),
    },
];

fn seconds(n: u32) -> Duration {
    Duration::from_secs(n.into())
}

fn set_preset(o: &mut VolumeRequest, name: &str) -> Result<(), String> {
    o.preset = Some(name.parse().map_err(|bad: Bad| bad.0)?);
    Ok(())
}

fn set_commit(o: &mut VolumeRequest, seconds: u32) {
    o.fs.commit_secs = match seconds {
        // 0 means the default, as in ext4.
        0 => FsOptions::default().commit_secs,
        seconds => seconds,
    };
}

/// The smallest cache, in bytes; the operations that run at once need room.
const LEAST_CACHE: u64 = 1 << 20;

fn set_cache(o: &mut VolumeRequest, bytes: u64) -> Result<(), String> {
    let memory = usable_memory();
    if bytes < LEAST_CACHE {
        return Err("must be at least 1M: the blocks that operations work on must fit".into());
    }
    if bytes > memory {
        let memory = memory >> 20;
        return Err(format!(
            "must be less than the {memory}M of memory that may be used here"
        ));
    }
    o.cache = Some(bytes);
    Ok(())
}

fn set_policy(o: &mut VolumeRequest, name: &str) -> Result<(), String> {
    let policy = name.parse().map_err(|e: UnknownPolicy| {
        let names = PolicyKind::ALL.into_iter().map(PolicyKind::name);
        format!("{e}{}", did_you_mean(name, names))
    });
    o.fs.cache_policy = policy?;
    Ok(())
}

fn set_erase_block(o: &mut VolumeRequest, bytes: u64) -> Result<(), String> {
    // A page of flash, and more than any device has.
    const PAGE: u64 = 4096;
    const MOST: u64 = 1 << 30;
    if !(PAGE..=MOST).contains(&bytes) || !bytes.is_multiple_of(PAGE) {
        return Err("must be a multiple of 4K, 1G at most: flash is erased in whole pages".into());
    }
    o.erase_block = Some(bytes);
    Ok(())
}

/// The seconds since 1970 that all times of a volume are to be.
///
/// # Errors
/// A text that is no such number, as the end of a sentence.
pub fn epoch(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(epoch) if epoch <= MAX_EPOCH => Ok(epoch),
        _ => Err(format!(
            "must be a number of seconds since 1970, {MAX_EPOCH} at most"
        )),
    }
}

fn set_epoch(o: &mut VolumeRequest, text: &str) -> Result<(), String> {
    o.fs.epoch = Some(epoch(text).map_err(|why| format!("epoch {why}"))?);
    Ok(())
}

fn set_partition(o: &mut VolumeRequest, name: &str) -> Result<(), String> {
    o.place.partition = Some(name.to_owned());
    Ok(())
}

fn set_answer(o: &mut VolumeRequest, n: u32) {
    o.nbd.answer = match n {
        0 => Duration::MAX,
        n => seconds(n),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::low::options::{names, set};

    /// A default that is a value of its option changes nothing where it is said.
    #[test]
    fn defaults_are_those_of_the_structs() {
        let mut values = 0;
        // Sentences are no values.
        let rows = VOLUME_OPTIONS.iter();
        for row in rows.filter(|row| !row.default.contains(' ')) {
            for (name, _) in row.words {
                let mut said = VolumeRequest::default();
                let done = set(VOLUME_OPTIONS, &mut said, name, Some(row.default));
                if done.is_none_or(|done| done.is_err()) {
                    continue;
                }
                values += 1;
                let (meant, default) = (said.settle(), VolumeRequest::default().settle());
                assert_eq!(meant, default, "{name}={}", row.default);
            }
        }
        assert!(values >= 9, "only {values} defaults are values");
    }

    /// A program may go to another directory; addresses of servers are no paths.
    #[test]
    fn paths_are_absolute_and_addresses_stay() {
        let journal = |text| {
            let mut said = VolumeRequest::default();
            let done = set(VOLUME_OPTIONS, &mut said, "journal_path", Some(text));
            assert_eq!(done, Some(Ok(())), "{text}");
            said.journal_path
        };
        let here = std::path::absolute("journal").ok();
        assert!(here.is_some());
        assert_eq!(journal("journal"), here);
        assert_eq!(journal("nbd://host/log"), Some("nbd://host/log".into()));
    }

    #[test]
    fn no_name_stands_twice_in_the_same_way() {
        for row in VOLUME_OPTIONS {
            for (name, value) in row.words {
                let ways = VOLUME_OPTIONS.iter().flat_map(|row| row.words);
                let same = ways.filter(|(other, way)| {
                    other == name && matches!(way, Flag(_)) == matches!(value, Flag(_))
                });
                assert_eq!(same.count(), 1, "{name}");
            }
        }
        assert!(names(VOLUME_OPTIONS).count() > 40);
    }
}
