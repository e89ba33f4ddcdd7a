//! The bar figure.

use anyhow::{Result, anyhow};
use plotters::backend::SVGBackend;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{PathElement, Rectangle, Text};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{
    BLACK, Color, FontTransform, IntoFont, IntoTextStyle, RGBColor, ShapeStyle, TextStyle,
};

use super::Report;

/// A palette that people with colour blindness can tell apart (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0x99, 0x99, 0x99),
    RGBColor(0x00, 0x72, 0xB2),
    RGBColor(0xD5, 0x5E, 0x00),
    RGBColor(0x00, 0x9E, 0x73),
    RGBColor(0xCC, 0x79, 0xA7),
    RGBColor(0xE6, 0x9F, 0x00),
    RGBColor(0x56, 0xB4, 0xE9),
];
const BAR: i32 = 12;
const GAP: i32 = 10;
const LEFT: i32 = 250;
const SCALE: i32 = 520;
const RIGHT: i32 = 60;
const TOP: i32 = 76;
/// Bars end here; their number tells the rest.
const LONGEST: f64 = 3.0;

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// One group of bars per metric: how much better each target is than the first (1 is equal, longer is better).
pub(super) fn draw(report: &Report) -> Result<String> {
    let targets = i32::try_from(report.targets.len())?;
    let group = targets * BAR + GAP;
    let height = TOP + group * i32::try_from(report.metrics.len())? + 24;
    let mut out = String::new();
    {
        let size = (u32::try_from(LEFT + SCALE + RIGHT)?, u32::try_from(height)?);
        let area = SVGBackend::with_string(&mut out, size).into_drawing_area();
        paint(&area, report, group, height).map_err(|e| anyhow!("drawing the figure: {e}"))?;
        area.present()
            .map_err(|e| anyhow!("drawing the figure: {e}"))?;
    }
    Ok(out)
}

fn style(size: i32, h: HPos) -> TextStyle<'static> {
    ("sans-serif", size)
        .into_font()
        .transform(FontTransform::None)
        .color(&BLACK)
        .pos(Pos::new(h, VPos::Center))
}

/// Pixels of a bar.
fn length(advantage: f64) -> i32 {
    #[allow(
        clippy::cast_possible_truncation,
        reason = "clamped to a few hundred pixels"
    )]
    let pixels = (advantage.clamp(0.0, LONGEST) / LONGEST * f64::from(SCALE)).round() as i32;
    pixels
}

fn paint(
    area: &Area<'_>,
    report: &Report,
    group: i32,
    height: i32,
) -> Result<(), Box<dyn std::error::Error>> {
    area.fill(&plotters::style::WHITE)?;
    let first = report.targets.first().map_or("", String::as_str);
    let caption = format!(
        "Speed relative to {first} (longer is better; medians of {} rounds)",
        report.rounds
    );
    area.draw(&Text::new(
        caption,
        (10, 16),
        style(15, HPos::Left).into_text_style(area),
    ))?;
    let mut x = 10;
    for (i, name) in report.targets.iter().enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        area.draw(&Rectangle::new([(x, 34), (x + 12, 46)], colour.filled()))?;
        area.draw(&Text::new(
            name.clone(),
            (x + 17, 40),
            style(12, HPos::Left),
        ))?;
        x += 40 + i32::try_from(name.chars().count())? * 7;
    }
    for tick in 0..=6 {
        let at = f64::from(tick) * LONGEST / 6.0;
        let x = LEFT + length(at);
        let shade = if tick == 2 {
            BLACK.mix(0.8)
        } else {
            BLACK.mix(0.15)
        };
        area.draw(&PathElement::new(
            [(x, TOP - 4), (x, height - 18)],
            ShapeStyle::from(&shade),
        ))?;
        area.draw(&Text::new(
            format!("{at}×"),
            (x, TOP - 12),
            style(11, HPos::Center),
        ))?;
    }
    for (row, metric) in report.metrics.iter().enumerate() {
        let top = TOP + i32::try_from(row)? * group + GAP / 2;
        let middle = top + (group - GAP) / 2;
        area.draw(&Text::new(
            metric.title.clone(),
            (LEFT - 8, middle),
            style(12, HPos::Right),
        ))?;
        for (i, value) in metric.values.iter().enumerate() {
            let y = top + i32::try_from(i)? * BAR;
            let advantage = value.advantage(metric.better);
            let end = LEFT + length(advantage);
            let colour = COLOURS[i % COLOURS.len()];
            area.draw(&Rectangle::new(
                [(LEFT, y), (end, y + BAR - 2)],
                colour.filled(),
            ))?;
            let label = format!("{advantage:.2}");
            area.draw(&Text::new(
                label,
                (end + 4, y + BAR / 2 - 1),
                style(10, HPos::Left),
            ))?;
        }
    }
    Ok(())
}
