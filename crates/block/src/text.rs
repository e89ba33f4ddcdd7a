//! Safe display of foreign text, such as names on a volume and messages of a server: it must not
//! control the terminal or the log that shows it.

/// Whether a character is invisible but controls a terminal, or changes the direction of the text
/// around it (Unicode's Bidi_Control).
pub fn is_unseen(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}');
    c.is_control() || turns
}

/// Text for a terminal: invisible characters, except line ends, are escaped.
pub fn printable(text: &str) -> String {
    escaped(text, |c| is_unseen(c) && c != '\n')
}

/// The same in one line: line ends are escaped, too.
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
