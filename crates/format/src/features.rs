//! Changes of a profile's features, as `-O` of mke2fs has them.

use std::str::FromStr;

use stetfs_ondisk::ext4::features::{
    Compat, FeatureNames, Features, Incompat, RoCompat, WRITTEN_INCOMPAT, WRITTEN_RO_COMPAT,
};

/// Compatible features that a new volume may have.
const COMPAT: Compat = Compat::HAS_JOURNAL
    .union(Compat::EXT_ATTR)
    .union(Compat::RESIZE_INODE)
    .union(Compat::DIR_INDEX)
    .union(Compat::SPARSE_SUPER2)
    .union(Compat::FAST_COMMIT)
    .union(Compat::STABLE_INODES)
    .union(Compat::ORPHAN_FILE);

/// All features that a new volume may have.
pub(crate) const OFFERED: Features = Features {
    compat: COMPAT,
    incompat: WRITTEN_INCOMPAT,
    ro_compat: WRITTEN_RO_COMPAT,
};

/// Other names of features that mke2fs takes.
const ALIASES: [(&str, &str); 4] = [
    ("extents", "extent"),
    ("journal", "has_journal"),
    ("huge_files", "huge_file"),
    ("gdt_csum", "uninit_bg"),
];

/// Features to add to those of a profile, and to leave out, from a text such as
/// `bigalloc,^resize_inode`. `none` leaves out everything before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FeatureEdits {
    pub(crate) added: Features,
    pub(crate) left_out: Features,
}

impl FeatureEdits {
    /// Applies a further text of edits.
    ///
    /// # Errors
    /// A name that is no feature, or one that StetFS does not write; the text says which there are.
    pub fn edit(&mut self, text: &str) -> Result<(), String> {
        for word in text.split([',', ' ']).filter(|word| !word.is_empty()) {
            if word == "none" {
                *self = FeatureEdits {
                    added: Features::default(),
                    left_out: OFFERED,
                };
                continue;
            }
            let (name, adds) = match word.strip_prefix(['^', '-']) {
                Some(name) => (name, false),
                None => (word, true),
            };
            let feature = named(name, adds)?;
            let (to, from) = match adds {
                true => (&mut self.added, &mut self.left_out),
                false => (&mut self.left_out, &mut self.added),
            };
            *to = union(to, &feature);
            *from = minus(from, &feature);
        }
        Ok(())
    }

    /// The features of a profile with these changes.
    pub(crate) fn apply(&self, to: &Features) -> Features {
        union(&minus(to, &self.left_out), &self.added)
    }
}

impl FromStr for FeatureEdits {
    type Err = String;

    fn from_str(text: &str) -> Result<FeatureEdits, String> {
        let mut edits = FeatureEdits::default();
        edits.edit(text)?;
        Ok(edits)
    }
}

fn union(a: &Features, b: &Features) -> Features {
    Features {
        compat: a.compat | b.compat,
        incompat: a.incompat | b.incompat,
        ro_compat: a.ro_compat | b.ro_compat,
    }
}

fn minus(a: &Features, b: &Features) -> Features {
    Features {
        compat: a.compat - b.compat,
        incompat: a.incompat - b.incompat,
        ro_compat: a.ro_compat - b.ro_compat,
    }
}

/// The feature of this name. Any known one may be left out.
fn named(name: &str, adds: bool) -> Result<Features, String> {
    let alias = ALIASES.iter().find(|(other, _)| *other == name);
    let name = alias.map_or(name, |(_, name)| name);
    let feature = Features {
        compat: Compat::from_bits_retain(bit::<Compat>(name)),
        incompat: Incompat::from_bits_retain(bit::<Incompat>(name)),
        ro_compat: RoCompat::from_bits_retain(bit::<RoCompat>(name)),
    };
    if feature == Features::default() {
        return Err(format!("there is no feature {name:?}; there are {OFFERED}"));
    }
    if adds && minus(&feature, &OFFERED) != Features::default() {
        let why = match name {
            "needs_recovery" | "orphan_present" | "read-only" => "it is a state of a volume",
            "journal_dev" => "it makes a journal for another volume: use mke2fs -O journal_dev",
            _ => "StetFS does not write such volumes: use mke2fs for one that only Linux writes",
        };
        return Err(format!(
            "a new volume cannot have the feature {name}: {why}"
        ));
    }
    Ok(feature)
}

/// The bit of a feature's name in one word, 0 if it is in another.
fn bit<F: FeatureNames>(name: &str) -> u32 {
    let mut names = F::NAMES.iter();
    names.find(|(_, n)| *n == name).map_or(0, |(bit, _)| *bit)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::profile::Profile;

    fn features(text: &str) -> String {
        let edits: FeatureEdits = text.parse().unwrap();
        let profile = Profile::Mke2fs.defaults(1 << 30).features;
        edits.apply(&profile).to_string()
    }

    #[test]
    fn features_are_added_and_left_out() {
        assert!(features("bigalloc").contains("bigalloc"));
        assert!(!features("^has_journal").contains("has_journal"));
        assert!(features("^extents,extent").contains("extent"));
        assert_eq!(features("none,filetype"), "filetype");
    }

    #[test]
    fn features_that_are_not_written_are_refused() {
        for name in ["casefold", "encrypt", "verity", "shared_blocks", "recover"] {
            assert!(name.parse::<FeatureEdits>().is_err(), "{name}");
        }
        // To leave them out is no mistake.
        assert!("^casefold".parse::<FeatureEdits>().is_ok());
        let said = "big_alloc".parse::<FeatureEdits>().unwrap_err();
        assert!(said.contains("bigalloc"), "{said}");
    }
}
