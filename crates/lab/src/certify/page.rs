//! The certificate, as text and as HTML. Its JSON is these structures.

use serde::Serialize;

/// A certificate.
#[derive(Debug, Serialize)]
pub(super) struct Page {
    /// The name of the volume or mount.
    pub(super) of: String,
    /// The date of the certificate, UTC.
    pub(super) date: String,
    /// StetFS, with its commit.
    pub(super) version: String,
    /// The objections: promises that were found broken.
    pub(super) objections: Vec<String>,
    pub(super) sections: Vec<Section>,
}

/// A section of the certificate.
#[derive(Debug, Serialize)]
pub(super) struct Section {
    pub(super) name: &'static str,
    /// The source of its findings, in a sentence.
    pub(super) how: String,
    pub(super) rows: Vec<Row>,
}

/// A finding.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Row {
    pub(super) what: String,
    pub(super) found: String,
}

impl Section {
    pub(super) fn new(name: &'static str, how: impl Into<String>) -> Section {
        Section {
            name,
            how: how.into(),
            rows: Vec::new(),
        }
    }

    pub(super) fn row(&mut self, what: impl Into<String>, found: impl Into<String>) {
        let (what, found) = (what.into(), found.into());
        self.rows.push(Row { what, found });
    }
}

impl Page {
    /// The verdict in one sentence.
    fn verdict(&self) -> String {
        match self.objections.len() {
            0 => "Nothing was found against it.".into(),
            1 => "One thing was found against it:".into(),
            n => format!("{n} things were found against it:"),
        }
    }

    /// The certificate for a terminal.
    pub(super) fn text(&self) -> String {
        let mut out = format!(
            "Certificate of {}\n{} UTC, stetfs {}\n\n{}\n",
            self.of,
            self.date,
            self.version,
            self.verdict()
        );
        for objection in &self.objections {
            out.push_str(&format!("  ! {objection}\n"));
        }
        for section in &self.sections {
            out.push_str(&format!("\n{}\n  ({})\n", section.name, section.how));
            let width = section.rows.iter().map(|r| r.what.chars().count()).max();
            let width = width.unwrap_or_default();
            for Row { what, found } in &section.rows {
                let found = found.replace('\n', &format!("\n{:w$}", "", w = width + 4));
                out.push_str(&format!("  {what:width$}  {found}\n"));
            }
        }
        out
    }

    /// The certificate as one HTML file without references to others.
    pub(super) fn html(&self) -> String {
        let mut body = format!(
            "<h1>Certificate of {}</h1>\n<p>{} UTC, stetfs {}</p>\n<p class=\"{}\"><b>{}</b></p>\n",
            escape(&self.of),
            escape(&self.date),
            escape(&self.version),
            if self.objections.is_empty() {
                "sound"
            } else {
                "unsound"
            },
            escape(&self.verdict()),
        );
        if !self.objections.is_empty() {
            let items = self.objections.iter();
            let items: String = items.map(|o| format!("<li>{}</li>", escape(o))).collect();
            body.push_str(&format!("<ul>{items}</ul>\n"));
        }
        for section in &self.sections {
            let (name, how) = (escape(section.name), escape(&section.how));
            body.push_str(&format!("<h2>{name}</h2>\n<p>{how}</p>\n<table>\n"));
            for Row { what, found } in &section.rows {
                let found = escape(found).replace('\n', "<br>");
                body.push_str(&format!(
                    "<tr><th>{}</th><td>{found}</td></tr>\n",
                    escape(what)
                ));
            }
            body.push_str("</table>\n");
        }
        format!(
            "{HEAD}<title>Certificate of {}</title>\n{body}",
            escape(&self.of)
        )
    }
}

const HEAD: &str = "<!doctype html>\n<meta charset=\"utf-8\">\n<style>
body { font: 15px/1.5 sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em }
th { text-align: left; font-weight: normal; color: #555; padding-right: 1.5em; vertical-align: top }
.sound { color: #060 } .unsound { color: #a00 }
</style>\n";

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_is_shown_and_escaped() {
        let mut section = Section::new("Costs", "measured");
        section.row("a sync", "1 <ms>\n2 ms");
        let page = Page {
            of: "a&b".into(),
            date: "2026-11-26 05:00:00".into(),
            version: "0".into(),
            objections: vec!["it is <old>".into()],
            sections: vec![section],
        };
        let text = page.text();
        assert!(
            text.contains("  a sync  1 <ms>\n          2 ms\n"),
            "{text}"
        );
        assert!(text.contains("One thing was found against it:\n  ! it is <old>"));
        let html = page.html();
        assert!(html.contains("<td>1 &lt;ms&gt;<br>2 ms</td>"), "{html}");
        assert!(html.contains("a&amp;b") && html.contains("<li>it is &lt;old&gt;</li>"));
    }
}
