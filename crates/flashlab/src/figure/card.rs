//! The devices that policies are compared on, and who runs on them.

use clap::ValueEnum;
use stetfs_cache::{Costs, PolicyKind};

use crate::run::Setup;

/// The devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Card {
    /// FAST with the times of a microSD card.
    Microsd,
    /// A page-level layer with the times of an SSD.
    Ssd,
}

impl Card {
    pub(super) const ALL: [Card; 2] = [Card::Microsd, Card::Ssd];

    pub(super) fn setup(self, runner: Runner, cache: u64) -> Setup {
        let setup = match self {
            Card::Microsd => Setup::microsd(runner.policy, cache),
            Card::Ssd => Setup::ssd(runner.policy, cache),
        };
        Setup {
            costs: runner.costs.unwrap_or(setup.costs),
            ..setup
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Card::Microsd => "microsd",
            Card::Ssd => "ssd",
        }
    }

    /// In words.
    pub(super) fn describe(self) -> &'static str {
        match self {
            Card::Microsd => "microSD card of 16 GiB, FAST, erase blocks of 4 MiB",
            Card::Ssd => "SSD of 16 GiB, page-level, erase blocks of 24 MiB",
        }
    }

    /// Sizes of the cache, MiB.
    pub(super) fn sizes(self, quick: bool) -> Vec<u64> {
        let sizes = match self {
            Card::Microsd => [4, 8, 16, 32, 64],
            Card::Ssd => [32, 64, 128, 256, 512],
        };
        match quick {
            false => sizes.to_vec(),
            true => vec![sizes[0], sizes[2]],
        }
    }
}

/// Who runs: a policy, with its device's costs or with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Runner {
    pub(super) policy: PolicyKind,
    pub(super) costs: Option<Costs>,
}

impl Runner {
    /// Every policy, as it is.
    pub(super) fn all() -> Vec<Runner> {
        let all = PolicyKind::ALL.into_iter();
        all.map(|policy| Runner {
            policy,
            costs: None,
        })
        .collect()
    }

    pub(super) fn name(self) -> String {
        match self.costs {
            None => self.policy.name().to_owned(),
            Some(Costs {
                write, visit, rest, ..
            }) => format!(
                "{} (write {write}, visit {visit}, rest {rest})",
                self.policy
            ),
        }
    }
}
