//! Suggestions for a name that does not exist.

/// The known name that is nearest to `word`, if it is near: at most one letter in three is wrong,
/// missing, superfluous or swapped (Damerau-Levenshtein distance).
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    known
        .into_iter()
        .map(|name| (strsim::osa_distance(&word, name), name))
        .filter(|(distance, name)| *distance > 0 && distance * 3 <= name.chars().count().max(3))
        .min()
        .map(|(_, name)| name)
}

/// The suggestion as the end of a message: `; did you mean NAME?`, or nothing.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, known).map_or_else(String::new, |name| format!("; did you mean {name}?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_the_hand_are_understood_and_other_words_are_not() {
        let known = ["journal", "commit", "cache", "cache_policy", "ldj", "ro"];
        for (word, meant) in [
            ("jounal", "journal"),
            ("jorunal", "journal"),
            ("Journl", "journal"),
            ("comit", "commit"),
            ("ljd", "ldj"),
            ("cachepolicy", "cache_policy"),
        ] {
            assert_eq!(nearest(word, known), Some(meant), "{word}");
        }
        for word in ["", "frobnicate", "x", "home", "journal_of_all"] {
            assert_eq!(nearest(word, known), None, "{word}");
        }
    }
}
