//! The methods of a file, and the calls `self.method()` in it, read from its words.

/// A method: the name of its type, and its own.
pub(super) type Method = (String, String);

/// The methods of a source.
#[derive(Default)]
pub(super) struct Methods {
    pub(super) declared: Vec<Method>,
    /// Calls of methods of `self`.
    pub(super) called: Vec<Method>,
}

impl Methods {
    /// The methods in these words and signs, which are without comments, texts and tests.
    pub(super) fn of(words: &[&str]) -> Methods {
        let mut methods = Methods::default();
        let mut at = 0;
        while let Some(word) = words.get(at) {
            // Elsewhere `impl Trait` is the type of an argument or a result.
            let is_item = at == 0 || ["}", ";", "]", "unsafe", "{"].contains(&words[at - 1]);
            if *word == "impl"
                && is_item
                && let Some((subject, body)) = head(&words[at..])
            {
                let begin = at + body;
                let end = begin + block_len(&words[begin..]);
                methods.read(&subject, &words[begin..end]);
                at = end;
            } else {
                at += 1;
            }
        }
        methods
    }

    fn read(&mut self, subject: &str, body: &[&str]) {
        for part in body.windows(4) {
            let method = |name: &str| (subject.to_owned(), name.to_owned());
            match part {
                ["fn", name, ..] => self.declared.push(method(name)),
                ["self", ".", name, "(" | "::"] => self.called.push(method(name)),
                _ => {}
            }
        }
    }
}

/// The type that an `impl` is of, and the number of words before its body.
fn head(words: &[&str]) -> Option<(String, usize)> {
    let (mut depth, mut subject) = (0i32, None);
    for (at, word) in words.iter().enumerate().skip(1) {
        match *word {
            "<" | "(" | "[" => depth += 1,
            // Of an arrow.
            ">" if words[at - 1] == "-" => {}
            ">" | ")" | "]" => depth -= 1,
            "{" => return Some((subject?, at)),
            ";" => return None,
            "where" if depth == 0 => {
                let body = words.iter().skip(at).position(|word| *word == "{")?;
                return Some((subject?, at + body));
            }
            "for" if depth == 0 => subject = None,
            word if depth == 0 && word.starts_with(char::is_alphabetic) => {
                subject = Some(word.to_owned());
            }
            _ => {}
        }
    }
    None
}

/// The words of the block in braces that begins here.
fn block_len(words: &[&str]) -> usize {
    let mut depth = 0;
    for (at, word) in words.iter().enumerate() {
        match *word {
            "{" => depth += 1,
            "}" => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
    }
    words.len()
}

#[test]
fn methods_are_those_of_impl_blocks() {
    let text = "impl < T > Show for Tree < T > where T : X { fn draw ( & self ) { self . leaf ( 1 ) ; \
                other . no ( ) ; self . field ; } } fn free ( x : impl Fn ( u8 ) ) { } \
                impl Fs { fn a ( self ) { let x : Vec < impl Y > ; self . b :: < u8 > ( ) } }";
    let words: Vec<&str> = text.split_whitespace().collect();
    let Methods { declared, called } = Methods::of(&words);
    let shown = |methods: Vec<Method>| {
        let each = methods
            .into_iter()
            .map(|(of, name)| format!("{of}::{name}"));
        each.collect::<Vec<_>>()
    };
    assert_eq!(shown(declared), ["Tree::draw", "Fs::a"]);
    assert_eq!(shown(called), ["Tree::leaf", "Fs::b"]);
}
