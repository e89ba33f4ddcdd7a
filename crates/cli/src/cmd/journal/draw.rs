//! The picture of a journal: a row for each lane, a box for each transaction, an arrow to each
//! transaction it depends on.

use std::collections::{BTreeSet, HashMap};

use super::graph::{BOXES, Fate, Graph, Key, Node, Row};
use super::layout::{columns, find};
use super::svg::{Align, Svg, shortened};

/// Largest number of arrows drawn.
const ARROWS: usize = 2 * BOXES;
/// Boxes in a band; further boxes of a row go into the next band below.
const ACROSS: usize = 12;
const BOX: (i64, i64) = (104, 56);
const STEP: (i64, i64) = (124, 88);
/// The left edge of the boxes, pixels.
const LEFT: i64 = 150;
const MARGIN: i64 = 16;
/// Characters of a line of text.
const LINE: usize = 130;
/// The least width, for the heading and the legend.
const WIDTH: i64 = 1020;
/// The distance from a box's edge at which arrows leave and arrive, pixels.
const INSET: i64 = 14;

const STYLE: &str = "\
text{font-family:sans-serif;font-size:11px;fill:#222}\
.title{font-size:17px;font-weight:bold}.head{font-size:13px}.row{font-size:13px;font-weight:bold}\
.seq{font-size:14px;font-weight:bold}.small{font-size:10px;fill:#555}\
.paper{fill:#fff}\
.counts rect{fill:#d3e5f7;stroke:#1f5a96}\
.superseded rect{fill:#e4e4e4;stroke:#9a9a9a}.superseded text{fill:#777}\
.dropped rect{fill:#f9c6bd;stroke:#b3261e;stroke-width:2.5}\
.torn rect{fill:#fff3d6;stroke:#a86a00;stroke-dasharray:5 3}\
.lost rect{fill:#b3261e;stroke:#5f0f0a}.lost text{fill:#fff}\
.missing rect{fill:none;stroke:#777;stroke-dasharray:3 3}\
.record rect{fill:#d8f0d8;stroke:#2e7d32}\
.older rect{fill:none;stroke:none}\
.needs{stroke:#333;stroke-width:1.4}.needs-dropped{stroke:#b3261e;stroke-width:2}";

const MARKERS: &str = "\
<defs><marker id=\"needs\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\">\
<path d=\"M0,0 L8,4 L0,8 z\" fill=\"#333\"/></marker>\
<marker id=\"needs-dropped\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"6\" markerHeight=\"6\" orient=\"auto\">\
<path d=\"M0,0 L8,4 L0,8 z\" fill=\"#b3261e\"/></marker></defs>";

impl Fate {
    fn class(self) -> &'static str {
        match self {
            Fate::Counts => "counts",
            Fate::Superseded => "superseded",
            Fate::Dropped => "dropped",
            Fate::Torn => "torn",
            Fate::Lost => "lost",
            Fate::Missing => "missing",
            Fate::Record => "record",
            Fate::Older => "older",
        }
    }

    /// The words of the legend for it; `None` for a fate that the box itself states.
    fn legend(self) -> Option<&'static str> {
        Some(match self {
            Fate::Counts => "replayed",
            Fate::Superseded => "superseded: no image is written back",
            Fate::Dropped => "dropped: what it needs is missing",
            Fate::Torn => "not whole",
            Fate::Lost => "damaged",
            Fate::Missing => "needed, not in the log",
            Fate::Record => "applied: file, fast commit",
            Fate::Older => return None,
        })
    }
}

/// Draws the graph, under a heading that names the volume.
pub(super) fn picture(graph: &Graph, volume: &str) -> String {
    let columns = columns(graph);
    let mut svg = Svg::new();
    svg.raw(MARKERS);
    let mut y = heading(&mut svg, graph, volume);
    let most = columns.values().filter_map(|c| c.last()).max();
    let most = most.map_or(0, |most| most + 1);
    let mut left = ARROWS;
    let mut undrawn = 0;
    for band in 0..most.div_ceil(ACROSS).max(1) {
        let places = band_of(graph, &columns, band, y);
        for (key, at) in &places.rows {
            svg.text((MARGIN, at + 24), Align::Start, "row", &key.name());
            row(&mut svg, graph, *key, *at, &places);
        }
        undrawn += arrows(&mut svg, graph, &places, &mut left);
        y += STEP.1 * places.rows.len() as i64 + 12;
    }
    let mut ends: Vec<&str> = graph.ends.iter().map(String::as_str).collect();
    let note;
    if undrawn > 0 {
        note = format!("and {undrawn} more arrows");
        ends.push(&note);
    }
    for end in ends {
        svg.text((MARGIN, y), Align::Start, "small", &shortened(end, LINE));
        y += 15;
    }
    let across = most.min(ACROSS) as i64;
    svg.finish(STYLE, (WIDTH.max(LEFT + STEP.0 * across), y + MARGIN))
}

