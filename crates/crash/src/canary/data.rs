//! Canaries in file data and in syncs.

use super::{Fault, Lab, Origin, Stress, Trial};
use crate::stress::{End, SyncBy};

/// A file is truncated and grows again.
const CUT: &str = "
    create a
    write a 0 3000 1
    truncate a 1500
    truncate a 2000
    fsync a
";
/// The sync of another file commits the map of a file whose blocks were allocated before they were
/// written.
const PREALLOCATED: &str = "
    create a
    allocate a 0 20000
    create b
    fsync a
    write a 0 20000 1
    write b 0 3000 2
    fsync b
";
/// The sync of another file commits the size of a file that grew in its last block.
const GROWS: &str = "
    create a
    write a 0 100 1
    create b
    fsync a
    append a 500 2
    write b 0 3000 3
    fsync b
";
/// A file that a commit covers is overwritten.
const OVERWRITTEN: &str = "
    create a
    write a 0 9000 1
    sync
    write a 1000 6000 2
    create b
    sync
";
/// A file that a commit covers is zeroed, and then overwritten.
const REWRITTEN: &str = "
    create a
    write a 0 20000 1
    sync
    zero a 0 12288
    write a 0 9000 2
    sync
";
/// fdatasync covers a size that fallocate set.
const ALLOCATED: &str = "
    create a
    write a 0 3000 1
    fsync a
    allocate a 3000 9000
    fdatasync a
";
/// fdatasync covers a new file.
const CREATED: &str = "
    create a
    fsync a
    create b
    fdatasync b
";
/// fdatasync covers the names in a directory.
const LISTED: &str = "
    mkdir d
    fsync d
    create d/a
    fdatasync d
";

