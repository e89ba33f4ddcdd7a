//! Canaries in the checkpoint and in lanes.

use super::{Fault, Lab, Origin, Trial};

/// Fills the log once around, in transactions of a quarter of it.
const ROUND: &str = "
    create a
    write a 0 150000 1
    fsync a
    write a 0 150000 2
    fsync a
    write a 0 150000 3
    fsync a
    write a 0 150000 4
    fsync a
    write a 0 150000 5
    fsync a
    write a 0 150000 6
    fsync a
    write a 0 150000 7
    fsync a
    write a 0 150000 8
    fsync a
    write a 0 150000 9
    fsync a
    write a 0 150000 10
    fsync a
    write a 0 150000 11
    fsync a
";

/// The script of one of two threads that fill the log once around, each in its lane, and change the
/// same blocks in between.
macro_rules! round_in_a_lane {
    () => {
        "
    create a
    create b
    write a 0 50000 1
    fsync a
    write b 0 50000 2
    fsync b
    write a 0 50000 3
    sync
    write b 0 50000 4
    fsync b
    write a 0 50000 5
    fsync a
    write b 0 50000 6
    fsync b
    write a 0 50000 7
    fsync a
"
    };
}

/// Changes before a freeze, some of them synced, and a change after the thaw.
const FREEZE: &str = "
    create a
    write a 0 5000 1
    fsync a
    write a 3000 9000 2
    create b
    freeze
    thaw
    write a 2000 4000 3
    fsync a
    create c
    fsync c
";

/// The journals that a freeze is tried with.
macro_rules! frozen {
    () => {
        &[
            Lab::script("ordered", FREEZE).trial(),
            Lab::script("data", FREEZE).trial(),
            Lab::script("ldj", FREEZE).trial(),
            Lab::script("stet", FREEZE).trial(),
            Lab::script("zjournal,lanes=2", FREEZE).trial(),
            Lab::script("afs", FREEZE).in_units().trial(),
            Lab::script("nvm", FREEZE).with_log_in_region().trial(),
        ]
    };
}

const TWO_LANES: &str = concat!(round_in_a_lane!(), "    thread", round_in_a_lane!());