/// Draws the heading and the legend; returns the vertical position below them.
fn heading(svg: &mut Svg, graph: &Graph, volume: &str) -> i64 {
    let volume = shortened(volume, LINE * 3 / 4);
    svg.text((MARGIN, 30), Align::Start, "title", &volume);
    let summary = graph.summary();
    svg.text((MARGIN, 52), Align::Start, "head", &summary);
    let fates: BTreeSet<Fate> = graph
        .rows
        .values()
        .flat_map(|row| row.nodes.iter().map(|node| node.fate))
        .collect();
    let (mut x, mut y) = (MARGIN, 66);
    // Reserves room for so many characters, on the next line if this one is full.
    let mut place = |words: &str| {
        let width = 46 + 6 * words.len() as i64;
        if x + width > WIDTH {
            (x, y) = (MARGIN, y + 22);
        }
        x += width;
        (x - width, y)
    };
    for fate in fates {
        let Some(words) = fate.legend() else {
            continue;
        };
        let (x, y) = place(words);
        svg.open(fate.class(), words);
        svg.rect((x, y), (22, 14));
        svg.close();
        svg.text((x + 28, y + 11), Align::Start, "legend", words);
    }
    let needs = |row: &Row| row.nodes.iter().any(|node| !node.edges.is_empty());
    if graph.rows.values().any(needs) {
        let words = "depends on";
        let (x, y) = place(words);
        svg.arrow("needs", (x, y + 7), (x + 24, y + 7));
        svg.text((x + 28, y + 11), Align::Start, "legend", words);
    }
    y + 40
}

/// A band: a piece of the rows, as wide as the picture.
struct Band {
    /// The rows in it, with their vertical positions.
    rows: Vec<(Key, i64)>,
    /// The upper left corners of its boxes.
    boxes: HashMap<(Key, usize), (i64, i64)>,
    first: bool,
}

fn band_of(graph: &Graph, columns: &HashMap<Key, Vec<usize>>, band: usize, y: i64) -> Band {
    let mut found = Band {
        rows: Vec::new(),
        boxes: HashMap::new(),
        first: band == 0,
    };
    let from = band * ACROSS;
    for key in graph.rows.keys() {
        let of_row = columns.get(key).map_or(&[][..], Vec::as_slice);
        let start = of_row.partition_point(|column| *column < from);
        let end = of_row.partition_point(|column| *column < from + ACROSS);
        if start == end && band > 0 {
            continue;
        }
        let at = y + STEP.1 * found.rows.len() as i64;
        for (i, column) in of_row.iter().enumerate().take(end).skip(start) {
            let x = LEFT + STEP.0 * (*column - from) as i64;
            found.boxes.insert((*key, i), (x, at));
        }
        found.rows.push((*key, at));
    }
    found
}

fn row(svg: &mut Svg, graph: &Graph, key: Key, y: i64, band: &Band) {
    let Some(row) = graph.rows.get(&key) else {
        return;
    };
    if band.first && row.older > 0 {
        let about = format!("{} older ones are not drawn", row.older);
        svg.open(Fate::Older.class(), &about);
        let words = format!("… and {} more", row.older);
        svg.text((LEFT, y + 32), Align::Start, "small", &words);
        svg.close();
    }
    if band.first && row.older == 0 && row.nodes.is_empty() {
        svg.text((LEFT, y + 32), Align::Start, "small", "empty");
    }
    for (i, node) in row.nodes.iter().enumerate() {
        if let Some(at) = band.boxes.get(&(key, i)) {
            transaction(svg, node, *at);
        }
    }
}

fn transaction(svg: &mut Svg, node: &Node, (x, y): (i64, i64)) {
    svg.open(node.fate.class(), &node.about);
    svg.rect((x, y), BOX);
    let middle = x + BOX.0 / 2;
    let seq = node.seq.to_string();
    svg.text((middle, y + 18), Align::Middle, "seq", &seq);
    for (line, at) in node.lines.iter().zip([34, 48]) {
        svg.text((middle, y + at), Align::Middle, "line", line);
    }
    svg.close();
}

/// Draws arrows from the boxes of a band to the boxes they depend on; where the other box is in
/// another band, words. Returns the number of arrows left out.
fn arrows(svg: &mut Svg, graph: &Graph, band: &Band, left: &mut usize) -> u64 {
    let mut undrawn = 0;
    for (key, _) in &band.rows {
        let nodes = graph.rows.get(key).map(|row| row.nodes.iter().enumerate());
        for (i, node) in nodes.into_iter().flatten() {
            let Some(from) = band.boxes.get(&(*key, i)) else {
                continue;
            };
            let mut elsewhere = Vec::new();
            for (lane, seq) in &node.edges {
                let to = Key::Lane(*lane);
                let Some(at) = graph.rows.get(&to).and_then(|row| find(row, *seq)) else {
                    continue;
                };
                if to == *key {
                    continue;
                }
                if *left == 0 {
                    undrawn += 1;
                    continue;
                }
                *left -= 1;
                match band.boxes.get(&(to, at)) {
                    Some(there) => arrow(svg, node.fate, *from, *there),
                    None => elsewhere.push(format!("{lane}:{seq}")),
                }
            }
            if !elsewhere.is_empty() {
                let words = shortened(&format!("needs {}", elsewhere.join(" ")), 24);
                let at = (from.0, from.1 + BOX.1 + 12);
                svg.text(at, Align::Start, "small", &words);
            }
        }
    }
    undrawn
}

/// Draws an arrow: downwards on the left of the boxes, upwards on their right, so that two boxes
/// that depend on each other have two arrows.
fn arrow(svg: &mut Svg, fate: Fate, from: (i64, i64), to: (i64, i64)) {
    let class = match fate {
        Fate::Dropped => "needs-dropped",
        _ => "needs",
    };
    if from.1 < to.1 {
        let end = (to.0 + INSET, to.1);
        svg.arrow(class, (from.0 + INSET, from.1 + BOX.1), end);
    } else {
        let inset = BOX.0 - INSET;
        let end = (to.0 + inset, to.1 + BOX.1);
        svg.arrow(class, (from.0 + inset, from.1), end);
    }
}
