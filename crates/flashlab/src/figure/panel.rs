//! Figures and their panels.

use serde::Serialize;

/// One panel.
#[derive(Clone, Debug, Serialize)]
pub struct Panel {
    /// The title.
    pub title: String,
    /// Labels of the horizontal and the vertical axis.
    pub axes: [String; 2],
    /// The curves, or clouds.
    pub series: Vec<Series>,
    /// Whether points are joined.
    pub joined: bool,
    /// Whether the horizontal axis is logarithmic.
    pub logarithmic: bool,
}

/// A named series of points.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// The name.
    pub name: String,
    /// Horizontal and vertical values.
    pub points: Vec<(f64, f64)>,
}

/// A figure.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Its number.
    pub name: String,
    /// The parameters of the computation.
    pub setup: String,
    /// Whether it is not in the paper.
    pub ours: bool,
    /// Whether it is a first look, whose claims do not count.
    pub quick: bool,
    /// The content of the paper's figure.
    pub paper: &'static str,
    /// The comparison with the paper: claim, the paper's number, our number.
    pub claims: Vec<[String; 3]>,
    /// Its panels.
    pub panels: Vec<Panel>,
}

/// The result of a figure's function: claims and panels.
pub(super) type Parts = (Vec<[String; 3]>, Vec<Panel>);
