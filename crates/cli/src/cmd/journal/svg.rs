//! Shapes and text as SVG.

use std::fmt::Write;

/// A picture under construction; content is added from the top down.
pub(super) struct Svg {
    body: String,
}

/// The alignment of a text at its place.
#[derive(Clone, Copy)]
pub(super) enum Align {
    Start,
    Middle,
}

impl Svg {
    pub(super) fn new() -> Svg {
        Svg {
            body: String::new(),
        }
    }

    /// Adds a piece of SVG as it is.
    pub(super) fn raw(&mut self, text: &str) {
        self.body.push_str(text);
        self.body.push('\n');
    }

    /// Begins a group that shows `about` under the pointer.
    pub(super) fn open(&mut self, class: &str, about: &str) {
        let about = escaped(about);
        self.raw(&format!("<g class=\"{class}\"><title>{about}</title>"));
    }

    pub(super) fn close(&mut self) {
        self.raw("</g>");
    }

    pub(super) fn rect(&mut self, (x, y): (i64, i64), (width, height): (i64, i64)) {
        self.raw(&format!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"4\"/>"
        ));
    }

    pub(super) fn text(&mut self, (x, y): (i64, i64), align: Align, class: &str, text: &str) {
        let anchor = match align {
            Align::Start => "start",
            Align::Middle => "middle",
        };
        let text = escaped(text);
        self.raw(&format!(
            "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" class=\"{class}\">{text}</text>"
        ));
    }

    pub(super) fn arrow(&mut self, class: &str, from: (i64, i64), to: (i64, i64)) {
        self.raw(&format!(
            "<line class=\"{class}\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\" marker-end=\"url(#{class})\"/>",
            from.0, from.1, to.0, to.1
        ));
    }

    /// The complete SVG text, with this style and size in pixels.
    pub(super) fn finish(self, style: &str, (width, height): (i64, i64)) -> String {
        let mut out = String::new();
        let _ = write!(
            out,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
             <svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n\
             <style>{style}</style>\n\
             <rect class=\"paper\" width=\"{width}\" height=\"{height}\"/>\n\
             {}</svg>\n",
            self.body
        );
        out
    }
}

/// Text escaped for XML. Characters that XML cannot hold become U+FFFD.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(' '),
            '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}' => {
                out.push('\u{fffd}');
            }
            _ => out.push(c),
        }
    }
    out
}

/// The first `most` characters of a text.
pub(super) fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let head: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{head}…")
}
