//! The registration of `home=share`.

// Registered parts are placed in a linker section by linkme, which takes `unsafe` code.
#![allow(unsafe_code)]

use super::ShareHome;
use crate::compose::{Ability, Make, PARTS, Part};

#[linkme::distributed_slice(PARTS)]
static SHARE: Part = Part {
    name: "share",
    help: "the device shares verbatim blocks from the log, where it can (SHARE); others are written",
    options: &[],
    offers: Ability::empty(),
    needs: Ability::empty(),
    make: Make::Home(|_| Box::new(ShareHome)),
};
