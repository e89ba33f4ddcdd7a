//! Canaries in the commit.

use super::{Fault, Lab, Origin, Trial};

pub(super) const ALL: &[Fault] = &[
    Fault {
        name: "no-barrier",
        what: "commits and checkpoints do not flush",
        from: Origin::Invented,
        set: |spec| spec.options.canary.no_barrier = true,
        trials: &[Lab::each("", "smoke").trial()],
    },
    Fault {
        name: "seal-early",
        what: "the commit block goes out with its transaction, under one flush",
        from: Origin::Invented,
        set: |spec| spec.options.canary.seal_early = true,
        trials: &[Lab::named("ordered", "smoke").trial()],
    },
    Fault {
        name: "seal-volatile",
        what: "the commit block is not durable when the commit ends",
        from: Origin::Invented,
        set: |spec| spec.options.canary.seal_volatile = true,
        trials: &[Lab::named("ordered", "smoke").trial()],
    },
    Fault {
        name: "body-volatile",
        what: "nothing is flushed before the commit block",
        from: Origin::Invented,
        set: |spec| spec.options.canary.body_volatile = true,
        trials: &[
            Lab::named("ordered", "smoke").trial(),
            Lab::named("data", "smoke").trial(),
        ],
    },
    Fault {
        name: "short-tags",
        what: "a descriptor names one image less than follow it",
        from: Origin::Invented,
        set: |spec| spec.options.canary.short_tags = true,
        trials: &[Lab::named("ordered", "smoke").trial()],
    },
    Fault {
        name: "drop-revokes",
        what: "revokes are not logged",
        from: Origin::Invented,
        set: |spec| spec.options.canary.drop_revokes = true,
        trials: &[
            Lab::named("ordered", "reuse").slow().trial(),
            Lab::named("writeback", "reuse").slow().trial(),
        ],
    },
    Fault {
        name: "unsummed-seal",
        what: "the commit block has no checksum",
        from: Origin::Invented,
        set: |spec| spec.options.canary.unsummed_seal = true,
        trials: &[Lab::named("ordered", "smoke").trial()],
    },
    Fault {
        name: "unmarked-start",
        what: "the first commit to an empty log does not say where the log begins",
        from: Origin::Invented,
        set: |spec| spec.options.canary.unmarked_start = true,
        trials: &[
            Lab::named("ordered", "smoke").trial(),
            Lab::named("ldj", "smoke").trial(),
        ],
    },
    Fault {
        name: "revoke-all",
        what: "revokes are logged of blocks that are out of the log, and take more than a ring",
        from: Origin::Own("7d7853ea"),
        set: |spec| spec.options.canary.revoke_all = true,
        trials: &[Trial::Suite(
            "journal/tests/room.rs",
            "what_no_ring_holds_is_an_error",
        )],
    },
    Fault {
        name: "unordered-data",
        what: "a commit does not wait for the data of new blocks",
        from: Origin::Invented,
        set: |spec| spec.options.canary.unordered_data = true,
        trials: &[Lab::named("ordered", "random").trial()],
    },
    Fault {
        name: "one-directional-edge",
        what: "a transaction that changes a block of another lane's running transaction depends on \
               it, but not the other way round",
        from: Origin::Invented,
        set: |spec| spec.options.canary.one_directional_edge = true,
        trials: &[
            Lab::named("zjournal,lanes=2", "threads").trial(),
            Lab::named("zjournal,data=journal,lanes=2", "threads").trial(),
            Trial::Model("lanes", "a_change_that_is_not_chained_is_found"),
        ],
    },
    Fault {
        name: "group-early",
        what: "a group of lanes ends its changes although a transaction outside is chained to it",
        from: Origin::Invented,
        set: |spec| spec.options.canary.group_early = true,
        trials: &[Trial::Model(
            "lanes",
            "a_group_that_ends_too_early_is_found",
        )],
    },
    Fault {
        name: "out-of-turn",
        what: "a transaction is written though the one before it in its lane is not durable",
        from: Origin::Invented,
        set: |spec| spec.options.canary.out_of_turn = true,
        trials: &[
            Trial::Model(
                "lanes",
                "a_transaction_that_is_written_out_of_turn_is_found",
            ),
            Trial::Suite("journal/tests/apart.rs", "a_lane_is_written_in_its_order"),
        ],
    },
    Fault {
        name: "answer-unsettled",
        what: "a sync is answered before the callbacks of its transactions have run",
        from: Origin::Invented,
        set: |spec| spec.options.canary.answer_unsettled = true,
        trials: &[
            Trial::Model("lanes", "an_answer_before_the_callbacks_is_found"),
            Trial::Suite(
                "journal/tests/apart.rs",
                "an_answer_comes_after_the_callbacks",
            ),
        ],
    },
    Fault {
        name: "skip-capture",
        what: "a snapshot lacks the image of a block that another lane changes meanwhile",
        from: Origin::Invented,
        set: |spec| spec.options.canary.skip_capture = true,
        trials: &[Trial::Model(
            "lanes",
            "an_image_that_is_not_captured_is_found",
        )],
    },
    Fault {
        name: "fua-early",
        what: "frames go out with FUA though earlier writes are not durable",
        from: Origin::Invented,
        set: |spec| spec.options.canary.fua_early = true,
        trials: &[Lab::named("lanes", "overwrites").fua().trial()],
    },
    Fault {
        name: "late-data",
        what: "where a commit is one flush, data goes out under it, and not before",
        from: Origin::Invented,
        set: |spec| spec.options.canary.late_data = true,
        trials: &[Lab::named("ordered,async_commit", "random").trial()],
    },
];
