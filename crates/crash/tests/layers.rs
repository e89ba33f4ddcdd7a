//! Power cuts below flash translation layers.
use stetfs_crash::layers::{How, Layer, Outcome, explore};
use stetfs_crash::setup::{JournalSpec, Shape};
use stetfs_crash::workload::cases;
use stetfs_testkit::Scratch;

fn search(layer: Layer, journal: &str, block: u32, seconds: f64) -> Outcome {
    let how = How {
        layer,
        seed: 1,
        seconds,
        threads: 2,
        failures: 3,
    };
    let journal: JournalSpec = journal.parse().unwrap();
    let shape = Shape {
        block,
        ..Shape::default()
    };
    let out = Scratch::new("layers").unwrap();
    let make = |seed| cases("smoke", seed);
    explore(how, &journal, shape, &make, out.path()).unwrap()
}

#[test]
fn what_was_synced_stands_on_every_layer() {
    for layer in [Layer::Page, Layer::Fast, Layer::Bast, Layer::Log] {
        let outcome = search(layer, "ordered", 1024, 4.0);
        assert_eq!(outcome.failures, 0, "{layer:?}: {}", outcome.text());
        assert!(
            outcome.drawn > 20 && outcome.judged > 10,
            "{}",
            outcome.text()
        );
    }
}

/// The search finds commits that do not flush, on each layer.
#[test]
fn what_is_not_flushed_is_lost_on_every_layer() {
    for layer in [Layer::Page, Layer::Fast, Layer::Bast, Layer::Log] {
        let outcome = search(layer, "ordered,canary=no-barrier", 1024, 60.0);
        // The other thread may have been about to find a failure.
        assert!(outcome.failures >= 3, "{layer:?}: {}", outcome.text());
    }
}

/// A page-level SSD shares in checkpoints. The other layers cannot share, so they are tested only
/// with journals that do not.
#[test]
fn a_page_level_device_shares() {
    let outcome = search(Layer::Page, "afs", 4096, 4.0);
    assert_eq!(outcome.failures, 0, "{}", outcome.text());
    assert!(outcome.shares > 0, "{}", outcome.text());
}