pub(super) const ALL: &[Fault] = &[
    Fault {
        name: "tail-early",
        what: "the tail moves before the images are at their home locations",
        from: Origin::Invented,
        set: |spec| spec.options.canary.tail_early = true,
        trials: &[Lab::script("data", ROUND).trial()],
    },
    Fault {
        name: "home-volatile",
        what: "nothing is flushed between the images and the tail",
        from: Origin::Published("Linux 353b67d8ced4 (jbd)"),
        set: |spec| spec.options.canary.home_volatile = true,
        trials: &[
            Lab::script("data", ROUND).trial(),
            Trial::Model("lanes", "a_tail_that_moves_too_early_is_found"),
            Trial::Model("region", "a_tail_that_moves_too_early_is_found"),
        ],
    },
    Fault {
        name: "tail-volatile",
        what: "the tail is not durable when the space before it is used again",
        from: Origin::Published("Linux fd2cbd4dfa3d (jbd)"),
        set: |spec| spec.options.canary.tail_volatile = true,
        trials: &[Lab::script("data", ROUND).trial()],
    },
    Fault {
        name: "older-home",
        what: "of two images of a block the older is checkpointed",
        from: Origin::Invented,
        set: |spec| spec.options.canary.older_home = true,
        trials: &[Lab::script("data", ROUND).trial()],
    },
    Fault {
        name: "live-images",
        what: "a checkpoint writes the block as it is now, not as it was committed",
        from: Origin::Invented,
        set: |spec| spec.options.canary.live_images = true,
        trials: &[Lab::named("data", "random").slow().trial()],
    },
    Fault {
        name: "write-freed",
        what: "images of blocks that were freed are still checkpointed",
        from: Origin::Published("Linux 904cdbd41d74 (jbd2)"),
        set: |spec| spec.options.canary.write_freed = true,
        trials: &[Lab::named("ordered", "reuse").slow().trial()],
    },
    Fault {
        name: "reap-alone",
        what: "the log of one lane is used again though an older image stands in another's",
        from: Origin::Own("4564e5c"),
        set: |spec| spec.options.canary.reap_alone = true,
        trials: &[
            Trial::Suite(
                "journal/tests/lanes.rs",
                "an_older_image_is_not_left_alone_in_the_log",
            ),
            Trial::Model("lanes", "an_older_image_that_is_left_alone_is_found"),
        ],
    },
    Fault {
        name: "pass-chained",
        what: "the tail passes a transaction that is chained to another lane's before its images \
               are checkpointed",
        from: Origin::Invented,
        set: |spec| spec.options.canary.pass_chained = true,
        trials: &[
            Lab::script("zjournal,lanes=2", TWO_LANES).trial(),
            Lab::script("zjournal,data=journal,lanes=2", TWO_LANES).trial(),
        ],
    },
    Fault {
        name: "index-late",
        what: "an operation that frees a block does not know of the image that another lane is \
               about to log",
        from: Origin::Own("4564e5c"),
        set: |spec| spec.options.canary.index_late = true,
        trials: &[
            Trial::Suite("journal/tests/lanes.rs", "a_snapshot_has_no_later_change"),
            Trial::Model("lanes", "an_image_that_is_known_too_late_is_found"),
        ],
    },
    Fault {
        name: "free-in-flight",
        what: "a transaction becomes valid although a block that it freed is still being \
               checkpointed",
        from: Origin::Invented,
        set: |spec| spec.options.canary.free_in_flight = true,
        trials: &[Trial::Model(
            "lanes",
            "a_home_write_that_comes_too_late_is_found",
        )],
    },
    Fault {
        name: "forget-reaped",
        what: "the images of freed log space count as gone before the new tail is durable",
        from: Origin::Own("0efd07d8"),
        set: |spec| spec.options.canary.forget_reaped = true,
        trials: &[Trial::Model(
            "lanes",
            "an_image_that_is_forgotten_too_early_is_found",
        )],
    },
    Fault {
        name: "tails-apart",
        what: "another write of a tail comes between tails that move together",
        from: Origin::Own("0efd07d8"),
        set: |spec| spec.options.canary.tails_apart = true,
        trials: &[Trial::Model(
            "lanes",
            "tails_that_do_not_move_together_are_found",
        )],
    },
    Fault {
        name: "leave-horizon",
        what: "the tails move without the horizon of the records",
        from: Origin::Invented,
        set: |spec| spec.options.canary.leave_horizon = true,
        trials: &[Trial::Model(
            "lanes",
            "a_horizon_that_stays_behind_is_found",
        )],
    },
    Fault {
        name: "share-volatile",
        what: "the tail passes blocks that were shared to their home locations before a flush, and \
               the log block is used again",
        from: Origin::Invented,
        set: |spec| spec.options.canary.share_volatile = true,
        trials: &[Lab::named("afs", "rounds").in_units().trial()],
    },
    Fault {
        name: "share-early",
        what: "images are shared to their home locations before the commit block is durable",
        from: Origin::Invented,
        set: |spec| spec.options.canary.share_early = true,
        trials: &[
            Lab::named("afs", "smoke").in_units().trial(),
            Lab::named("afs,codec=frames", "smoke").in_units().trial(),
        ],
    },
    Fault {
        name: "share-older",
        what: "an older image of a block is shared to its home location after the newest",
        from: Origin::Invented,
        set: |spec| spec.options.canary.share_older = true,
        trials: &[Lab::named("afs", "rounds").in_units().trial()],
    },
    Fault {
        name: "freeze-in-log",
        what: "a freeze marks the volume clean while committed changes are in the log alone",
        from: Origin::Invented,
        set: |spec| spec.options.canary.freeze_in_log = true,
        trials: frozen!(),
    },
    Fault {
        name: "thaw-unmarked",
        what: "a thawed volume is not marked as in use before the first change",
        from: Origin::Invented,
        set: |spec| spec.options.canary.thaw_unmarked = true,
        trials: frozen!(),
    },
    Fault {
        name: "use-at-rest",
        what: "handles and records of a frozen volume do not wait for the thaw",
        from: Origin::Own("7d7853ea"),
        set: |spec| spec.options.canary.use_at_rest = true,
        trials: &[Trial::Suite(
            "journal/tests/rest.rs",
            "a_write_at_rest_stops_the_journal",
        )],
    },
];
