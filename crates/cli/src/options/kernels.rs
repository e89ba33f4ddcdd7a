//! Options of the kernel's ext4 that only say how it goes about things: how it looks for space,
//! what it reads ahead, what its threads do. They are taken as it takes them and mean nothing here.

use super::value::{Read, nothing, required};

/// Looks at a value. What is wrong is a sentence without its subject, the option.
type Check = fn(Option<&str>) -> Read<()>;

/// Those that the kernel itself passes over by now are among them.
const OPTIONS: [(&str, Check); 36] = [
    ("auto_da_alloc", number_or_nothing),
    ("noauto_da_alloc", nothing),
    ("bh", nothing),
    ("nobh", nothing),
    ("block_validity", nothing),
    ("noblock_validity", nothing),
    ("bsddf", nothing),
    ("nocheck", nothing),
    ("delalloc", nothing),
    ("nodelalloc", nothing),
    ("dioread_lock", nothing),
    ("dioread_nolock", nothing),
    ("nodioread_nolock", nothing),
    ("i_version", nothing),
    ("init_itable", number_or_nothing),
    ("noinit_itable", nothing),
    ("inode_readahead_blks", readahead),
    ("journal_checksum", nothing),
    ("nojournal_checksum", nothing),
    ("journal_ioprio", priority),
    ("max_batch_time", number),
    ("min_batch_time", number),
    ("mb_optimize_scan", zero_or_one),
    ("no_mbcache", nothing),
    ("nombcache", nothing),
    ("mblk_io_submit", nothing),
    ("nomblk_io_submit", nothing),
    ("oldalloc", nothing),
    ("orlov", nothing),
    ("prefetch_block_bitmaps", nothing),
    ("no_prefetch_block_bitmaps", nothing),
    ("reservation", nothing),
    ("noreservation", nothing),
    ("stripe", number),
    ("warn_on_error", nothing),
    ("nowarn_on_error", nothing),
];

/// Their names.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    OPTIONS.into_iter().map(|(name, _)| name)
}

/// Whether the kernel would take this value; `None` if it is none of these options.
pub(super) fn check(name: &str, value: Option<&str>) -> Option<Read<()>> {
    let (_, check) = OPTIONS.into_iter().find(|(known, _)| *known == name)?;
    Some(check(value))
}

fn parsed(value: &str) -> Read<u32> {
    value
        .parse()
        .map_err(|_| "must be a number, 0 or more".to_owned())
}

fn number(value: Option<&str>) -> Read<()> {
    required(value, parsed).map(drop)
}

fn number_or_nothing(value: Option<&str>) -> Read<()> {
    value.map_or(Ok(()), |v| parsed(v).map(drop))
}

/// A number that `is_right`, else `wrong`.
fn such(value: Option<&str>, is_right: fn(u32) -> bool, wrong: &str) -> Read<()> {
    match required(value, parsed)? {
        n if is_right(n) => Ok(()),
        _ => Err(wrong.to_owned()),
    }
}

fn zero_or_one(value: Option<&str>) -> Read<()> {
    such(value, |n| n <= 1, "must be 0 or 1")
}

fn priority(value: Option<&str>) -> Read<()> {
    such(value, |n| n <= 7, "must be a number from 0 to 7")
}

fn readahead(value: Option<&str>) -> Read<()> {
    let is_right = |n: u32| n == 0 || (n.is_power_of_two() && n < 1 << 31);
    such(value, is_right, "must be 0 or a power of two below 2^31")
}
