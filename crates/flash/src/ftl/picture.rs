//! An SVG picture of the erase blocks.

use std::fmt::Write as _;

use super::{BlockView, Role, Wear};

/// Width and height of a block's cell with its margin, in pixels.
const CELL: usize = 10;
/// Number of cells in a row.
const ROW: usize = 96;
/// Height of the text above, and of one line of it, in pixels.
const HEAD: usize = 56;
const LINE: usize = 16;

/// Colour of programmed pages that are dead.
const DEAD: &str = "#b9b9b9";

/// Names and colours of the roles.
const LEGEND: [(Role, &str, &str); 5] = [
    (Role::Free, "free", "#e8e8e8"),
    (Role::Data, "data", "#2f6fb0"),
    (Role::Open, "open", "#d08a1d"),
    (Role::Sequential, "sequential log", "#3a9a5c"),
    (Role::Log, "log", "#a34a9a"),
];

fn colour(role: Role) -> &'static str {
    let of = LEGEND.iter().find(|(r, ..)| *r == role);
    of.map_or("#000", |(_, _, colour)| colour)
}

/// An SVG document with a cell for each block. Each cell is filled from below in proportion to its
/// live pages; its dead pages are grey above them. The darker the frame, the more the block is
/// worn. A browser reloads it every second.
pub fn picture(blocks: &[BlockView], block_pages: u32, title: &str) -> String {
    let wear = Wear::of(blocks);
    let height = HEAD + blocks.len().div_ceil(ROW).max(1) * CELL + 4;
    let width = ROW * CELL + 4;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<script>setTimeout(function(){{location.reload()}},1000)</script>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n<text x=\"2\" y=\"{LINE}\">{}</text>\n\
         <text x=\"2\" y=\"{}\">{} blocks of {block_pages} pages; erased {} to {} times, {:.1} on average</text>\n",
        escape(title),
        2 * LINE,
        blocks.len(),
        wear.least,
        wear.most,
        wear.mean,
    );
    let mut x = 2;
    let roles = LEGEND.map(|(_, name, colour)| (name, colour, colour.to_owned()));
    // The frame shows the wear of a block.
    let free = colour(Role::Free);
    let others = [
        ("dead", DEAD, DEAD.to_owned()),
        ("least worn", free, frame(0.0)),
        ("most worn", free, frame(1.0)),
    ];
    for (name, colour, frame) in roles.into_iter().chain(others) {
        // Writing to a string does not fail.
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{}\" width=\"9\" height=\"9\" fill=\"{colour}\" stroke=\"{frame}\"/>\
             <text x=\"{}\" y=\"{}\">{name}</text>",
            3 * LINE - 9,
            x + 13,
            3 * LINE,
        );
        x += 40 + 7 * name.len();
    }
    for (number, block) in blocks.iter().enumerate() {
        cell(&mut svg, number, block, block_pages, &wear);
    }
    svg.push_str("</svg>\n");
    svg
}

/// The colour of a frame; `worn` is 0 to 1.
fn frame(worn: f64) -> String {
    let grey = 210 - (worn * 210.0) as u8;
    format!("rgb({grey},{grey},{grey})")
}

fn cell(svg: &mut String, number: usize, block: &BlockView, block_pages: u32, wear: &Wear) {
    let (x, y) = (number % ROW * CELL + 2, number / ROW * CELL + HEAD);
    let size = (CELL - 2) as f64;
    let part =
        |pages: u32| size * f64::from(pages.min(block_pages)) / f64::from(block_pages.max(1));
    let (live, used) = (part(block.live), part(block.used));
    let worn = f64::from(block.erases - wear.least) / f64::from((wear.most - wear.least).max(1));
    let frame = frame(worn);
    let _ = writeln!(
        svg,
        "<g><title>{number}: {} of {} live, erased {}</title>\
         <rect x=\"{x}\" y=\"{y}\" width=\"{size}\" height=\"{size}\" fill=\"{}\" stroke=\"{frame}\"/>\
         <rect x=\"{x}\" y=\"{:.1}\" width=\"{size}\" height=\"{used:.1}\" fill=\"{DEAD}\"/>\
         <rect x=\"{x}\" y=\"{:.1}\" width=\"{size}\" height=\"{live:.1}\" fill=\"{}\"/></g>",
        block.live,
        block.used,
        block.erases,
        colour(Role::Free),
        y as f64 + size - used,
        y as f64 + size - live,
        colour(block.role),
    );
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_has_a_cell() {
        let block = |live, erases| BlockView {
            role: Role::Data,
            live,
            used: 4,
            erases,
        };
        let svg = picture(&[block(4, 0), block(1, 9), block(0, 3)], 4, "a <b>");
        assert_eq!(svg.matches("<g>").count(), 3);
        for name in ["free", "log", "dead", "least worn", "most worn"] {
            assert!(svg.contains(&format!(">{name}</text>")), "{name}");
        }
        assert!(svg.contains("1: 1 of 4 live, erased 9") && svg.contains("a &lt;b>"));
        assert!(svg.contains("height=\"2.0\" fill=\"#2f6fb0\""), "{svg}");
        assert!(picture(&[], 4, "").ends_with("</svg>\n"));
    }
}
