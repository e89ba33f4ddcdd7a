//! Canaries in recovery.

use super::{Fault, Lab, Origin, Trial};

pub(super) const ALL: &[Fault] = &[
    Fault {
        name: "ignore-revokes",
        what: "recovery looks at no revokes",
        from: Origin::Invented,
        set: |spec| spec.options.canary.ignore_revokes = true,
        trials: &[
            Lab::named("ordered", "reuse").in_recovery().slow().trial(),
            Lab::named("writeback", "reuse")
                .in_recovery()
                .slow()
                .trial(),
        ],
    },
    Fault {
        name: "revoke-newer",
        what: "recovery takes a revoke for one of newer images, too",
        from: Origin::Invented,
        set: |spec| spec.options.canary.revoke_newer = true,
        trials: &[Lab::named("ordered", "random").in_recovery().slow().trial()],
    },
    Fault {
        name: "skip-checksums",
        what: "recovery looks at no checksums",
        from: Origin::Invented,
        set: |spec| spec.options.canary.skip_checksums = true,
        trials: &[Lab::each(",async_commit", "orphans").in_recovery().trial()],
    },
    Fault {
        name: "trust-seal",
        what: "with async_commit, a commit block alone makes a transaction whole",
        from: Origin::Published("e2fsck 1.47, and Linux"),
        set: |spec| spec.options.canary.trust_seal = true,
        trials: &[Lab::named("ordered,async_commit", "orphans")
            .in_recovery()
            .trial()],
    },
    Fault {
        name: "any-sequence",
        what: "recovery goes on with whatever transaction stands next in the log",
        from: Origin::Invented,
        set: |spec| spec.options.canary.any_sequence = true,
        trials: &[Lab::named("data", "random").in_recovery().trial()],
    },
    Fault {
        name: "keep-escaped",
        what: "recovery leaves blank the first word of blocks that begin as the journal's do",
        from: Origin::Invented,
        set: |spec| spec.options.canary.keep_escaped = true,
        trials: &[Lab::named("data", "random").in_recovery().trial()],
    },
    Fault {
        name: "oldest-wins",
        what: "recovery takes the oldest image of a block",
        from: Origin::Invented,
        set: |spec| spec.options.canary.oldest_wins = true,
        trials: &[
            Lab::named("ordered", "smoke").in_recovery().trial(),
            Lab::named("ldj", "smoke").in_recovery().trial(),
        ],
    },
    Fault {
        name: "replay-volatile",
        what: "the log is emptied before the replayed blocks are durable",
        from: Origin::Published("Linux 353b67d8ced4 (jbd)"),
        set: |spec| spec.options.canary.replay_volatile = true,
        trials: &[Lab::named("ordered", "smoke").with_cuts().trial()],
    },
    Fault {
        name: "ignore-edges",
        what: "recovery takes a transaction without those of other lanes that it depends on",
        from: Origin::Invented,
        set: |spec| spec.options.canary.ignore_edges = true,
        trials: &[Lab::named("lanes", "threads").in_recovery().trial()],
    },
    Fault {
        name: "fast-unproven",
        what: "fast commits of Linux count whatever their checksum says",
        from: Origin::Invented,
        set: |spec| spec.options.canary.fast_unproven = true,
        trials: &[Trial::Suite(
            "ondisk/src/jbd2/fast_commit.rs",
            "a_fault_that_trusts_tails_is_seen",
        )],
    },
    Fault {
        name: "frame-unproven",
        what: "the last frame of a log is taken for whole",
        from: Origin::Invented,
        set: |spec| spec.options.canary.frame_unproven = true,
        trials: &[Lab::named("ldj", "smoke").in_recovery().trial()],
    },
    Fault {
        name: "older-header",
        what: "the older copy of the StetFS log's header counts",
        from: Origin::Invented,
        set: |spec| spec.options.canary.older_header = true,
        trials: &[Lab::named("ldj", "smoke").in_recovery().trial()],
    },
];
