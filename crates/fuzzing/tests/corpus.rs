//! Each target runs its whole corpus: seeds, and inputs of former failures.

use std::path::Path;

#[test]
fn the_corpus_does_no_harm() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, target) in stetfs_fuzzing::TARGETS {
        let mut count = 0;
        for entry in std::fs::read_dir(corpus.join(name)).unwrap() {
            let path = entry.unwrap().path();
            println!("{}", path.display());
            target(&std::fs::read(path).unwrap());
            count += 1;
        }
        assert!(count > 0, "{name} has no corpus");
    }
}

/// Random bytes, so that `./test` also fuzzes a little.
#[test]
fn arbitrary_bytes_do_no_harm() {
    let mut rng = fastrand::Rng::with_seed(11);
    for round in 0..3000 {
        let mut bytes = vec![0; rng.usize(..2000)];
        rng.fill(&mut bytes);
        let cheap = &stetfs_fuzzing::TARGETS[2..];
        for (_, target) in if round % 100 == 0 {
            &stetfs_fuzzing::TARGETS
        } else {
            cheap
        } {
            target(&bytes);
        }
    }
}
