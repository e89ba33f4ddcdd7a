//! AFS (`journal=afs`), first half: data journaling whose checkpoint writes no data; the device
//! shares the images that are in the log (SDJ: Kang's dissertation, ch. 3; `docs/schemes/afs.md`).

#![forbid(unsafe_code)]

use stetfs_journal::compose::{PRESETS, Preset, PresetDef};

#[linkme::distributed_slice(PRESETS)]
static AFS_DEF: PresetDef = PresetDef {
    name: "afs",
    help: "as data, but what is logged is shared to its home, where the device can (SHARE)",
    rank: 70,
    set: &[("data", "journal"), ("codec", "jbd2"), ("home", "share")],
};

/// jbd2 with journaled data, checkpointed by SHARE.
pub const AFS: Preset = Preset(&AFS_DEF);

#[cfg(test)]
mod tests {
    use super::*;
    use stetfs_journal::Composition;
    use stetfs_journal::compose::{Axis, DataMode};

    #[test]
    fn it_is_data_journaling_that_shares() {
        assert_eq!("afs".parse(), Ok(AFS));
        let made = Composition::from(AFS);
        assert_eq!(made.data(), DataMode::Journal);
        assert_eq!(made.part(Axis::Home).name, "share");
        assert!(made.is_jbd2(), "the kernel and e2fsck replay it");
        let parsed: Result<Composition, _> = "afs,codec=frames,home=copy".parse();
        let home = parsed.map(|made| made.part(Axis::Home).name);
        assert_eq!(home, Ok("copy"));
    }
}
