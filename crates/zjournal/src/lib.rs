//! Z-Journal (`journal=zjournal`): a lane of transactions for each processor, in a log that
//! recovers what it promised (Kim et al., USENIX ATC 2021; `docs/schemes/zjournal.md`). With
//! `order=directories` the place of a change chooses the lane (DJFS, FAST 2025).

#![forbid(unsafe_code)]

use stetfs_journal::compose::{
    Ability, Composition, Make, OptionDef, PARTS, PRESETS, Part, Preset, PresetDef, between, one_of,
};
use stetfs_journal::policy::{Copies, Ordering};
use stetfs_journal::{Lane, Near};
use stetfs_sync::{processors, served_processor, thread_number};

/// Values of `copies`.
const ON_WRITE: &str = "on-write";
const PROACTIVE: &str = "proactive";

/// Values of `commits`.
const APART: &str = "apart";
const TOGETHER: &str = "together";

/// Values of `groups`.
const CORE: &str = "core";
const PLAIN: &str = "plain";

/// Maximum number of lanes.
const MOST: u16 = 64;

/// The lane of a change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    /// The lane of the processor. A thread that serves the requests of one processor (FUSE over
    /// io_uring) uses that processor's lane. Other threads move between processors at the
    /// scheduler's choice, so each uses the lane of its thread number.
    Processor,
    /// The lane of the neighbourhood: directories that lie together share it, with their files.
    Directory,
}

/// The orderings with a lane for each processor.
struct Cores {
    by: By,
    lanes: u16,
    /// The option `lanes` was given.
    asked: bool,
    copies: Copies,
    /// Each lane has commit leaders of its own.
    commits_apart: bool,
    /// Each lane has block groups of its own.
    groups_apart: bool,
}

impl Ordering for Cores {
    fn lanes(&self) -> u16 {
        self.lanes
    }

    fn may_be_fewer(&self) -> bool {
        !self.asked
    }

    fn copies(&self) -> Copies {
        self.copies
    }

    fn keeps_apart(&self) -> bool {
        self.groups_apart
    }

    fn commits_apart(&self) -> bool {
        self.commits_apart
    }

    fn lane(&self, near: Option<Near>) -> Lane {
        let number = match (self.by, near) {
            (By::Directory, Some(near)) => near % Near::from(self.lanes),
            // Changes of no inode, such as a label, are rare.
            (By::Directory, None) => 0,
            (By::Processor, _) => Near::from(served_processor().unwrap_or_else(thread_number)),
        };
        Lane(u16::try_from(number % Near::from(self.lanes)).unwrap_or(0))
    }
}

impl Cores {
    /// Takes the number of lanes from the option, else the number of processors.
    fn of(journal: &Composition, by: By) -> Cores {
        let said = journal.number("lanes");
        let wanted = said.unwrap_or(processors() as u64);
        Cores {
            by,
            lanes: u16::try_from(wanted).map_or(MOST, |n| n.clamp(1, MOST)),
            asked: said.is_some(),
            copies: match journal.value("copies") {
                Some(PROACTIVE) => Copies::Proactive,
                _ => Copies::OnWrite,
            },
            commits_apart: journal.value("commits") == Some(APART),
            groups_apart: journal.value("groups") == Some(CORE),
        }
    }
}

const COMMITS_OPTION: OptionDef = OptionDef {
    name: "commits",
    values: "together|apart",
    help: "who leads commits: one thread for all lanes, or one for each lane (together)",
    check: |value| one_of(&[TOGETHER, APART], value),
};

const COPIES_OPTION: OptionDef = OptionDef {
    name: "copies",
    values: "on-write|proactive",
    help: "who copies a page that a commit holds: who changes it, or the commit ahead of him (on-write)",
    check: |value| one_of(&[ON_WRITE, PROACTIVE], value),
};

const GROUPS_OPTION: OptionDef = OptionDef {
    name: "groups",
    values: "plain|core",
    help: "where space is looked for: anywhere, or first in block groups of the lane's own (plain)",
    check: |value| one_of(&[PLAIN, CORE], value),
};

const LANES_OPTION: OptionDef = OptionDef {
    name: "lanes",
    values: "N",
    help: "lanes (the processors, or fewer where the journal is small)",
    check: |value| between(1, u64::from(MOST), value),
};

#[linkme::distributed_slice(PARTS)]
static CORES: Part = Part {
    name: "cores",
    help: "a lane of transactions for each processor",
    options: &[COMMITS_OPTION, COPIES_OPTION, GROUPS_OPTION, LANES_OPTION],
    offers: Ability::empty(),
    needs: Ability::LANES,
    make: Make::Order(|journal| Box::new(Cores::of(journal, By::Processor))),
};

