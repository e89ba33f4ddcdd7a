//! The figure: for each phase, the number of files by extents, and the free space by length of its
//! runs.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::backend::SVGBackend;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{PathElement, Rectangle, Text};
use plotters::style::{BLACK, Color, ShapeStyle, WHITE};

use super::report::{Report, Stage};
use crate::compare::figure::{COLOURS, style};
use crate::files::write_all;
use plotters::style::IntoTextStyle;
use plotters::style::text_anchor::HPos;

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn<T = ()> = Result<T, Box<dyn std::error::Error>>;

const WIDTH: i32 = 480;
const HEIGHT: i32 = 250;
const HEAD: i32 = 48;
const EDGE: i32 = 52;

/// The values of one peer, one for each class.
type Bars = Vec<f64>;

impl Report {
    /// Writes text, Markdown, JSON and the figure.
    ///
    /// # Errors
    /// The directory or a file cannot be written.
    pub fn write(&self, dir: &Path) -> Result<()> {
        let files = [
            ("age.txt", self.text()),
            ("age.md", self.markdown()),
            ("age.json", self.json()?),
            ("age.svg", draw(self)?),
        ];
        write_all(dir, &files)
    }
}

/// Draws two charts per phase, side by side.
fn draw(report: &Report) -> Result<String> {
    let phases = report.lives.first().map_or(0, |l| l.stages.len());
    let mut out = String::new();
    {
        let rows = i32::try_from(phases)?;
        let size = (
            u32::try_from(2 * WIDTH)?,
            u32::try_from(HEAD + rows * HEIGHT)?,
        );
        let area = SVGBackend::with_string(&mut out, size).into_drawing_area();
        paint(&area, report, phases).map_err(|e| anyhow!("drawing the figure: {e}"))?;
        area.present()
            .map_err(|e| anyhow!("drawing the figure: {e}"))?;
    }
    Ok(out)
}

fn paint(area: &Area<'_>, report: &Report, phases: usize) -> Drawn {
    area.fill(&WHITE)?;
    let left = |size| style(size, HPos::Left).into_text_style(area);
    let mut x = 10;
    for (i, life) in report.lives.iter().enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        area.draw(&Rectangle::new([(x, 12), (x + 12, 24)], colour.filled()))?;
        area.draw(&Text::new(life.peer.clone(), (x + 17, 18), left(13)))?;
        x += 50 + 8 * i32::try_from(life.peer.chars().count())?;
    }
    for phase in 0..phases {
        let stages: Vec<&Stage> = report
            .lives
            .iter()
            .filter_map(|life| life.stages.get(phase))
            .collect();
        let full = stages.first().map_or(0.0, |s| s.full * 100.0);
        let y = HEAD + HEIGHT * i32::try_from(phase)?;
        let extents: Vec<Bars> = stages
            .iter()
            .map(|s| s.aged.by_extents.iter().map(|n| *n as f64).collect())
            .collect();
        let totals: Vec<String> = stages.iter().map(|s| s.aged.extents.to_string()).collect();
        let title = format!(
            "{full:.0} % full: files by extents (in all {})",
            totals.join(", ")
        );
        chart(area, (0, y), &title, &extents, &|class| match class {
            0 | 1 => (class + 1).to_string(),
            _ => format!("–{}", 1u64 << class),
        })?;
        let free: Vec<Bars> = stages
            .iter()
            .map(|s| s.aged.free_by_length.clone())
            .collect();
        let title = format!("{full:.0} % full: free MiB by blocks of the free run");
        chart(area, (WIDTH, y), &title, &free, &|class| match class {
            0..10 => (1u64 << class).to_string(),
            _ => format!("{}k", 1u64 << (class - 10)),
        })?;
    }
    Ok(())
}

/// Draws bars by class. The scale is the square root, so that small numbers are visible beside
/// large ones.
fn chart(
    area: &Area<'_>,
    (x, y): (i32, i32),
    title: &str,
    peers: &[Bars],
    name: &dyn Fn(usize) -> String,
) -> Drawn {
    let left = style(13, HPos::Left).into_text_style(area);
    area.draw(&Text::new(title.to_owned(), (x + 10, y + 10), left))?;
    let classes = i32::try_from(peers.iter().map(Vec::len).max().unwrap_or(0).max(1))?;
    let most = peers.iter().flatten().copied().fold(1.0, f64::max);
    let (floor, room) = (y + HEIGHT - 34, HEIGHT - 64);
    #[allow(
        clippy::cast_possible_truncation,
        reason = "at most the height of the chart"
    )]
    let tall = |value: f64| ((value / most).max(0.0).sqrt() * f64::from(room)).round() as i32;
    for part in [1.0, 0.5, 0.1, 0.01] {
        let at = floor - tall(most * part);
        let line = [(x + EDGE, at), (x + WIDTH - 10, at)];
        area.draw(&PathElement::new(line, ShapeStyle::from(&BLACK.mix(0.15))))?;
        let digits = usize::from(most * part < 10.0);
        area.draw(&Text::new(
            format!("{:.digits$}", most * part),
            (x + EDGE - 4, at),
            style(10, HPos::Right).into_text_style(area),
        ))?;
    }
    let step = (WIDTH - EDGE - 14) / classes;
    let bar = ((step - 3) / i32::try_from(peers.len().max(1))?).max(1);
    for class in 0..classes {
        let at = x + EDGE + class * step;
        for (i, values) in peers.iter().enumerate() {
            let value = values.get(class as usize).copied().unwrap_or(0.0);
            let from = at + bar * i32::try_from(i)?;
            let colour = COLOURS[i % COLOURS.len()];
            area.draw(&Rectangle::new(
                [(from, floor - tall(value)), (from + bar - 1, floor)],
                colour.filled(),
            ))?;
        }
        area.draw(&Text::new(
            name(class as usize),
            (at + step / 2, floor + 12),
            style(10, HPos::Center).into_text_style(area),
        ))?;
    }
    Ok(())
}
