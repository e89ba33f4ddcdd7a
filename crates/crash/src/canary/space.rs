//! Canaries in the accounting of space, inodes and names.

use super::{Fault, Lab, Origin, Trial};

pub(super) const ALL: &[Fault] = &[
    Fault {
        name: "reuse-early",
        what: "blocks are handed out again before the transaction that freed them is valid",
        from: Origin::Invented,
        set: |spec| spec.options.canary.reuse_early = true,
        trials: &[
            Lab::named("ordered", "random").trial(),
            Lab::named("ijournal", "random").slow().trial(),
        ],
    },
    Fault {
        name: "free-unrevoked",
        what: "freed blocks that went through the journal are not revoked",
        from: Origin::Invented,
        set: |spec| spec.options.canary.free_unrevoked = true,
        trials: &[Lab::named("ordered", "reuse").slow().trial()],
    },
    Fault {
        name: "unlogged-bitmap",
        what: "a changed block bitmap is in no transaction",
        from: Origin::Invented,
        set: |spec| spec.options.canary.unlogged_bitmap = true,
        trials: &[Lab::named("ordered", "smoke").trial()],
    },
    Fault {
        name: "unlogged-inode-bitmap",
        what: "a changed inode bitmap is in no transaction",
        from: Origin::Invented,
        set: |spec| spec.options.canary.unlogged_inode_bitmap = true,
        trials: &[Lab::named("ordered", "smoke").trial()],
    },
    Fault {
        name: "unlogged-descriptor",
        what: "changed group descriptors are in no transaction",
        from: Origin::Invented,
        set: |spec| spec.options.canary.unlogged_descriptor = true,
        trials: &[Lab::named("ordered", "smoke").trial()],
    },
    Fault {
        name: "skip-orphan",
        what: "orphans are not recorded",
        from: Origin::Invented,
        set: |spec| spec.options.canary.skip_orphan = true,
        trials: &[Lab::named("ordered", "orphans").trial()],
    },
    Fault {
        name: "leave-orphans",
        what: "orphans of an earlier mount are not finished",
        from: Origin::Invented,
        set: |spec| spec.options.canary.leave_orphans = true,
        trials: &[Lab::named("ordered", "orphans").in_recovery().trial()],
    },
    Fault {
        name: "truncated-orphan",
        what: "a nameless file that is truncated is no orphan any more",
        from: Origin::Own("dcd6a31"),
        set: |spec| spec.options.canary.truncated_orphan = true,
        trials: &[
            Lab::named("ordered", "smoke").trial(),
            Lab::named("ordered", "orphans").slow().trial(),
        ],
    },
    Fault {
        name: "unlogged-names",
        what: "a changed directory block is in no transaction",
        from: Origin::Invented,
        set: |spec| spec.options.canary.unlogged_names = true,
        trials: &[Lab::named("ordered", "smoke").trial()],
    },
    Fault {
        name: "drop-any-inode",
        what: "a deletion takes whatever inode has the same number out of the cache",
        from: Origin::Own("364438b"),
        set: |spec| spec.options.canary.drop_any_inode = true,
        trials: &[Trial::Suite(
            "ext4/src/inode/tests.rs",
            "a_new_file_with_the_number_of_a_deleted_one_stays",
        )],
    },
    Fault {
        name: "late-descriptor",
        what: "a group's descriptor is read after its bitmap has changed: if that read fails, half \
               of the change is done",
        from: Origin::Own("dc6eecda"),
        set: |spec| spec.options.canary.late_descriptor = true,
        trials: &[Trial::Suite(
            "ext4/tests/volume/reads.rs",
            "a_descriptor_that_is_read_late_is_seen",
        )],
    },
    Fault {
        name: "leaf-unlocked",
        what: "opening a quota account writes its leaf back with the older content of other \
               accounts",
        from: Origin::Own("dc6eecda"),
        set: |spec| spec.options.canary.leaf_unlocked = true,
        trials: &[Trial::Suite(
            "ext4/src/quota/tests.rs",
            "an_account_is_opened_beside_changes_of_others",
        )],
    },
];
