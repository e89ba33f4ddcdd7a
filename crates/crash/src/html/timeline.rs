//! A log as a timeline: position on the device against order in the log.

use std::fmt::Write;

use stetfs_block::Event;

use super::escape::escape;
use crate::explore::{LostWrite, lost};
use crate::marks::{ACKED, BEGUN};
use crate::record::Recording;
use crate::state::StateId;

/// Width of the timeline, pixels.
const WIDTH: f64 = 1000.0;
/// Height of it.
const HEIGHT: f64 = 240.0;
/// Number of events shown before the crash.
const BEFORE: usize = 400;
/// Number of events shown behind the crash.
const BEHIND: usize = 20;

/// The scale of the timeline: maps events and places to pixels.
struct Scale {
    /// First of the events that are shown.
    first: usize,
    last: usize,
    /// Written places in order, so that distant parts of the device take no room.
    places: Vec<u64>,
}

impl Scale {
    /// The scale for the events around a crash at event `crash`.
    fn around(events: &[Event], crash: usize) -> Scale {
        let first = crash.saturating_sub(BEFORE);
        let last = (crash + BEHIND).min(events.len());
        let mut places: Vec<u64> = events[first..last]
            .iter()
            .filter_map(|e| match e {
                Event::Write { offset, .. } => Some(*offset),
                Event::Discard { range, .. } => Some(range.start),
                Event::Share { pairs, .. } => pairs.first().map(|pair| pair.dst),
                _ => None,
            })
            .collect();
        places.sort_unstable();
        places.dedup();
        Scale {
            first,
            last,
            places,
        }
    }

    fn count(&self) -> f64 {
        (self.last - self.first).max(1) as f64
    }

    fn x(&self, event: usize) -> f64 {
        (event - self.first) as f64 / self.count() * WIDTH
    }

    fn y(&self, offset: u64) -> f64 {
        let rank = self.places.partition_point(|p| *p < offset);
        20.0 + rank as f64 / self.places.len().max(1) as f64 * (HEIGHT - 50.0)
    }
}

/// Draws the log around a crash.
pub(super) fn draw(out: &mut String, recording: &Recording, state: &StateId) {
    let events = &recording.log.events;
    let scale = Scale::around(events, state.event);
    let (first, last) = (scale.first, scale.last);
    let base = recording.work.machine();
    let mut walk = recording.walk(&base);
    walk.advance_to_state(state);
    let lost = lost(recording, state, &walk.uncertain());
    let _ = write!(
        out,
        "<p>The log: events {first} to {last} from left to right, places on the device \
         from top to bottom. Green lines are flushes, red writes were lost, at least in part; \
         the crash is the red line.</p>\
         <svg width=\"{WIDTH}\" height=\"{HEIGHT}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\">"
    );
    for (i, event) in events.iter().enumerate().take(last).skip(first) {
        match event {
            Event::Write { .. } | Event::Share { .. } => {
                let part = lost.iter().find(|w| w.event == i);
                written(out, &scale, i, event, part, i >= state.event);
            }
            Event::Flush { .. } => flush(out, scale.x(i)),
            Event::Mark { label, value } if label == BEGUN || label == ACKED => {
                mark(out, scale.x(i), recording, label, *value);
            }
            _ => {}
        }
    }
    let at = scale.x(state.event);
    let _ = write!(
        out,
        "<line class=\"cut\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"0\" y2=\"{HEIGHT}\"/>\
         <text x=\"2\" y=\"{:.0}\">operations</text></svg>",
        HEIGHT - 2.0
    );
}

/// A write or share of the log: where it begins (bytes), its length (bytes), and whether it is
/// durable at once.
fn extent(event: &Event) -> (u64, u64, bool) {
    match event {
        Event::Write {
            offset, data, fua, ..
        } => (*offset, data.len() as u64, *fua),
        Event::Share { pairs, .. } => {
            let first = pairs.first().map_or(0, |p| p.dst);
            (first, pairs.iter().map(|p| p.len).sum(), false)
        }
        _ => (0, 0, false),
    }
}

/// Draws event number `i`, a write or a share, of which `lost` is gone; it comes `behind` the crash
/// or before it.
fn written(
    out: &mut String,
    scale: &Scale,
    i: usize,
    event: &Event,
    lost: Option<&LostWrite>,
    behind: bool,
) {
    let (offset, bytes, fua) = extent(event);
    let class = match (lost, behind) {
        (Some(_), _) => "lost",
        (None, true) => "op",
        (None, false) => "kept",
    };
    let told = lost.map_or(String::new(), |w| {
        format!(", {} of {} sectors lost", w.lost.0, w.lost.1)
    });
    let _ = write!(
        out,
        "<rect class=\"{class}{}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"6\">\
         <title>event {i}: {} bytes at {offset}{told}</title></rect>",
        if fua { " fua" } else { "" },
        scale.x(i),
        scale.y(offset),
        (WIDTH / scale.count()).max(2.0),
        bytes
    );
}

fn flush(out: &mut String, at: f64) {
    let _ = write!(
        out,
        "<line class=\"flush\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"14\" y2=\"{:.0}\"/>",
        HEIGHT - 28.0
    );
}

/// Draws the begin or the acknowledgement of an operation; `value` is its thread and its number
/// there.
fn mark(out: &mut String, at: f64, recording: &Recording, label: &str, value: u64) {
    let op = recording
        .work
        .scripts
        .get((value >> 32) as usize)
        .and_then(|s| s.ops.get(((value & 0xffff_ffff) as usize).checked_sub(1)?));
    let _ = write!(
        out,
        "<circle class=\"op\" cx=\"{at:.1}\" cy=\"{:.0}\" r=\"2.5\">\
         <title>{label}: {}</title></circle>",
        HEIGHT - 14.0,
        escape(&op.map_or(String::new(), |o| o.to_string()))
    );
}
