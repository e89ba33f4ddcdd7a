//! Faults of the checkpoint, and of lanes.

use super::{Fault, Lab, Origin, Trial};

/// Goes round the log, in transactions of a quarter of it.
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

/// One of two threads that go round the log, each in its lane, with changes of the same blocks in
/// between.
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

/// Changes before a freeze, some of them synced, and after the thaw.
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

/// The journals that a freeze is tried in.
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
        what: "the tail moves before the images are home",
        from: Origin::Invented,
        set: |spec| spec.options.canary.tail_early = true,
        trials: &[Lab::script("data", ROUND).trial()],
    },
    Fault {
        name: "home-volatile",
        what: "nothing is flushed between the images and the tail",
        from: Origin::Published("Linux 353b67d8ced4 (jbd)"),
        set: |spec| spec.options.canary.home_volatile = true,
        trials: &[Lab::script("data", ROUND).trial()],
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
        what: "of two images of a block the older goes home",
        from: Origin::Invented,
        set: |spec| spec.options.canary.older_home = true,
        trials: &[Lab::script("data", ROUND).trial()],
    },
    Fault {
        name: "live-images",
        what: "what goes home is the block as it is now, not as it was committed",
        from: Origin::Invented,
        set: |spec| spec.options.canary.live_images = true,
        trials: &[Lab::named("data", "random").slow().trial()],
    },
    Fault {
        name: "write-freed",
        what: "images of blocks that were freed still go home",
        from: Origin::Published("Linux 904cdbd41d74 (jbd2)"),
        set: |spec| spec.options.canary.write_freed = true,
        trials: &[Lab::named("ordered", "reuse").slow().trial()],
    },
    Fault {
        name: "reap-alone",
        what: "the log of one lane is used again though an older image stands in another's",
        from: Origin::Own("4564e5c"),
        set: |spec| spec.options.canary.reap_alone = true,
        trials: &[Trial::Suite(
            "journal/tests/lanes.rs",
            "an_older_image_is_not_left_alone_in_the_log",
        )],
    },
    Fault {
        name: "pass-chained",
        what: "the tail passes a transaction that is chained to another lane's before its images are home",
        from: Origin::Invented,
        set: |spec| spec.options.canary.pass_chained = true,
        trials: &[
            Lab::script("zjournal,lanes=2", TWO_LANES).trial(),
            Lab::script("zjournal,data=journal,lanes=2", TWO_LANES).trial(),
        ],
    },
    Fault {
        name: "index-late",
        what: "an image that another lane is about to log is not known to who frees its block",
        from: Origin::Own("4564e5c"),
        set: |spec| spec.options.canary.index_late = true,
        trials: &[Trial::Suite(
            "journal/tests/lanes.rs",
            "a_snapshot_has_no_later_change",
        )],
    },
    Fault {
        name: "share-volatile",
        what: "the tail passes what was shared to its home before that is flushed, and the log block is used again",
        from: Origin::Invented,
        set: |spec| spec.options.canary.share_volatile = true,
        trials: &[Lab::named("afs", "rounds").in_units().trial()],
    },
    Fault {
        name: "share-early",
        what: "images are shared to their homes before the commit block is durable",
        from: Origin::Invented,
        set: |spec| spec.options.canary.share_early = true,
        trials: &[
            Lab::named("afs", "smoke").in_units().trial(),
            Lab::named("afs,codec=frames", "smoke").in_units().trial(),
        ],
    },
    Fault {
        name: "share-older",
        what: "an older image of a block is shared to its home after the newest",
        from: Origin::Invented,
        set: |spec| spec.options.canary.share_older = true,
        trials: &[Lab::named("afs", "rounds").in_units().trial()],
    },
    Fault {
        name: "freeze-in-log",
        what: "a freeze marks the volume clean while what is committed is in the log alone",
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
