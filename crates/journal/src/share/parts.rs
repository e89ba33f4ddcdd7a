//! What journals that share are made of.

// What registers itself is put into a section of its own, which linkme sees to.
#![allow(unsafe_code)]

use super::ShareHome;
use crate::compose::{Ability, Make, PARTS, Part};

#[linkme::distributed_slice(PARTS)]
static SHARE: Part = Part {
    name: "share",
    help: "the device shares what stands in the log as it is, where it can (SHARE); the rest is written there",
    options: &[],
    offers: Ability::empty(),
    needs: Ability::empty(),
    make: Make::Home(|_| Box::new(ShareHome)),
};
