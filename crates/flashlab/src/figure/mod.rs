//! The figures of the paper's chapter 2, and 3-10 of its chapter 3, computed.

mod amplification;
mod cleaning;
mod compare;
mod fitted;
mod matrix;
mod patterns;
mod points;

use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;
use serde::Serialize;

pub use points::Card;

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
    /// Which pages are written when, mixed applications.
    #[value(name = "2-10")]
    Patterns,
    /// Segments cleaned by copies and by SHARE.
    #[value(name = "3-10")]
    Cleaning,
    /// Of no paper: elapsed time on both devices with traces that no policy was fitted to.
    HeldOut,
    /// Of no paper: costs fitted to one half of the traces, and judged by the other.
    Fitted,
}

/// One panel.
#[derive(Clone, Debug, Serialize)]
pub struct Panel {
    /// What it shows.
    pub title: String,
    /// Along and up.
    pub axes: [String; 2],
    /// The curves, or clouds.
    pub series: Vec<Series>,
    /// Whether points are joined.
    pub joined: bool,
    /// Whether distances along are those of a logarithm.
    pub logarithmic: bool,
}

/// Points under a name.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// Whose.
    pub name: String,
    /// Along and up.
    pub points: Vec<(f64, f64)>,
}

/// A figure.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Its number.
    pub name: String,
    /// What it was computed with.
    pub setup: String,
    /// It is of no paper.
    pub ours: bool,
    /// A first look, whose claims do not count.
    pub quick: bool,
    /// What the paper has.
    pub paper: &'static str,
    /// Beside the paper's: what was claimed, its number and ours.
    pub claims: Vec<[String; 3]>,
    /// Its panels.
    pub panels: Vec<Panel>,
}

/// How large.
#[derive(Clone, Debug, Default)]
pub struct Scale {
    /// A first look: a part of the traces, and fewer sizes.
    pub quick: bool,
    /// The seed of the traces.
    pub seed: u64,
    /// How many seeds are run from that one on, where traces are; at least one.
    pub seeds: u64,
    /// Where traces end beside their own ends, 0 to 1.
    pub cuts: Vec<f64>,
    /// Whether a trace is first run until its device is in a steady state.
    pub steady: bool,
    /// The devices of figures that run on both; none are all.
    pub cards: Vec<Card>,
    /// A directory of recorded traces: those of held-out, in place of what is generated; for the
    /// fitted costs to be judged by, too.
    pub recorded: Option<PathBuf>,
    /// Where each point of a matrix is kept as soon as it is done, and looked for.
    pub save: Option<PathBuf>,
}

impl Scale {
    /// The devices of a figure that runs on both.
    fn cards(&self) -> &[Card] {
        match self.cards.as_slice() {
            [] => &Card::ALL,
            some => some,
        }
    }
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
            Name::Fitted => "fitted",
        }
    }

    /// Whether it runs traces that can be cut.
    pub fn has_cuts(self) -> bool {
        matches!(
            self,
            Name::Microsd | Name::Ssd | Name::ErasesFast | Name::ErasesPage | Name::HeldOut
        )
    }

    /// Whether it runs on both devices.
    pub fn has_devices(self) -> bool {
        matches!(self, Name::HeldOut | Name::Fitted)
    }

    /// What it is computed with.
    fn setup(self, scale: &Scale) -> String {
        let card = |card: points::Card| {
            let sizes: Vec<String> = card.sizes(scale.quick).iter().map(u64::to_string).collect();
            format!("{}, cache {} MiB", card.describe(), sizes.join(", "))
        };
        let what = match self {
            Name::Amplification => amplification::SETUP.to_owned(),
            Name::Microsd | Name::ErasesFast => card(points::Card::Microsd),
            Name::Ssd | Name::ErasesPage | Name::Requests => card(points::Card::Ssd),
            Name::Utilisation | Name::Patterns => patterns::SETUP.to_owned(),
            Name::Cleaning => cleaning::SETUP.to_owned(),
            Name::HeldOut | Name::Fitted => {
                let cards: Vec<String> = scale.cards().iter().copied().map(card).collect();
                cards.join("; ")
            }
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

    /// Computes it.
    ///
    /// # Errors
    /// A device that cannot be; none of these. A point that cannot be kept.
    pub fn compute(self, scale: &Scale) -> Result<Figure> {
        let (paper, (claims, panels)) = match self {
            Name::Amplification => (amplification::PAPER, amplification::compute(scale)?),
            Name::Microsd => (
                matrix::MICROSD,
                matrix::times(points::Card::Microsd, scale)?,
            ),
            Name::Utilisation => (patterns::UTILISATION, patterns::utilisation(scale)?),
            Name::Ssd => (matrix::SSD, matrix::times(points::Card::Ssd, scale)?),
            Name::Requests => (matrix::REQUESTS, matrix::requests(scale)?),
            Name::ErasesFast => (
                matrix::ERASES_FAST,
                matrix::erases(points::Card::Microsd, scale)?,
            ),
            Name::ErasesPage => (
                matrix::ERASES_PAGE,
                matrix::erases(points::Card::Ssd, scale)?,
            ),
            Name::Patterns => (patterns::PATTERNS, patterns::patterns(scale)?),
            Name::Cleaning => (cleaning::PAPER, cleaning::compute(scale)?),
            Name::HeldOut => (matrix::HELD_OUT, matrix::held_out(scale)?),
            Name::Fitted => (fitted::PAPER, fitted::compute(scale)?),
        };
        Ok(Figure {
            name: self.number().to_owned(),
            setup: self.setup(scale),
            ours: self.has_devices(),
            quick: scale.quick,
            paper,
            claims,
            panels,
        })
    }
}

/// What a figure's function gives: claims and panels.
type Parts = (Vec<[String; 3]>, Vec<Panel>);

/// Calls `one` for each of `jobs` on all processors; the answers in the order of the jobs.
fn parallel<J: Sync, A: Send>(jobs: &[J], one: impl Fn(&J) -> Result<A> + Sync) -> Result<Vec<A>> {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let work = || {
        let mut done = Vec::new();
        while let Some((at, job)) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            jobs.get(at).map(|job| (at, job))
        } {
            done.push((at, one(job)));
        }
        done
    };
    let mut all: Vec<(usize, Result<A>)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.min(jobs.len()))
            .map(|_| scope.spawn(work))
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Vec<(usize, Result<A>)>>| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().flat_map(join).collect()
    });
    all.sort_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, answer)| answer).collect()
}
