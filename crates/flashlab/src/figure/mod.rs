//! Computes the figures of chapter 2 of the paper, and figure 3-10 of its chapter 3.

mod amplification;
mod card;
mod cleaning;
mod compare;
mod fitted;
mod layers;
mod matrix;
mod panel;
mod parallel;
mod patterns;
mod points;
mod scale;

use anyhow::Result;
use card::Target;
use clap::ValueEnum;

pub use card::Card;
pub use panel::{Figure, Panel, Series};
pub use scale::Scale;

/// The figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Name {
    /// Write amplification over utilisation and range.
    #[value(name = "2-1")]
    Amplification,
    /// Elapsed time and hit ratio on microSD cards.
    #[value(name = "2-4")]
    Microsd,
    /// Distribution of utilisation, mixed applications.
    #[value(name = "2-5")]
    Utilisation,
    /// Elapsed time and hit ratio on an SSD.
    #[value(name = "2-6")]
    Ssd,
    /// Amounts of requests, file server.
    #[value(name = "2-7")]
    Requests,
    /// Erase counts with FAST.
    #[value(name = "2-8")]
    ErasesFast,
    /// Erase counts with a page-level layer.
    #[value(name = "2-9")]
    ErasesPage,
    /// Write patterns over time, mixed applications.
    #[value(name = "2-10")]
    Patterns,
    /// Segments cleaned by copies and by SHARE.
    #[value(name = "3-10")]
    Cleaning,
    /// Not in the paper: elapsed time on both devices with traces that no policy was fitted to.
    HeldOut,
    /// Not in the paper: what TS-CLOCK gains by translation layer of the card.
    Layers,
    /// Not in the paper: costs fitted to one half of the traces, and judged by the other half.
    Fitted,
}

impl Name {
    /// Its number.
    pub fn number(self) -> &'static str {
        match self {
            Name::Amplification => "2-1",
            Name::Microsd => "2-4",
            Name::Utilisation => "2-5",
            Name::Ssd => "2-6",
            Name::Requests => "2-7",
            Name::ErasesFast => "2-8",
            Name::ErasesPage => "2-9",
            Name::Patterns => "2-10",
            Name::Cleaning => "3-10",
            Name::HeldOut => "held-out",
            Name::Layers => "layers",
            Name::Fitted => "fitted",
        }
    }

    /// Whether it runs traces that can be cut.
    pub fn has_cuts(self) -> bool {
        matches!(
            self,
            Name::Microsd
                | Name::Ssd
                | Name::ErasesFast
                | Name::ErasesPage
                | Name::HeldOut
                | Name::Layers
        )
    }

    /// Whether it runs on both devices.
    pub fn has_devices(self) -> bool {
        matches!(self, Name::HeldOut | Name::Fitted)
    }

    /// Whether the sizes of the cache can be chosen.
    pub fn has_caches(self) -> bool {
        self.has_cuts() || matches!(self, Name::Requests | Name::Fitted)
    }

    /// Whether the card's translation layer can be chosen.
    pub fn has_layer(self) -> bool {
        matches!(self, Name::Microsd | Name::ErasesFast | Name::HeldOut)
    }

    /// Whether it is not in the paper. These figures also run recorded traces.
    pub fn is_ours(self) -> bool {
        matches!(self, Name::HeldOut | Name::Layers | Name::Fitted)
    }

    /// A description of the parameters.
    fn setup(self, scale: &Scale) -> String {
        let on = |target: Target, what: String| {
            let sizes: Vec<String> = scale.sizes(target).iter().map(u64::to_string).collect();
            format!("{what}, cache {} MiB", sizes.join(", "))
        };
        let card = |target: Target| on(target, target.describe());
        let what = match self {
            Name::Amplification => amplification::SETUP.to_owned(),
            Name::Microsd | Name::ErasesFast => card(scale.card()),
            Name::Ssd | Name::ErasesPage | Name::Requests => card(Target::usual(Card::Ssd)),
            Name::Utilisation | Name::Patterns => patterns::SETUP.to_owned(),
            Name::Cleaning => cleaning::SETUP.to_owned(),
            Name::HeldOut | Name::Fitted => {
                let cards: Vec<String> = scale.targets().into_iter().map(card).collect();
                cards.join("; ")
            }
            Name::Layers => on(scale.card(), layers::SETUP.to_owned()),
        };
        let steady = if scale.steady { "; steady state" } else { "" };
        let quick = if scale.quick { "; a first look" } else { "" };
        let quick = format!("{steady}{quick}");
        match scale.seeds {
            0 | 1 => format!("{what}; seed {}{quick}", scale.seed),
            n => format!(
                "{what}; seeds {} to {}{quick}",
                scale.seed,
                scale.seed + n - 1
            ),
        }
    }

    /// Computes the figure.
    ///
    /// # Errors
    /// A point cannot be saved or loaded. The devices themselves are possible.
    pub fn compute(self, scale: &Scale) -> Result<Figure> {
        let ssd = Target::usual(Card::Ssd);
        let (paper, (claims, panels)) = match self {
            Name::Amplification => (amplification::PAPER, amplification::compute(scale)?),
            Name::Microsd => (matrix::MICROSD, matrix::times(scale.card(), scale)?),
            Name::Utilisation => (patterns::UTILISATION, patterns::utilisation(scale)?),
            Name::Ssd => (matrix::SSD, matrix::times(ssd, scale)?),
            Name::Requests => (matrix::REQUESTS, matrix::requests(scale)?),
            Name::ErasesFast => (matrix::ERASES_FAST, matrix::erases(scale.card(), scale)?),
            Name::ErasesPage => (matrix::ERASES_PAGE, matrix::erases(ssd, scale)?),
            Name::Patterns => (patterns::PATTERNS, patterns::patterns(scale)?),
            Name::Cleaning => (cleaning::PAPER, cleaning::compute(scale)?),
            Name::HeldOut => (matrix::HELD_OUT, matrix::held_out(scale)?),
            Name::Layers => (layers::PAPER, layers::compute(scale)?),
            Name::Fitted => (fitted::PAPER, fitted::compute(scale)?),
        };
        Ok(Figure {
            name: self.number().to_owned(),
            setup: self.setup(scale),
            ours: self.is_ours(),
            quick: scale.quick,
            paper,
            claims,
            panels,
        })
    }
}
