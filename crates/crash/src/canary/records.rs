//! Canaries in the sync records of files.

use super::fault::MIXED;
use super::{Fault, Lab, Origin, Stress, Trial};
use crate::stress::End;

pub(super) const ALL: &[Fault] = &[
    Fault {
        name: "ignore-horizon",
        what: "recovery takes superseded records of files for alive",
        from: Origin::Invented,
        set: |spec| spec.options.canary.ignore_horizon = true,
        trials: &[Lab::named("ijournal", "random").in_recovery().trial()],
    },
    Fault {
        name: "leave-recorded",
        what: "a commit does not write back the data of the records that it supersedes",
        from: Origin::Own("4564e5c"),
        set: |spec| spec.options.canary.leave_recorded = true,
        trials: &[
            Stress::new(End::Kill, "ijournal").trial(),
            Trial::Model("records", "data_that_is_left_to_its_record_is_found"),
        ],
    },
    Fault {
        name: "forget-records",
        what: "records are taken for superseded as soon as they are written",
        from: Origin::Own("4564e5c"),
        set: |spec| spec.options.canary.forget_records = true,
        trials: &[
            Stress::new(End::Kill, "ijournal")
                .few_files()
                .by(MIXED)
                .trial(),
            Trial::Model("records", "a_record_that_is_forgotten_too_early_is_found"),
        ],
    },
    Fault {
        name: "note-late",
        what: "the inode of a record is noted after the record's stamp is drawn, not under one \
               lock with it",
        from: Origin::Own("4564e5c"),
        set: |spec| spec.options.canary.note_late = true,
        trials: &[Trial::Model(
            "records",
            "a_note_that_comes_after_its_stamp_is_found",
        )],
    },
    Fault {
        name: "supersede-early",
        what: "a transaction whose changes have ended counts as one that supersedes later records",
        from: Origin::Invented,
        set: |spec| spec.options.canary.supersede_early = true,
        trials: &[Trial::Model(
            "records",
            "a_commit_that_does_not_end_the_record_is_found",
        )],
    },
    Fault {
        name: "record-volatile",
        what: "a record is not durable when the sync ends",
        from: Origin::Invented,
        set: |spec| spec.options.canary.record_volatile = true,
        trials: &[
            Lab::named("ijournal", "smoke").trial(),
            Lab::named("ijournal", "smoke").in_region().trial(),
        ],
    },
    Fault {
        name: "reuse-records",
        what: "the space of records is used again though no transaction supersedes them",
        from: Origin::Invented,
        set: |spec| spec.options.canary.reuse_records = true,
        trials: &[
            Lab::named("ijournal", "appends").slow().trial(),
            Lab::named("ijournal", "appends").in_region().slow().trial(),
        ],
    },
    Fault {
        name: "no-floor",
        what: "a transaction does not say which records it supersedes",
        from: Origin::Invented,
        set: |spec| spec.options.canary.no_floor = true,
        trials: &[Lab::named("ijournal", "random").trial()],
    },
    Fault {
        name: "floor-high",
        what: "a transaction supersedes records that are newer than it",
        from: Origin::Invented,
        set: |spec| spec.options.canary.floor_high = true,
        trials: &[Lab::named("ijournal", "random").slow().trial()],
    },
    Fault {
        name: "record-unproven",
        what: "a record counts although its data is torn",
        from: Origin::Invented,
        set: |spec| spec.options.canary.record_unproven = true,
        trials: &[Lab::named("ijournal", "random")
            .in_recovery()
            .slow()
            .trial()],
    },
    Fault {
        name: "settle-early",
        what: "a record says of others that they are durable before they are",
        from: Origin::Invented,
        set: |spec| spec.options.canary.settle_early = true,
        trials: &[Stress::new(End::Cut, "ijournal")
            .few_files()
            .writers(8)
            .trial()],
    },
    Fault {
        name: "forget-name",
        what: "a record does not say under which name its file was made",
        from: Origin::Invented,
        set: |spec| spec.options.canary.forget_name = true,
        trials: &[Lab::named("ijournal", "smoke").trial()],
    },
    Fault {
        name: "record-dataless",
        what: "a record lacks the file's data",
        from: Origin::Invented,
        set: |spec| spec.options.canary.record_dataless = true,
        trials: &[Lab::named("ijournal", "smoke").trial()],
    },
    Fault {
        name: "trust-older-record",
        what: "a sync leaves it at an older record where newer data was written back by itself",
        from: Origin::Own("e11fee1"),
        set: |spec| spec.options.canary.trust_older_record = true,
        trials: &[Stress::new(End::Kill, "ijournal")
            .few_files()
            .by(MIXED)
            .trial()],
    },
    Fault {
        name: "region-seal-early",
        what: "the word that seals a record in a region is stored with its head, before the rest",
        from: Origin::Invented,
        set: |spec| spec.options.canary.region_seal_early = true,
        trials: &[
            Lab::named("ijournal", "smoke").in_region().trial(),
            Trial::Model("region", "a_seal_that_comes_too_early_is_found"),
        ],
    },
    Fault {
        name: "region-unfenced",
        what: "nothing is fenced between a record in a region and the word that seals it",
        from: Origin::Invented,
        set: |spec| spec.options.canary.region_unfenced = true,
        trials: &[
            Lab::named("ijournal", "smoke").in_region().trial(),
            Trial::Model("region", "a_fence_that_is_left_out_is_found"),
        ],
    },
    Fault {
        name: "region-any-epoch",
        what: "records that an earlier mount left in a region count",
        from: Origin::Invented,
        set: |spec| spec.options.canary.region_any_epoch = true,
        trials: &[Trial::Suite(
            "journal/src/region/tests.rs",
            "an_earlier_mounts_records_are_found_where_the_epoch_is_not_looked_at",
        )],
    },
    Fault {
        name: "changes-of-tx",
        what: "only the change that its transaction made to a block is logged, though the block \
               was not checkpointed before",
        from: Origin::Invented,
        set: |spec| spec.options.canary.changes_of_tx = true,
        trials: &[
            Lab::named("nvm", "random").with_log_in_region().trial(),
            Trial::Model("region", "changes_that_build_on_each_other_are_found"),
        ],
    },
    Fault {
        name: "changes-of-unlike",
        what: "only the change of a block is logged, though the block could not be checkpointed \
               before",
        from: Origin::Own("7d7853ea"),
        set: |spec| spec.options.canary.changes_of_unlike = true,
        trials: &[Trial::Suite(
            "ext4/src/data/background/lost_tests.rs",
            "the_log_has_all_that_the_home_lacks",
        )],
    },
    Fault {
        name: "region-late",
        what: "a region's header is written after the log says that records are in it",
        from: Origin::Invented,
        set: |spec| spec.options.canary.region_late = true,
        trials: &[Lab::named("ijournal", "smoke").in_region().trial()],
    },
    Fault {
        name: "redo-as-user",
        what: "recovery applies records as a user's operations, which flags of the older state refuse",
        from: Origin::Own("2026-11-28"),
        set: |spec| spec.options.canary.redo_as_user = true,
        trials: &[Trial::Suite(
            "ext4/src/mount/redo_tests.rs",
            "a_file_made_in_a_directory_that_was_locked_comes_back",
        )],
    },
    Fault {
        name: "redo-unpromised",
        what: "records are promised no blocks for their recovery",
        from: Origin::Own("2026-11-28"),
        set: |spec| spec.options.canary.redo_unpromised = true,
        trials: &[Trial::Suite(
            "ext4/src/mount/redo_tests.rs",
            "records_without_their_promise_are_kept_in_lost_found",
        )],
    },
    Fault {
        name: "redo-replaced",
        what: "recovery makes a file again whose name a later record gives to another one",
        from: Origin::Own("dc6eecda"),
        set: |spec| spec.options.canary.redo_replaced = true,
        trials: &[Trial::Suite(
            "ext4/src/mount/cut_replay_tests.rs",
            "a_recovery_that_makes_replaced_files_again_is_seen",
        )],
    },
    Fault {
        name: "redo-remapped",
        what: "recovery refuses content for a block that a later record maps elsewhere",
        from: Origin::Own("2026-11-29"),
        set: |spec| spec.options.canary.redo_remapped = true,
        trials: &[Trial::Suite(
            "ext4/src/mount/cut_replay_tests.rs",
            "a_recovery_that_refuses_content_of_remapped_blocks_is_seen",
        )],
    },
];
