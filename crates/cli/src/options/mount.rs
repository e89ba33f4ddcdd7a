//! The rows of options that only a mount has: its connection to the kernel, and its server.

use std::path::Path;

use stetfs::low::options::Value::{Flag, Number, Path as PathOf, Seconds, Words};
use stetfs::low::options::{Concern, OptionRow, Remount, keep};
use stetfs_fuse::{IoUring, LowLatency, Opens};

use super::said::Options;
use crate::sandbox::Wanted;

/// The options of a mount beside those of its volume, in the order of help.
pub static MOUNT_OPTIONS: &[OptionRow<Options>] = &[
    OptionRow {
        words: &[
            ("allow_other", Flag(|o| o.allow_other = Some(true))),
            ("noallow_other", Flag(|o| o.allow_other = Some(false))),
        ],
        default: "yes for root",
        help: "whether other users may use it",
        concern: Concern::Program,
        remount: Remount::Keeps(keep_others),
    },
    OptionRow {
        words: &[(
            "threads",
            Number {
                least: 1,
                most: 256,
                set: |o, n| o.threads = n,
            },
        )],
        default: "the cores and four",
        help: "threads that take requests",
        concern: Concern::Program,
        remount: Remount::Keeps(|own, now| keep(&mut own.threads, &now.threads)),
    },
    OptionRow {
        words: &[
            (
                "io_uring",
                Words(&[
                    ("auto", |o| o.io_uring = IoUring::Auto),
                    ("on", |o| o.io_uring = IoUring::On),
                    ("off", |o| o.io_uring = IoUring::Off),
                ]),
            ),
            ("io_uring", Flag(|o| o.io_uring = IoUring::On)),
        ],
        default: "auto",
        help: "take requests through io_uring",
        concern: Concern::Program,
        remount: Remount::Keeps(|own, now| keep(&mut own.io_uring, &now.io_uring)),
    },
    OptionRow {
        words: &[
            (
                "low_latency",
                Words(&[
                    ("auto", |o| o.low_latency = LowLatency::Auto),
                    ("on", |o| o.low_latency = LowLatency::On),
                    ("off", |o| o.low_latency = LowLatency::Off),
                ]),
            ),
            ("low_latency", Flag(|o| o.low_latency = LowLatency::On)),
        ],
        default: "auto",
        help: "keep processors from sleeping while requests come one after another",
        concern: Concern::Program,
        remount: Remount::Keeps(|own, now| keep(&mut own.low_latency, &now.low_latency)),
    },
    OptionRow {
        words: &[
            (
                "sandbox",
                Words(&[
                    ("auto", |o| o.sandbox = Wanted::Auto),
                    ("on", |o| o.sandbox = Wanted::On),
                    ("off", |o| o.sandbox = Wanted::Off),
                ]),
            ),
            ("sandbox", Flag(|o| o.sandbox = Wanted::On)),
        ],
        default: "auto",
        help: "auto: the server gives up all rights that it does not need and that this kernel can take; on: if one cannot be given up, nothing is mounted",
        concern: Concern::Program,
        remount: Remount::Keeps(|own, now| keep(&mut own.sandbox, &now.sandbox)),
    },
    OptionRow {
        words: &[("log_file", PathOf(|o, path| o.log_file = Some(path)))],
        default: "syslog, in the foreground standard error",
        help: "where messages go, behind what is there",
        concern: Concern::Program,
        remount: Remount::Refuses,
    },
    OptionRow {
        words: &[(
            "opens",
            Words(&[
                ("stateless", |o| o.opens = Opens::Stateless),
                ("handles", |o| o.opens = Opens::Handles),
            ]),
        )],
        default: "stateless; with direct_io, writeback_cache or atomic handles",
        help: "files are opened and closed without a request, or each open gets a handle",
        concern: Concern::Program,
        remount: Remount::Keeps(|own, now| keep(&mut own.opens, &now.opens)),
    },
    OptionRow {
        words: &[("direct_io", Flag(|o| o.direct_io = true))],
        default: "",
        help: "files pass the kernel's page cache by",
        concern: Concern::Program,
        remount: Remount::Keeps(|own, now| keep(&mut own.direct_io, &now.direct_io)),
    },
    OptionRow {
        words: &[("writeback_cache", Flag(|o| o.writeback_cache = true))],
        default: "",
        help: "the kernel holds written data back",
        concern: Concern::Program,
        remount: Remount::Keeps(|own, now| keep(&mut own.writeback_cache, &now.writeback_cache)),
    },
    OptionRow {
        words: &[("atomic", Flag(|o| o.atomic = true))],
        default: "",
        help: "files can be written atomically, as SQLite does; needs a journal that data goes through",
        concern: Concern::Program,
        remount: Remount::Keeps(|own, now| keep(&mut own.atomic, &now.atomic)),
    },
    OptionRow {
        words: &[("atomic_timeout", Seconds(|o, n| o.atomic_timeout = Some(n)))],
        default: "60",
        help: "an atomic write without a change for so long is aborted; 0: never",
        concern: Concern::Program,
        remount: Remount::Keeps(|own, now| keep(&mut own.atomic_timeout, &now.atomic_timeout)),
    },
    OptionRow {
        words: &[("idmap", Flag(|o| o.idmap = true))],
        default: "",
        help: "the mount can be mapped to other ids (Linux 6.12)",
        concern: Concern::Program,
        remount: Remount::Keeps(|own, now| keep(&mut own.idmap, &now.idmap)),
    },
    OptionRow {
        words: &[("fakeroot", Flag(|o| o.fakeroot = true))],
        default: "",
        help: "the user who mounts is root in the volume, and root's files are shown as that user's",
        concern: Concern::Program,
        remount: Remount::Keeps(|own, now| keep(&mut own.fakeroot, &now.fakeroot)),
    },
    OptionRow {
        words: &[("noxattr", Flag(|o| o.noxattr = true))],
        default: "",
        help: "neither extended attributes nor ACLs",
        concern: Concern::Program,
        remount: Remount::Keeps(|own, now| keep(&mut own.noxattr, &now.noxattr)),
    },
    OptionRow {
        words: &[
            ("nosuid", Flag(|o| o.nosuid = true)),
            ("nodev", Flag(|o| o.nodev = true)),
            ("noexec", Flag(|o| o.noexec = true)),
            ("nosymfollow", Flag(|o| o.nosymfollow = true)),
        ],
        default: "",
        help: "as for mount(8)",
        concern: Concern::Program,
        remount: Remount::Changes,
    },
    OptionRow {
        words: &[("remount", Flag(|o| o.remount = true))],
        default: "",
        help: "change a mount in place: all but its place, nvm=, log_file=, and what the server and the \
               connection to the kernel are made with (threads, io_uring, opens, sandbox and the like)",
        concern: Concern::Program,
        remount: Remount::Changes,
    },
];

/// Compares what it means for others, not what was said: root allows them in any case.
fn keep_others(own: &mut Options, now: &Options) -> bool {
    let allows = |o: &Options| o.mount(Path::new("")).allow_other;
    let differs = allows(own) != allows(now);
    own.allow_other = now.allow_other;
    differs
}
