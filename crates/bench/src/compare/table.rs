//! Tables of text.

use std::fmt::Write as _;

/// A table; the first row is its header.
pub(crate) type Table = Vec<Vec<String>>;

/// The table for a terminal: columns are right-aligned, except the first.
pub(crate) fn text(table: &Table) -> String {
    let mut widths: Vec<usize> = Vec::new();
    for row in table {
        widths.resize(widths.len().max(row.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = String::new();
    for row in table {
        for (i, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let gap = " ".repeat(width - cell.chars().count());
            let _ = if i == 0 {
                write!(out, "{cell}{gap}")
            } else {
                write!(out, "  {gap}{cell}")
            };
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    out
}

/// The table as Markdown.
pub(crate) fn markdown(table: &Table) -> String {
    let mut out = String::new();
    for (i, row) in table.iter().enumerate() {
        let _ = writeln!(out, "| {} |", row.join(" | "));
        if i == 0 {
            let _ = writeln!(out, "|{}", " --- |".repeat(row.len()));
        }
    }
    out
}
