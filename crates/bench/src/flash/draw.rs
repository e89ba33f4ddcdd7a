//! Drawings of panels with curves and scatter plots, two in a row.

use anyhow::{Result, anyhow};
use plotters::backend::SVGBackend;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{Circle, PathElement, Rectangle, Text};
use plotters::style::text_anchor::HPos;
use plotters::style::{BLACK, Color, FontTransform, IntoTextStyle, ShapeStyle, WHITE};
use stetfs_flashlab::figure::{Figure, Panel};

use crate::compare::figure::{COLOURS, style};

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// The note about quick runs.
pub(super) const QUICK: &str = "A first look (--quick): parts of the traces, small devices. What it says of the claims does not count.";

const WIDTH: i32 = 480;
const HEIGHT: i32 = 300;
/// Margins around the curves, pixels.
const LEFT: i32 = 76;
const RIGHT: i32 = 14;
const ABOVE: i32 = 26;
const BELOW: i32 = 42;

/// Height of a line of the head, pixels, and the characters that fit into it.
const LINE: i32 = 15;
const CHARACTERS: usize = 150;

/// Draws a figure: title, parameters, the paper's numbers, the names of the curves, then all
/// panels.
pub(super) fn draw(figure: &Figure) -> Result<String> {
    let whose = if figure.ours { "ours" } else { "Kang, 2017" };
    let mut title = vec![format!(
        "Figure {} ({whose}): {}",
        figure.name, figure.setup
    )];
    if figure.quick {
        title.push(QUICK.to_owned());
    }
    panels(title, figure.paper, &figure.panels)
}

/// Draws panels below lines of their title and the paper's numbers.
pub(crate) fn panels(title: Vec<String>, paper: &str, panels: &[Panel]) -> Result<String> {
    let head = head(title, paper);
    let rows = i32::try_from(panels.len().div_ceil(2))?;
    let above = LINE * (i32::try_from(head.len())? + 2);
    let size = (
        u32::try_from(2 * WIDTH)?,
        u32::try_from(above + rows * HEIGHT)?,
    );
    let mut out = String::new();
    {
        let area = SVGBackend::with_string(&mut out, size).into_drawing_area();
        paint(&area, &head, panels).map_err(|e| anyhow!("drawing the figure: {e}"))?;
        area.present()
            .map_err(|e| anyhow!("drawing the figure: {e}"))?;
    }
    Ok(out)
}

/// The lines above the panels.
fn head(mut lines: Vec<String>, paper: &str) -> Vec<String> {
    let mut line = "The paper:".to_owned();
    for word in paper.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > CHARACTERS {
            lines.push(std::mem::take(&mut line));
        }
        line.push(' ');
        line.push_str(word);
    }
    lines.push(line);
    lines
}

fn paint(area: &Area<'_>, head: &[String], panels: &[Panel]) -> Drawn {
    area.fill(&WHITE)?;
    let mut y = LINE;
    for (i, line) in head.iter().enumerate() {
        let size = if i == 0 { 14 } else { 12 };
        let text = style(size, HPos::Left).into_text_style(area);
        area.draw(&Text::new(line.trim_start().to_owned(), (10, y), text))?;
        y += LINE;
    }
    let named = panels.first().filter(|p| p.joined);
    let mut x = 10;
    for (i, series) in named.iter().flat_map(|p| &p.series).enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        area.draw(&Rectangle::new(
            [(x, y - 6), (x + 12, y + 6)],
            colour.filled(),
        ))?;
        let text = style(12, HPos::Left).into_text_style(area);
        area.draw(&Text::new(series.name.clone(), (x + 17, y), text))?;
        x += 34 + 7 * i32::try_from(series.name.chars().count())?;
    }
    for (i, panel) in panels.iter().enumerate() {
        let (column, row) = (i32::try_from(i % 2)?, i32::try_from(i / 2)?);
        // A scatter plot has a panel, and a colour, for itself.
        let colour = if panel.joined { 0 } else { i };
        paint_panel(
            area,
            panel,
            colour,
            (column * WIDTH, y + LINE + row * HEIGHT),
        )?;
    }
    Ok(())
}

/// The distance of ticks, 1, 2 or 5 times a power of ten, with at most `most` of them in `width`.
fn step(width: f64, most: f64) -> f64 {
    // Slightly less, so that a width rounded to a multiple of a step gets the same step.
    let least = width.max(f64::MIN_POSITIVE) / most * (1.0 - 1e-9);
    let power = 10f64.powf(least.log10().floor());
    let factors = [1.0, 2.0, 5.0, 10.0];
    let fits = factors.into_iter().find(|f| f * power >= least);
    fits.unwrap_or(10.0) * power
}

/// The mapping of values to an axis of so many pixels.
struct Axis {
    from: f64,
    to: f64,
    logarithmic: bool,
    pixels: i32,
}

/// Most ticks of an axis.
const TICKS: f64 = 6.0;

