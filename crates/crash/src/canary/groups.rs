//! Canaries in atomic groups.

use super::{Fault, Lab, Origin, Trial};

/// A group of two files.
const TWO: &str = "
    create a
    write a 0 5000 1
    create b
    sync
    atomic a b
    write a 3000 4000 2
    write b 0 2000 3
    commit
";

/// The same group, written to the volume before it commits.
const EARLY: &str = "
    create a
    write a 0 5000 1
    create b
    sync
    atomic a b
    write a 3000 4000 2
    write b 0 9000 3
    fsync b
    early
    write a 0 300 4
    commit
";

pub(super) const ALL: &[Fault] = &[
    Fault {
        name: "split-group",
        what: "the files of an atomic group are in transactions of their own",
        from: Origin::Invented,
        set: |spec| spec.options.canary.split_group = true,
        trials: &[
            Lab::script("data", TWO).trial(),
            Lab::script("ldj", TWO).trial(),
            Lab::script("stet", TWO).trial(),
            Lab::script("afs", TWO).trial(),
        ],
    },
    Fault {
        name: "commit-own-lane",
        what: "the commit of an atomic group covers its own transaction alone",
        from: Origin::Invented,
        set: |spec| spec.options.canary.commit_own_lane = true,
        trials: &[Trial::Suite(
            "stetfs/tests/lanes.rs",
            "a_commit_of_a_group_covers_what_was_done_before_in_other_lanes",
        )],
    },
    Fault {
        name: "early-volatile",
        what: "data that an atomic group wrote early is not durable when the group is",
        from: Origin::Invented,
        set: |spec| spec.options.canary.early_volatile = true,
        trials: &[
            Lab::script("ldj", EARLY).trial(),
            Lab::script("stet", EARLY).trial(),
            Lab::script("data,async_commit", EARLY).trial(),
        ],
    },
    Fault {
        name: "early-at-once",
        what: "data that an atomic group writes early is the file's before the group commits",
        from: Origin::Invented,
        set: |spec| spec.options.canary.early_at_once = true,
        trials: &[
            Lab::script("data", EARLY).trial(),
            Lab::script("ldj", EARLY).trial(),
            Lab::script("afs", EARLY).trial(),
        ],
    },
    Fault {
        name: "admit-stale",
        what: "an atomic group keeps its plan of a change though it wrote early since",
        from: Origin::Invented,
        set: |spec| spec.options.canary.admit_stale = true,
        trials: &[Trial::Suite(
            "ext4/src/ops/atomic/tests/early.rs",
            "a_change_that_makes_a_group_write_early_is_whole",
        )],
    },
    Fault {
        name: "guard-grouped",
        what: "a file can be guarded (immutable, append-only) while it is in an atomic group",
        from: Origin::Invented,
        set: |spec| spec.options.canary.guard_grouped = true,
        trials: &[Trial::Suite(
            "ext4/src/ops/atomic/tests.rs",
            "a_file_is_guarded_or_in_a_group",
        )],
    },
    Fault {
        name: "record-of-group",
        what: "a file is synced by a record although it changed with others in an atomic group",
        from: Origin::Invented,
        set: |spec| spec.options.canary.record_of_group = true,
        trials: &[Trial::Suite(
            "ext4/src/ops/atomic/tests.rs",
            "a_record_does_not_take_one_file_out_of_a_group",
        )],
    },
];