pub(super) const ALL: &[Fault] = &[
    Fault {
        name: "show-stale",
        what: "the old content of a new block shows around the part that is written",
        from: Origin::Invented,
        set: |spec| spec.options.canary.show_stale = true,
        trials: &[Lab::named("ordered", "random").slow().trial()],
    },
    Fault {
        name: "keep-tail",
        what: "content behind the new end of a truncated file stays",
        from: Origin::Invented,
        set: |spec| spec.options.canary.keep_tail = true,
        trials: &[Lab::script("ordered", CUT).trial()],
    },
    Fault {
        name: "endless-runs",
        what: "a step that frees blocks asks for the credits of all groups that an extent may \
               reach, which no transaction of a volume with small groups holds",
        from: Origin::Own("dc6eecda"),
        set: |spec| spec.options.canary.endless_runs = true,
        trials: &[Trial::Suite(
            "ext4/src/data/content/whole.rs",
            "a_run_over_many_groups_is_freed_in_parts",
        )],
    },
    Fault {
        name: "write-on",
        what: "a write that found too little room goes on, in another transaction",
        from: Origin::Own("dc6eecda"),
        set: |spec| spec.options.canary.write_on = true,
        trials: &[Trial::Suite(
            "ext4/src/data/content/write/room_tests.rs",
            "a_write_that_goes_on_in_another_transaction_is_seen",
        )],
    },
    Fault {
        name: "convert-early",
        what: "preallocated blocks count as written before their data is",
        from: Origin::Invented,
        set: |spec| spec.options.canary.convert_early = true,
        trials: &[Lab::script("ordered", PREALLOCATED).trial()],
    },
    Fault {
        name: "size-early",
        what: "a file that grows within its last block has its new size before its data is written \
               back",
        from: Origin::Published("Linux 632eaeab1feb (ext4)"),
        set: |spec| spec.options.canary.size_early = true,
        trials: &[Lab::script("ordered", GROWS).trial()],
    },
    Fault {
        name: "drop-awaited",
        what: "data that a committing transaction waits for is dropped with blocks that a later one frees",
        from: Origin::Own("63ad468"),
        set: |spec| spec.options.canary.drop_awaited = true,
        trials: &[Trial::Suite(
            "ext4/src/data/writeback/dirty.rs",
            "a_commit_under_way_keeps_the_data_that_it_waits_for",
        )],
    },
    Fault {
        name: "forget-lost",
        what: "new blocks whose data could not be written are forgotten where they cannot be hidden",
        from: Origin::Own("7d7853ea"),
        set: |spec| spec.options.canary.forget_lost = true,
        trials: &[Trial::Suite(
            "ext4/src/data/background/lost_tests.rs",
            "what_could_not_be_hidden_stays_lost",
        )],
    },
    Fault {
        name: "overwrite-awaited",
        what: "data that a committing transaction waits for changes while it is written back, \
               where overwrites are journaled",
        from: Origin::Invented,
        set: |spec| spec.options.canary.overwrite_awaited = true,
        trials: &[Trial::Suite(
            "ext4/src/data/writeback/dirty.rs",
            "a_commit_under_way_has_the_data_as_it_was",
        )],
    },
    Fault {
        name: "overwrite-home",
        what: "an overwrite is written back, where it is to be journaled",
        from: Origin::Invented,
        set: |spec| spec.options.canary.overwrite_home = true,
        trials: &[
            Lab::script("ordered,data=overwrites", OVERWRITTEN).trial(),
            Lab::script("stet", OVERWRITTEN).trial(),
        ],
    },
    Fault {
        name: "rewrite-home",
        what: "a range that became unwritten counts as new when it is written again, where \
               overwrites are journaled",
        from: Origin::Invented,
        set: |spec| spec.options.canary.rewrite_home = true,
        trials: &[
            Lab::script("ordered,data=overwrites", REWRITTEN).trial(),
            Lab::script("stet", REWRITTEN).trial(),
        ],
    },
    Fault {
        name: "lax-fallocate",
        what: "fdatasync does not wait for a size that fallocate set",
        from: Origin::Published("Linux 281518c694a5 (f2fs)"),
        set: |spec| spec.options.canary.lax_fallocate = true,
        trials: &[Lab::script("ordered", ALLOCATED).trial()],
    },
    Fault {
        name: "lax-create",
        what: "fdatasync of a new file does not wait for the file",
        from: Origin::Own("32901dd"),
        set: |spec| spec.options.canary.lax_create = true,
        trials: &[Lab::script("ordered", CREATED).trial()],
    },
    Fault {
        name: "lax-directory",
        what: "fdatasync of a directory does not wait for its entries",
        from: Origin::Own("cc59aea"),
        set: |spec| spec.options.canary.lax_directory = true,
        trials: &[Lab::script("ordered", LISTED).trial()],
    },
    Fault {
        name: "forgive-flush",
        what: "after a flush that failed, the device is used as if nothing had been",
        from: Origin::Own("83fbf32"),
        set: |spec| spec.options.canary.forgive_flush = true,
        trials: &[
            Stress::new(End::Flush, "ordered")
                .few_files()
                .writers(8)
                .by(&[SyncBy::Fdatasync])
                .trial(),
            Trial::Model("answers", "a_failure_that_is_forgiven_is_found"),
        ],
    },
    Fault {
        name: "forgive-inner-flush",
        what: "a flush that failed inside a write counts as a write that failed",
        from: Origin::Own("80619822"),
        set: |spec| spec.options.canary.forgive_inner_flush = true,
        trials: &[Stress::new(End::Flush, "ordered")
            .few_files()
            .writers(8)
            .by(&[SyncBy::Fdatasync])
            .trial()],
    },
    Fault {
        name: "flush-alone",
        what: "a flush counts although another one beside it fails",
        from: Origin::Own("83fbf32"),
        set: |spec| spec.options.canary.flush_alone = true,
        trials: &[
            Trial::Suite(
                "block/tests/fail_stop.rs",
                "a_flush_that_waits_for_none_beside_it_succeeds_too_early",
            ),
            Trial::Model(
                "answers",
                "a_flush_that_does_not_wait_for_those_beside_it_is_found",
            ),
        ],
    },
    Fault {
        name: "join-running-flush",
        what: "a sync shares the flush under way, which may have begun before its writes ended",
        from: Origin::Invented,
        set: |spec| spec.options.canary.join_running_flush = true,
        trials: &[Trial::Model(
            "answers",
            "a_share_in_a_flush_that_began_before_is_found",
        )],
    },
    Fault {
        name: "no-next-leader",
        what: "a leader that ends wakes no thread for the requests that wait",
        from: Origin::Invented,
        set: |spec| spec.options.canary.no_next_leader = true,
        trials: &[Trial::Model(
            "answers",
            "a_lead_that_ends_without_a_next_is_found",
        )],
    },
    Fault {
        name: "signal-unlocked",
        what: "the signal of an answer does not wait for a follower that is about to sleep",
        from: Origin::Invented,
        set: |spec| spec.options.canary.signal_unlocked = true,
        trials: &[Trial::Model(
            "answers",
            "an_answer_beside_one_that_goes_to_sleep_is_found",
        )],
    },
];
