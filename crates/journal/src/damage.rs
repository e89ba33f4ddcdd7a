//! The list of what a recovery leaves out of a damaged log.

/// The most entries that are kept; the rest is only counted. A log made with bad intent can have
/// any number of them.
const TOLD: usize = 1000;

/// Descriptions of what was left out, each with its reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    told: Vec<String>,
    more: u64,
}

impl Damage {
    /// Adds one entry.
    pub fn push(&mut self, why: String) {
        if self.told.len() < TOLD {
            tracing::error!("left out: {why}");
            self.told.push(why);
        } else {
            self.more += 1;
        }
    }

    /// Whether nothing was left out.
    pub fn is_empty(&self) -> bool {
        self.told.is_empty()
    }

    /// The number of entries.
    pub fn len(&self) -> u64 {
        self.told.len() as u64 + self.more
    }

    /// The entries as text: the first thousand, and how many more there are.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = self.told.clone();
        if self.more > 0 {
            lines.push(format!("{} more", self.more));
        }
        lines
    }
}

impl Extend<String> for Damage {
    fn extend<T: IntoIterator<Item = String>>(&mut self, all: T) {
        all.into_iter().for_each(|why| self.push(why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_are_told_and_the_rest_counted() {
        let mut damage = Damage::default();
        assert!(damage.is_empty() && damage.lines().is_empty());
        damage.extend((0..1_500_000).map(|i| format!("image {i}")));
        assert_eq!(damage.len(), 1_500_000);
        let lines = damage.lines();
        assert_eq!(lines.len(), 1001);
        assert_eq!(lines.first().map(String::as_str), Some("image 0"));
        assert_eq!(lines.last().map(String::as_str), Some("1499000 more"));
    }
}
