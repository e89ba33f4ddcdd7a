//! Panels of curves and clouds, two in a row.

use anyhow::{Result, anyhow};
use plotters::backend::SVGBackend;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{Circle, PathElement, Rectangle, Text};
use plotters::style::text_anchor::HPos;
use plotters::style::{BLACK, Color, IntoTextStyle, ShapeStyle, WHITE};
use stetfs_flashlab::figure::Panel;

use crate::compare::figure::{COLOURS, style};

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn<T = ()> = Result<T, Box<dyn std::error::Error>>;

const WIDTH: i32 = 480;
const HEIGHT: i32 = 300;
const HEAD: i32 = 34;
/// Around the curves.
const LEFT: i32 = 62;
const RIGHT: i32 = 14;
const ABOVE: i32 = 26;
const BELOW: i32 = 42;

/// The names of the first panel's curves, then all panels.
pub(super) fn draw(panels: &[Panel]) -> Result<String> {
    let rows = i32::try_from(panels.len().div_ceil(2))?;
    let size = (
        u32::try_from(2 * WIDTH)?,
        u32::try_from(HEAD + rows * HEIGHT)?,
    );
    let mut out = String::new();
    {
        let area = SVGBackend::with_string(&mut out, size).into_drawing_area();
        paint(&area, panels).map_err(|e| anyhow!("drawing the figure: {e}"))?;
        area.present()
            .map_err(|e| anyhow!("drawing the figure: {e}"))?;
    }
    Ok(out)
}

fn paint(area: &Area<'_>, panels: &[Panel]) -> Drawn {
    area.fill(&WHITE)?;
    let named = panels.first().filter(|p| p.joined);
    let mut x = 10;
    for (i, series) in named.iter().flat_map(|p| &p.series).enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        area.draw(&Rectangle::new([(x, 10), (x + 12, 22)], colour.filled()))?;
        let text = style(12, HPos::Left).into_text_style(area);
        area.draw(&Text::new(series.name.clone(), (x + 17, 16), text))?;
        x += 34 + 7 * i32::try_from(series.name.chars().count())?;
    }
    for (i, panel) in panels.iter().enumerate() {
        let (column, row) = (i32::try_from(i % 2)?, i32::try_from(i / 2)?);
        paint_panel(area, panel, (column * WIDTH, HEAD + row * HEIGHT))?;
    }
    Ok(())
}

/// Where values lie on an axis of so many pixels.
struct Axis {
    from: f64,
    to: f64,
    logarithmic: bool,
    pixels: i32,
}

impl Axis {
    fn new(values: impl Iterator<Item = f64>, zero: bool, logarithmic: bool, pixels: i32) -> Axis {
        let (mut from, mut to) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|v| v.is_finite()) {
            (from, to) = (from.min(value), to.max(value));
        }
        if zero || from > to {
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

fn paint_panel(area: &Area<'_>, panel: &Panel, (x, y): (i32, i32)) -> Drawn {
    let points = || panel.series.iter().flat_map(|s| s.points.iter());
    let along = Axis::new(
        points().map(|p| p.0),
        false,
        panel.logarithmic,
        WIDTH - LEFT - RIGHT,
    );
    let up = Axis::new(points().map(|p| p.1), true, false, HEIGHT - ABOVE - BELOW);
    let (left, floor) = (x + LEFT, y + HEIGHT - BELOW);
    let place = |p: &(f64, f64)| (left + along.at(p.0), floor - up.at(p.1));
    let text = |size, h| style(size, h).into_text_style(area);
    area.draw(&Text::new(
        panel.title.clone(),
        (x + 10, y + 12),
        text(13, HPos::Left),
    ))?;
    for part in 0..=4 {
        let value = up.to * f64::from(part) / 4.0;
        let at = floor - up.at(value);
        let line = [(left, at), (left + along.pixels, at)];
        area.draw(&PathElement::new(line, ShapeStyle::from(&BLACK.mix(0.15))))?;
        let digits = if up.to < 10.0 { 2 } else { 0 };
        let label = format!("{value:.digits$}");
        area.draw(&Text::new(label, (left - 4, at), text(10, HPos::Right)))?;
    }
    let ticks: Vec<f64> = match panel.joined {
        true => panel
            .series
            .iter()
            .take(1)
            .flat_map(|s| s.points.iter().map(|p| p.0))
            .collect(),
        false => [0.0, 0.5, 1.0]
            .map(|part| along.from + part * (along.to - along.from))
            .to_vec(),
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
    for (i, series) in panel.series.iter().enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
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
