//! Rules between features: what one requires, and what it excludes.
//!
//! A feature of the profile gives way to one that was asked for, with a note; two that were asked
//! for are an error.

use stetfs_ondisk::ext4::features::{Compat, Features, Incompat, RoCompat};

use crate::error::{Result, options};
use crate::features::{FeatureEdits, OFFERED};

/// One feature, in whichever word it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Feature {
    /// Of `s_feature_compat`.
    Compat(Compat),
    /// Of `s_feature_incompat`.
    Incompat(Incompat),
    /// Of `s_feature_ro_compat`.
    RoCompat(RoCompat),
}

use Feature::{Compat as C, Incompat as I, RoCompat as R};

impl Feature {
    fn is_in(self, all: &Features) -> bool {
        match self {
            C(f) => all.compat.contains(f),
            I(f) => all.incompat.contains(f),
            R(f) => all.ro_compat.contains(f),
        }
    }

    fn set(self, all: &mut Features, on: bool) {
        match self {
            C(f) => all.compat.set(f, on),
            I(f) => all.incompat.set(f, on),
            R(f) => all.ro_compat.set(f, on),
        }
    }

    fn name(self) -> String {
        let mut only = Features::default();
        self.set(&mut only, true);
        only.to_string()
    }
}

/// Pairs (a feature, another that it requires).
const REQUIRES: [(Feature, Feature); 9] = [
    (R(RoCompat::PROJECT), R(RoCompat::QUOTA)),
    (R(RoCompat::BIGALLOC), I(Incompat::EXTENTS)),
    (I(Incompat::BIT64), I(Incompat::EXTENTS)),
    (I(Incompat::CSUM_SEED), R(RoCompat::METADATA_CSUM)),
    (C(Compat::ORPHAN_FILE), C(Compat::HAS_JOURNAL)),
    (C(Compat::FAST_COMMIT), C(Compat::HAS_JOURNAL)),
    (I(Incompat::INLINE_DATA), C(Compat::EXT_ATTR)),
    (I(Incompat::EA_INODE), C(Compat::EXT_ATTR)),
    (C(Compat::RESIZE_INODE), R(RoCompat::LARGE_FILE)),
];

/// Pairs of features that exclude each other. If neither was asked for, the second gives way.
const EXCLUDES: [(Feature, Feature); 2] = [
    (I(Incompat::META_BG), C(Compat::RESIZE_INODE)),
    (R(RoCompat::METADATA_CSUM), R(RoCompat::GDT_CSUM)),
];

/// The features of a new volume while they are decided.
pub(crate) struct Choice<'a> {
    pub(crate) features: Features,
    edits: &'a FeatureEdits,
    /// Deviations from what the profile says, for the user.
    pub(crate) notes: Vec<String>,
}

impl<'a> Choice<'a> {
    /// The profile's features with the edits, after all rules.
    ///
    /// # Errors
    /// Features that were asked for contradict each other.
    pub(crate) fn new(profile: &Features, edits: &'a FeatureEdits) -> Result<Choice<'a>> {
        let mut choice = Choice {
            features: edits.apply(profile),
            edits,
            notes: Vec::new(),
        };
        choice.exclude()?;
        // A feature may go with one that it requires, and take a third with it.
        for _ in 0..REQUIRES.len() {
            choice.require()?;
        }
        Ok(choice)
    }

    /// Whether the volume has the feature.
    pub(crate) fn has(&self, feature: Feature) -> bool {
        feature.is_in(&self.features)
    }

    fn asked(&self, feature: Feature) -> bool {
        feature.is_in(&self.edits.added)
    }

    fn refused(&self, feature: Feature) -> bool {
        feature.is_in(&self.edits.left_out)
    }

    fn exclude(&mut self) -> Result<()> {
        for (a, b) in EXCLUDES {
            if !self.has(a) || !self.has(b) {
                continue;
            }
            if self.asked(a) && self.asked(b) {
                return options(format!(
                    "{} and {} exclude each other: leave out one of them",
                    a.name(),
                    b.name()
                ));
            }
            let (stays, goes) = match self.asked(b) {
                true => (b, a),
                false => (a, b),
            };
            self.without(goes, &format!("{} excludes it", stays.name()))?;
        }
        Ok(())
    }

    fn require(&mut self) -> Result<()> {
        for (one, needs) in REQUIRES {
            if !self.has(one) || self.has(needs) {
                continue;
            }
            if self.asked(one) && !self.refused(needs) {
                needs.set(&mut self.features, true);
                continue;
            }
            self.without(one, &format!("it needs {}", needs.name()))?;
        }
        Ok(())
    }

    /// Takes a feature out, if the volume has it.
    ///
    /// # Errors
    /// It was asked for.
    pub(crate) fn without(&mut self, feature: Feature, why: &str) -> Result<()> {
        if !self.has(feature) {
            return Ok(());
        }
        let name = feature.name();
        if self.asked(feature) {
            return options(format!(
                "the feature {name} is not possible here: {why}; leave it out (-O ^{name})"
            ));
        }
        feature.set(&mut self.features, false);
        self.notes.push(format!("without {name}: {why}"));
        Ok(())
    }

    /// Puts a feature in.
    ///
    /// # Errors
    /// It was asked to be left out.
    pub(crate) fn with(&mut self, feature: Feature, why: &str) -> Result<()> {
        debug_assert!(feature.is_in(&OFFERED));
        if self.has(feature) {
            return Ok(());
        }
        let name = feature.name();
        if self.refused(feature) {
            return options(format!("the feature {name} cannot be left out: {why}"));
        }
        feature.set(&mut self.features, true);
        self.notes.push(format!("with {name}: {why}"));
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::profile::Profile;

    fn of(text: &str) -> std::result::Result<String, String> {
        let edits = text.parse().unwrap();
        let profile = Profile::Mke2fs.defaults(1 << 30).features;
        match Choice::new(&profile, &edits) {
            Ok(choice) => Ok(choice.features.to_string()),
            Err(e) => Err(e.to_string()),
        }
    }

    #[test]
    fn a_feature_brings_what_it_requires() {
        assert!(of("project").unwrap().contains("quota"));
        assert!(of("project,^quota").unwrap_err().contains("it needs quota"));
        let without = of("^metadata_csum").unwrap();
        assert!(!without.contains("metadata_csum_seed"), "{without}");
        let without = of("^has_journal").unwrap();
        assert!(!without.contains("orphan_file"), "{without}");
        assert!(!of("^extent").unwrap().contains("64bit"));
    }

    #[test]
    fn what_was_asked_for_excludes_what_was_not() {
        assert!(!of("meta_bg").unwrap().contains("resize_inode"));
        assert!(of("meta_bg,resize_inode").is_err());
        let old = of("uninit_bg").unwrap();
        assert!(
            old.contains("uninit_bg") && !old.contains("metadata_csum"),
            "{old}"
        );
    }
}
