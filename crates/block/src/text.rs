//! Text of others' making, such as names on a volume and what a server says: it must not steer the
//! terminal or the log that shows it.

/// Whether a character is not shown but steers a terminal, or turns the direction of what is
/// written around it (Unicode's Bidi_Control).
pub fn is_unseen(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}');
    c.is_control() || turns
}

/// Text for a terminal: what is not seen, but for ends of lines, is escaped.
pub fn printable(text: &str) -> String {
    escaped(text, |c| is_unseen(c) && c != '\n')
}

/// The same, in one line.
pub fn printable_line(text: &str) -> String {
    escaped(text, is_unseen)
}

fn escaped(text: &str, is_to_be: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match is_to_be(c) {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_others_do_not_steer_the_terminal() {
        let name = "a\u{1b}[31mb\r\u{9b}c\nd \u{e9}\u{202e}";
        let shown = "a\\u{1b}[31mb\\r\\u{9b}c\nd \u{e9}\\u{202e}";
        assert_eq!(printable(name), shown);
        assert_eq!(printable_line(name), shown.replace('\n', "\\n"));
    }
}
