//! The bar figure, and the files of a report.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::backend::SVGBackend;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{PathElement, Rectangle, Text};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{
    BLACK, Color, FontTransform, IntoFont, IntoTextStyle, RGBColor, ShapeStyle, TextStyle,
};

use super::{Report, Value};
use crate::files::write_all;

/// A palette that is distinguishable with colour blindness (Okabe and Ito).
pub(crate) const COLOURS: [RGBColor; 10] = [
    RGBColor(0x99, 0x99, 0x99),
    RGBColor(0x00, 0x72, 0xB2),
    RGBColor(0xD5, 0x5E, 0x00),
    RGBColor(0x00, 0x9E, 0x73),
    RGBColor(0xCC, 0x79, 0xA7),
    RGBColor(0xE6, 0x9F, 0x00),
    RGBColor(0x56, 0xB4, 0xE9),
    RGBColor(0xF0, 0xE4, 0x42),
    RGBColor(0x33, 0x33, 0x33),
    RGBColor(0x88, 0x22, 0x55),
];
const BAR: i32 = 12;
const GAP: i32 = 10;
const LEFT: i32 = 250;
const SCALE: i32 = 520;
/// Space for the labels of the longest bars, pixels.
const RIGHT: i32 = 220;
/// The top margin without the legend, pixels.
const TOP: i32 = 76;
/// The left edge of the legend, pixels.
const LEGEND: i32 = 52;
const LEGEND_ROW: i32 = 18;
/// Possible ends of the scale; longer bars are cut off, and their numbers state the value.
const ENDS: [f64; 3] = [3.0, 6.0, 12.0];

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

impl Report {
    /// Writes `compare.txt`, `compare.md`, `compare.json` and `compare.svg` into `dir`, which is
    /// created if it does not exist.
    pub fn write(&self, dir: &Path) -> Result<()> {
        let files = [
            ("compare.txt", self.text()),
            ("compare.md", self.markdown()),
            ("compare.json", self.json()?),
            ("compare.svg", self.svg()?),
        ];
        write_all(dir, &files)
    }

    /// A bar figure of the advantages over the first target.
    pub fn svg(&self) -> Result<String> {
        draw(self)
    }
}

/// Draws a group of bars per metric: the advantage of each target over the first (1 is equal,
/// longer is better).
fn draw(report: &Report) -> Result<String> {
    let targets = i32::try_from(report.targets.len())?;
    let group = targets * BAR + GAP;
    let legend = legend(report)?;
    let top = TOP + legend.last().map_or(0, |&(_, y)| y + LEGEND_ROW);
    let height = top + group * i32::try_from(report.metrics.len())? + 24;
    let layout = Layout {
        head: top,
        group,
        height,
        end: end(report),
    };
    let mut out = String::new();
    {
        let size = (u32::try_from(LEFT + SCALE + RIGHT)?, u32::try_from(height)?);
        let area = SVGBackend::with_string(&mut out, size).into_drawing_area();
        paint(&area, report, &layout, &legend).map_err(|e| anyhow!("drawing the figure: {e}"))?;
        area.present()
            .map_err(|e| anyhow!("drawing the figure: {e}"))?;
    }
    Ok(out)
}

/// The positions of the targets' names below the caption: pixels to the right and down, in rows.
fn legend(report: &Report) -> Result<Vec<(i32, i32)>> {
    let (mut x, mut y) = (10, 0);
    report
        .targets
        .iter()
        .map(|name| {
            let width = 40 + i32::try_from(name.chars().count())? * 7;
            if x > 10 && x + width > LEFT + SCALE + RIGHT {
                (x, y) = (10, y + LEGEND_ROW);
            }
            let place = (x, y);
            x += width;
            Ok(place)
        })
        .collect()
}

pub(crate) fn style(size: i32, h: HPos) -> TextStyle<'static> {
    ("sans-serif", size)
        .into_font()
        .transform(FontTransform::None)
        .color(&BLACK)
        .pos(Pos::new(h, VPos::Center))
}

/// The end of the scale of a report: beyond all bars and marks, if allowed.
fn end(report: &Report) -> f64 {
    let bars = report.metrics.iter().flat_map(|metric| {
        let of = |value: &Value| value.advantage(metric.better);
        metric.values.iter().map(of)
    });
    let marks = report.paper.iter().map(|mark| mark.advantage);
    let longest = bars
        .chain(marks)
        .filter(|a| a.is_finite())
        .fold(0.0, f64::max);
    let fits = ENDS.into_iter().find(|end| longest <= *end);
    fits.unwrap_or(ENDS[ENDS.len() - 1])
}

