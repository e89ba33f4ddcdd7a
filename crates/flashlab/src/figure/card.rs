//! The devices on which policies are compared, and the runners on them.

use clap::ValueEnum;
use stetfs_cache::{Costs, PolicyKind};
use stetfs_flash::ftl::{Ageing, FtlKind};

use crate::run::{Setup, costs};

/// A device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Card {
    /// FAST with the times of a microSD card.
    Microsd,
    /// A page-level layer with the times of an SSD.
    Ssd,
}

impl Card {
    pub(super) const ALL: [Card; 2] = [Card::Microsd, Card::Ssd];

    pub(super) fn name(self) -> &'static str {
        match self {
            Card::Microsd => "microsd",
            Card::Ssd => "ssd",
        }
    }

    /// Sizes of the cache in MiB.
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

/// The former use of a card with BAST: a full one, and less of the mixed writes. All that they
/// leave is the content of a few log blocks, and each takes the time of a merge.
const LESS_AGED: Ageing = Ageing {
    mixed: 1.0 / 64.0,
    ..Ageing::FULL
};

/// A device with its translation layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) card: Card,
    layer: FtlKind,
}

impl Target {
    /// A device with its usual layer.
    pub(super) fn usual(card: Card) -> Target {
        let layer = match card {
            Card::Microsd => FtlKind::Fast,
            Card::Ssd => FtlKind::Page,
        };
        Target { card, layer }
    }

    /// A card with this layer.
    pub(super) fn card(layer: FtlKind) -> Target {
        Target {
            card: Card::Microsd,
            layer,
        }
    }

    pub(super) fn setup(self, runner: Runner, cache: u64) -> Setup {
        let setup = match self.card {
            Card::Microsd => Setup::microsd(runner.policy, cache),
            Card::Ssd => Setup::ssd(runner.policy, cache),
        };
        let ageing = match self.layer {
            FtlKind::Bast { .. } => LESS_AGED,
            FtlKind::Fast | FtlKind::Page => Ageing::FULL,
        };
        Setup {
            ftl: self.layer,
            ageing: Some(ageing),
            costs: runner.costs.unwrap_or(costs(self.layer)),
            ..setup
        }
    }

    /// Its name in saved points: the device, and the layer if it is not the usual one.
    pub(super) fn name(self) -> String {
        let device = self.card.name();
        match self == Target::usual(self.card) {
            true => device.to_owned(),
            false => format!("{device}, {}", self.layer),
        }
    }

    /// The name of the layer in figures.
    pub(super) fn layer(self) -> String {
        match self.layer {
            FtlKind::Page => "page-level".into(),
            FtlKind::Fast => "FAST".into(),
            FtlKind::Bast { logs: 1 } => "BAST, 1 log block".into(),
            FtlKind::Bast { logs } => format!("BAST, {logs} log blocks"),
        }
    }

    /// A description.
    pub(super) fn describe(self) -> String {
        let layer = self.layer();
        match self.card {
            Card::Microsd => format!("microSD card of 16 GiB, {layer}, erase blocks of 4 MiB"),
            Card::Ssd => format!("SSD of 16 GiB, {layer}, erase blocks of 24 MiB"),
        }
    }
}

/// A runner: a policy, with its device's costs or with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Runner {
    pub(super) policy: PolicyKind,
    pub(super) costs: Option<Costs>,
}

impl Runner {
    /// All policies with the device's costs.
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