#[linkme::distributed_slice(PARTS)]
static DIRECTORIES: Part = Part {
    name: "directories",
    help: "lanes of transactions by the place of the directory on the volume",
    options: &[COMMITS_OPTION, COPIES_OPTION, LANES_OPTION],
    offers: Ability::empty(),
    needs: Ability::LANES,
    make: Make::Order(|journal| Box::new(Cores::of(journal, By::Directory))),
};

#[linkme::distributed_slice(PRESETS)]
static ZJOURNAL_DEF: PresetDef = PresetDef {
    name: "zjournal",
    help: "as ordered, with a lane of transactions for each processor",
    rank: 60,
    set: &[("data", "ordered"), ("codec", "frames"), ("order", "cores")],
};

/// Ordered data, and a lane of transactions for each processor.
pub const ZJOURNAL: Preset = Preset(&ZJOURNAL_DEF);

#[cfg(test)]
mod tests {
    use super::*;
    use stetfs_journal::compose::{Axis, DataMode};

    fn journal(text: &str) -> Composition {
        text.parse().unwrap_or_default()
    }

    #[test]
    fn it_has_a_lane_for_each_processor() {
        assert_eq!("zjournal".parse(), Ok(ZJOURNAL));
        let expected = processors().min(usize::from(MOST));
        let made = journal("zjournal");
        assert_eq!(usize::from(made.ordering().lanes()), expected);
        assert!(made.ordering().may_be_fewer());
        assert_eq!(made.part(Axis::Codec).name, "frames");
        assert_eq!(made.data(), DataMode::Ordered);
        let made = journal("zjournal,data=journal,lanes=8");
        assert_eq!(
            (made.ordering().lanes(), made.data()),
            (8, DataMode::Journal)
        );
        assert!(!made.ordering().may_be_fewer());
        let refused = |text: &str| text.parse::<Composition>().map_err(|e| e.to_string());
        let why = refused("zjournal,codec=jbd2");
        assert_eq!(
            why,
            Err("order=cores needs codec=frames, not codec=jbd2".into())
        );
        // A record of a file could outlive a later commit of a lane.
        for text in ["zjournal,sync=file", "ijournal,order=cores", "stet,lanes=2"] {
            let why = refused(text);
            let said = "sync=file needs order=one, not order=cores";
            assert_eq!(why, Err(said.into()), "{text}");
        }
        assert_eq!(
            refused("zjournal,lanes=65"),
            Err("lanes must be a number from 1 to 64".into())
        );
    }

    /// The paper's third mode, waiting for the log, is not implemented (decisions/0029).
    #[test]
    fn pages_are_copied_by_writers_or_ahead_of_them() {
        let copies = |text: &str| journal(text).ordering().copies();
        assert_eq!(copies("zjournal"), Copies::OnWrite);
        assert_eq!(copies("zjournal,copies=on-write"), Copies::OnWrite);
        assert_eq!(copies("zjournal,copies=proactive"), Copies::Proactive);
        let refused = "zjournal,copies=wait".parse::<Composition>();
        assert_eq!(
            refused.map_err(|e| e.to_string()),
            Err("copies must be on-write or proactive".into())
        );
    }

    #[test]
    fn lanes_keep_apart_where_they_are_to() {
        let apart = |text: &str| journal(text).ordering().keeps_apart();
        assert!(apart("zjournal,groups=core") && !apart("zjournal"));
        assert!(!apart("zjournal,groups=plain"));
    }

    #[test]
    fn commits_are_led_together_or_apart() {
        let apart = |text: &str| journal(text).ordering().commits_apart();
        assert!(apart("zjournal,commits=apart") && !apart("zjournal"));
        assert!(!apart("zjournal,commits=together"));
    }

    #[test]
    fn a_directory_keeps_its_lane() {
        let order = journal("zjournal,order=directories,lanes=3").ordering();
        let lanes = [Some(0), Some(1), Some(5), None].map(|near| order.lane(near));
        assert_eq!(lanes, [Lane(0), Lane(1), Lane(2), Lane(0)]);
        let refused = "zjournal,order=directories,groups=core".parse::<Composition>();
        assert!(refused.is_err_and(|e| e.to_string().contains("groups")));
    }

    #[test]
    fn a_thread_keeps_its_lane() {
        let order = Cores::of(&journal("zjournal,lanes=3"), By::Processor);
        let (first, again) = (order.lane(None), order.lane(Some(7)));
        assert_eq!(first, again);
        let others = std::thread::scope(|scope| {
            let spawn = |served: Option<u16>| {
                let order = &order;
                scope.spawn(move || {
                    served.into_iter().for_each(stetfs_sync::serve_processor);
                    order.lane(None)
                })
            };
            [Some(0), Some(1), Some(5), None].map(|served| spawn(served).join().ok())
        });
        let lanes = [Lane(0), Lane(1), Lane(2)].map(Some);
        assert_eq!(others[..3], lanes);
        assert!(others[3].is_some_and(|lane| lane.0 < 3 && lane != first));
    }
}