/// The length of a bar in pixels, on a scale that ends at `end`.
fn length(advantage: f64, end: f64) -> i32 {
    #[allow(
        clippy::cast_possible_truncation,
        reason = "clamped to a few hundred pixels"
    )]
    let pixels = (advantage.clamp(0.0, end) / end * f64::from(SCALE)).round() as i32;
    pixels
}

/// The layout of the groups of bars: the first begins at `head`, each is `group` high, and the
/// whole figure `height`; the scale ends at `end`.
struct Layout {
    head: i32,
    group: i32,
    height: i32,
    end: f64,
}

type Painted = Result<(), Box<dyn std::error::Error>>;

fn paint(area: &Area<'_>, report: &Report, layout: &Layout, legend: &[(i32, i32)]) -> Painted {
    area.fill(&plotters::style::WHITE)?;
    paint_captions(area, report, legend)?;
    paint_scale(area, layout)?;
    paint_bars(area, report, layout)?;
    for mark in &report.paper {
        let (row, bar) = (i32::try_from(mark.metric)?, i32::try_from(mark.target)?);
        let y = layout.head + row * layout.group + GAP / 2 + bar * BAR;
        let x = LEFT + length(mark.advantage, layout.end);
        let line = ShapeStyle::from(&BLACK).stroke_width(3);
        area.draw(&PathElement::new([(x, y - 1), (x, y + BAR - 1)], line))?;
    }
    Ok(())
}

/// Draws the captions of the figure, and the names of the targets.
fn paint_captions(area: &Area<'_>, report: &Report, legend: &[(i32, i32)]) -> Painted {
    let first = report.targets.first().map_or("", String::as_str);
    let paper = match report.paper.is_empty() {
        true => "",
        false => "; a black line: the paper's",
    };
    let rounds = report.rounds;
    let captions = [
        format!("Speed relative to {first} (longer is better; medians of {rounds} rounds){paper}"),
        "Behind a bar: its ratio, KiB written per operation, packed to (time a transaction)".into(),
    ];
    for (y, caption) in [16, 34].into_iter().zip(captions) {
        let style = style(13, HPos::Left).into_text_style(area);
        area.draw(&Text::new(caption, (10, y), style))?;
    }
    for (i, (name, &(x, row))) in report.targets.iter().zip(legend).enumerate() {
        let (colour, y) = (COLOURS[i % COLOURS.len()], LEGEND + row);
        area.draw(&Rectangle::new([(x, y), (x + 12, y + 12)], colour.filled()))?;
        area.draw(&Text::new(
            name.clone(),
            (x + 17, y + 6),
            style(12, HPos::Left),
        ))?;
    }
    Ok(())
}

fn paint_scale(area: &Area<'_>, layout: &Layout) -> Painted {
    let &Layout {
        head, height, end, ..
    } = layout;
    let ticks = (0..=6).map(|tick| f64::from(tick) * end / 6.0);
    // The line of equal values is marked, too.
    let even = (end > 6.0).then_some(1.0);
    for at in ticks.chain(even) {
        let x = LEFT + length(at, end);
        let shade = if (at - 1.0).abs() < f64::EPSILON {
            BLACK.mix(0.8)
        } else {
            BLACK.mix(0.15)
        };
        area.draw(&PathElement::new(
            [(x, head - 4), (x, height - 18)],
            ShapeStyle::from(&shade),
        ))?;
        area.draw(&Text::new(
            format!("{at}×"),
            (x, head - 12),
            style(11, HPos::Center),
        ))?;
    }
    Ok(())
}

fn paint_bars(area: &Area<'_>, report: &Report, layout: &Layout) -> Painted {
    let &Layout { head, group, .. } = layout;
    for (row, metric) in report.metrics.iter().enumerate() {
        let top = head + i32::try_from(row)? * group + GAP / 2;
        let middle = top + (group - GAP) / 2;
        area.draw(&Text::new(
            metric.title.clone(),
            (LEFT - 8, middle),
            style(12, HPos::Right),
        ))?;
        for (i, value) in metric.values.iter().enumerate() {
            let y = top + i32::try_from(i)? * BAR;
            let advantage = value.advantage(metric.better);
            let end = LEFT + length(advantage, layout.end);
            let colour = COLOURS[i % COLOURS.len()];
            area.draw(&Rectangle::new(
                [(LEFT, y), (end, y + BAR - 2)],
                colour.filled(),
            ))?;
            let label = [format!("{advantage:.2}"), value.below()].join(", ");
            area.draw(&Text::new(
                label.trim_end_matches(", ").to_owned(),
                (end + 4, y + BAR / 2 - 1),
                style(10, HPos::Left),
            ))?;
        }
    }
    Ok(())
}
