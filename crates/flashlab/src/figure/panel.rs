//! What a figure shows.

use serde::Serialize;

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

/// What a figure's function gives: claims and panels.
pub(super) type Parts = (Vec<[String; 3]>, Vec<Panel>);