impl Axis {
    /// An axis from 0 to a round number.
    fn from_zero(values: impl Iterator<Item = f64>, pixels: i32) -> Axis {
        let most = values.filter(|v| v.is_finite()).fold(0.0, f64::max);
        let most = if most > 0.0 { most } else { 1.0 };
        let step = step(most, TICKS);
        Axis {
            from: 0.0,
            to: (most / step).ceil() * step,
            logarithmic: false,
            pixels,
        }
    }

    /// An axis from the smallest to the largest value.
    fn over(values: impl Iterator<Item = f64>, logarithmic: bool, pixels: i32) -> Axis {
        let (mut from, mut to) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|v| v.is_finite()) {
            (from, to) = (from.min(value), to.max(value));
        }
        if from > to {
            from = 0.0;
        }
        if to <= from {
            to = from + 1.0;
        }
        Axis {
            from,
            to,
            logarithmic: logarithmic && from > 0.0,
            pixels,
        }
    }

    /// Round numbers from the first to the last.
    fn ticks(&self) -> Vec<f64> {
        let step = step(self.to - self.from, TICKS);
        let first = (self.from / step).ceil();
        (0..)
            .map(|n| (first + f64::from(n)) * step)
            .take_while(|tick| *tick <= self.to + step / 1e6)
            .collect()
    }

    fn at(&self, value: f64) -> i32 {
        let part = match self.logarithmic {
            true => (value / self.from).ln() / (self.to / self.from).ln(),
            false => (value - self.from) / (self.to - self.from),
        };
        #[allow(clippy::cast_possible_truncation, reason = "within the panel")]
        let pixels = (part.clamp(0.0, 1.0) * f64::from(self.pixels)).round() as i32;
        pixels
    }
}

/// A tick's label, with as many digits as the distance of the ticks needs.
fn label(tick: f64, distance: f64) -> String {
    let digits = if distance < 0.1 {
        2
    } else {
        usize::from(distance < 1.0)
    };
    format!("{tick:.digits$}")
}

fn paint_panel(area: &Area<'_>, panel: &Panel, colour: usize, (x, y): (i32, i32)) -> Drawn {
    let points = || panel.series.iter().flat_map(|s| s.points.iter());
    let (width, height) = (WIDTH - LEFT - RIGHT, HEIGHT - ABOVE - BELOW);
    let along = Axis::over(points().map(|p| p.0), panel.logarithmic, width);
    let up = Axis::from_zero(points().map(|p| p.1), height);
    let (left, floor) = (x + LEFT, y + HEIGHT - BELOW);
    let place = |p: &(f64, f64)| (left + along.at(p.0), floor - up.at(p.1));
    let text = |size, h| style(size, h).into_text_style(area);
    area.draw(&Text::new(
        panel.title.clone(),
        (x + 10, y + 12),
        text(13, HPos::Left),
    ))?;
    let distance = step(up.to, TICKS);
    for value in up.ticks() {
        let at = floor - up.at(value);
        let line = [(left, at), (left + along.pixels, at)];
        area.draw(&PathElement::new(line, ShapeStyle::from(&BLACK.mix(0.15))))?;
        let label = label(value, distance);
        area.draw(&Text::new(label, (left - 4, at), text(10, HPos::Right)))?;
    }
    let ticks: Vec<f64> = match panel.joined {
        true => panel
            .series
            .iter()
            .take(1)
            .flat_map(|s| s.points.iter().map(|p| p.0))
            .collect(),
        false => along.ticks(),
    };
    for tick in ticks {
        let at = (left + along.at(tick), floor + 12);
        area.draw(&Text::new(format!("{tick:.0}"), at, text(10, HPos::Center)))?;
    }
    let middle = (left + along.pixels / 2, floor + 28);
    area.draw(&Text::new(
        panel.axes[0].clone(),
        middle,
        text(11, HPos::Center),
    ))?;
    let upwards = text(11, HPos::Center).transform(FontTransform::Rotate270);
    let beside = (x + 14, floor - up.pixels / 2);
    area.draw(&Text::new(panel.axes[1].clone(), beside, upwards))?;
    for (i, series) in panel.series.iter().enumerate() {
        let colour = COLOURS[(colour + i) % COLOURS.len()];
        if panel.joined {
            let line: Vec<_> = series.points.iter().map(place).collect();
            area.draw(&PathElement::new(
                line,
                ShapeStyle::from(&colour).stroke_width(2),
            ))?;
        }
        let size = if panel.joined { 3 } else { 1 };
        for point in &series.points {
            area.draw(&Circle::new(place(point), size, colour.filled()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        let ticks = |most: f64| {
            let axis = Axis::from_zero([most].into_iter(), 100);
            let distance = step(axis.to, TICKS);
            let ticks = axis.ticks().into_iter();
            ticks.map(|t| label(t, distance)).collect::<Vec<_>>()
        };
        assert_eq!(ticks(3320.5), ["0", "1000", "2000", "3000", "4000"]);
        assert_eq!(ticks(4.92), ["0", "1", "2", "3", "4", "5"]);
        assert_eq!(
            ticks(0.3),
            ["0.00", "0.05", "0.10", "0.15", "0.20", "0.25", "0.30"]
        );
        assert_eq!(ticks(0.0), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
    }
}
