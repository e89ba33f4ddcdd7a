//! Options of the kernel's ext4 that only tune it: its allocator, read-ahead and threads. They are
//! accepted with the values that the kernel accepts, and do nothing here.

use stetfs::low::options::Value::{Flag, Number, Text};
use stetfs::low::options::{Concern, LARGEST, OptionRow, Remount, Value};

const ALONE: Value<()> = Flag(|()| {});
const NUMBER: Value<()> = up_to(LARGEST);

const fn up_to(most: usize) -> Value<()> {
    Number {
        least: 0,
        most,
        set: |(), _| {},
    }
}

/// The options, including those that the kernel itself ignores by now.
pub(super) static KERNEL_OPTIONS: &[OptionRow<()>] = &[OptionRow {
    words: &[
        ("auto_da_alloc", ALONE),
        ("auto_da_alloc", NUMBER),
        ("noauto_da_alloc", ALONE),
        ("bh", ALONE),
        ("nobh", ALONE),
        ("block_validity", ALONE),
        ("noblock_validity", ALONE),
        ("bsddf", ALONE),
        ("nocheck", ALONE),
        ("delalloc", ALONE),
        ("nodelalloc", ALONE),
        ("dioread_lock", ALONE),
        ("dioread_nolock", ALONE),
        ("nodioread_nolock", ALONE),
        ("i_version", ALONE),
        ("init_itable", ALONE),
        ("init_itable", NUMBER),
        ("noinit_itable", ALONE),
        (
            "inode_readahead_blks",
            Text {
                form: "N",
                set: readahead,
            },
        ),
        ("journal_checksum", ALONE),
        ("nojournal_checksum", ALONE),
        ("journal_ioprio", up_to(7)),
        ("max_batch_time", NUMBER),
        ("min_batch_time", NUMBER),
        ("mb_optimize_scan", up_to(1)),
        ("no_mbcache", ALONE),
        ("nombcache", ALONE),
        ("mblk_io_submit", ALONE),
        ("nomblk_io_submit", ALONE),
        ("oldalloc", ALONE),
        ("orlov", ALONE),
        ("prefetch_block_bitmaps", ALONE),
        ("no_prefetch_block_bitmaps", ALONE),
        ("reservation", ALONE),
        ("noreservation", ALONE),
        ("stripe", NUMBER),
        ("warn_on_error", ALONE),
        ("nowarn_on_error", ALONE),
    ],
    default: "",
    help: "as the kernel's ext4 goes about things",
    concern: Concern::Program,
    remount: Remount::Changes,
}];

fn readahead(_: &mut (), text: &str) -> Result<(), String> {
    let blocks = text.parse::<u32>().ok();
    match blocks.filter(|n| *n == 0 || (n.is_power_of_two() && *n < 1 << 31)) {
        Some(_) => Ok(()),
        None => Err("inode_readahead_blks must be 0 or a power of two below 2^31".into()),
    }
}
