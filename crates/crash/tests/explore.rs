//! The lab at work: sound presets break no promise, each canary is found, and a failure can be
//! repeated and shrunk. `STETFS_LONG=1` searches for minutes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use stetfs_block::{Event, Replay, Share, SharePair};
use stetfs_crash::canary;
use stetfs_crash::explore::{
    Config, Failure, Often, Outcome, Progress, Source, explore, image_hash,
};
use stetfs_crash::faults::{self, Fault};
use stetfs_crash::html;
use stetfs_crash::judge::{Checks, Oracle};
use stetfs_crash::record::{Recording, failing};
use stetfs_crash::report::Report;
use stetfs_crash::setup::{JournalSpec, Shape};
use stetfs_crash::shrink::shrink;
use stetfs_crash::state::{StateId, Uncertain, Why, first_pass, points};
use stetfs_crash::volume::Batches;
use stetfs_crash::workload::{Case, cases, text};

const SEED: u64 = 1;

fn long() -> bool {
    std::env::var("STETFS_LONG").is_ok_and(|v| v == "1")
}

fn search(journal: &str, workload: &str, shape: Shape, config: Config) -> Outcome {
    let journal: JournalSpec = journal.parse().unwrap();
    let cases = cases(workload, SEED).unwrap();
    let source = Source::Cases {
        journal: &journal,
        shape,
        cases: &cases,
    };
    explore(&source, &config, &mut Progress::default(), &|_| Ok(())).unwrap()
}

/// Tries this many states (or one pass, if that has fewer), and checks that no promise is broken.
fn sound(journal: &str, workload: &str, block: u32, states: u64) {
    let shape = Shape {
        block,
        ..Shape::default()
    };
    sound_in(journal, workload, shape, states);
}

/// Tries this many states on a volume of this shape, and checks that no promise is broken.
fn sound_in(journal: &str, workload: &str, shape: Shape, states: u64) -> Outcome {
    let config = Config {
        seconds: long().then_some(120.0),
        states: (!long()).then_some(states),
        passes: if long() { None } else { Some(1) },
        ..Config::default()
    };
    let o = search(journal, workload, shape, config);
    println!(
        "{journal}, {workload}, blocks of {} bytes: {} states, {} distinct, {} judged, {} e2fsck, \
         {} cuts of recoveries, {}/{} cases, {:.1} s",
        shape.block,
        o.states,
        o.distinct,
        o.judged,
        o.fscks,
        o.recovery_cuts,
        o.cases_done,
        o.cases,
        o.seconds
    );
    let told: Vec<String> = o.findings.iter().map(|f| f.text()).collect();
    assert!(
        o.failures == 0,
        "{journal}, {workload}: {} failures\n{}\n(stetfs crash run --journal {journal} --workload {workload} \
         --block {} --journal-blocks {} --seed {SEED} finds and shrinks them)",
        o.failures,
        told.join("\n"),
        shape.block,
        shape.journal_blocks
    );
    assert!(o.states > 100 && o.distinct > 20, "hardly anything tried");
    o
}

/// All short sequences of operations, up to a bound. The swarm (`tests/pairs.rs`) asks random
/// sequences of all presets, options, threads and volumes. record.F2, data.D5.
#[test]
fn short_sequences_break_no_promise() {
    for (journal, workload, block, states) in [
        ("ordered", "ace1", 1024, 450),
        ("data", "ace2", 4096, 450),
        ("writeback,async_commit", "ace3", 1024, 300),
        ("ldj,compress=zstd,chunk=8K", "ace2", 1024, 300),
        ("ijournal,records=2", "ace2", 4096, 300),
        ("stet", "ace2", 1024, 300),
        ("afs", "ace2", 4096, 300),
        ("ordered,data=overwrites", "ace2", 1024, 300),
    ] {
        sound(journal, workload, block, states);
    }
}

/// Sync records in a region: one moment cuts device and region, and each keeps its own part of the
/// writes that were not durable.
#[test]
fn records_in_a_region_break_no_promise() {
    for (journal, workload, kib) in [
        ("writeback,sync=file", "ace2", 64),
        // Transactions are in the region, too.
        ("nvm", "smoke", 5 << 10),
    ] {
        let shape = Shape {
            region: Some(kib << 10),
            ..Shape::default()
        };
        let o = sound_in(journal, workload, shape, 450);
        // The share depends on thread timing: 30 to 75 % here, 24 % on a slow machine.
        assert!(
            o.line_states * 10 > o.states,
            "{} with lines",
            o.line_states
        );
    }
}

/// The journal uses FUA in place of flushes.
#[test]
fn fua_takes_the_place_of_flushes() {
    let shape = Shape {
        fua: true,
        ..Shape::default()
    };
    let of = |journal: &str, shape| {
        let journal: JournalSpec = journal.parse().unwrap();
        let case = &cases("smoke", SEED).unwrap()[0];
        let record = Recording::make(&journal, shape, case, SEED).unwrap();
        let of = |is: fn(&Event) -> bool| record.log.events.iter().filter(|e| is(e)).count();
        let flushes = of(|e| matches!(e, Event::Flush { .. }));
        (of(|e| matches!(e, Event::Write { fua: true, .. })), flushes)
    };
    for journal in [
        "zjournal,lanes=2",
        "zjournal,lanes=2,data=journal,commits=apart",
        "ijournal",
        "ordered",
    ] {
        let (without, with) = (of(journal, Shape::default()), of(journal, shape));
        println!("{journal}: {without:?} without, {with:?} with FUA and flushes");
        assert!(with.0 > without.0 && with.1 < without.1);
    }
}

/// These workloads reach checkpoints, and these share: a search explores shares.
#[test]
fn named_workloads_share() {
    let journal: JournalSpec = "afs".parse().unwrap();
    let shape = Shape {
        block: 4096,
        ..Shape::default()
    };
    for workload in [
        "smoke",
        "random",
        "threads",
        "reuse",
        "orphans",
        "overwrites",
        "appends",
        "rounds",
        "groups",
    ] {
        let cases = cases(workload, SEED).unwrap();
        let shares = Recording::make(&journal, shape, &cases[0], SEED)
            .unwrap()
            .shares();
        println!("{workload}: {shares} batches");
        assert!(shares > 0, "{workload}");
    }
    let config = Config {
        states: Some(10),
        ..Config::default()
    };
    let o = search("afs", "rounds", shape, config);
    assert!(o.shares > 10, "{} batches", o.shares);
    let ordered = search("ordered", "smoke", shape, config);
    assert_eq!(ordered.shares, 0);
}

/// The device's promise for batches decides which crash states exist, and the recording keeps it.
#[test]
fn batches_are_torn_or_atomic() {
    let of = |batches| Shape {
        block: 4096,
        batches,
        ..Shape::default()
    };
    let config = |states| Config {
        states: Some(states),
        recovery: Often::OneIn(25),
        ..Config::default()
    };
    let torn = search("afs", "rounds", of(Batches::Torn), config(1500));
    let atomic = search("afs", "rounds", of(Batches::Atomic), config(1500));
    for o in [&torn, &atomic] {
        println!(
            "{} of {} states with shares, {} torn; {} and {} cuts of recoveries",
            o.share_states, o.states, o.torn_states, o.recovery_cuts, o.second_recovery_cuts
        );
        assert_eq!(o.failures, 0, "{:?}", o.findings);
        assert!(o.share_states > 0 && o.recovery_cuts > 0 && o.second_recovery_cuts > 0);
    }
    assert!(torn.torn_states > 0);
    assert_eq!(atomic.torn_states, 0);

    // A device with atomic batches never leaves some of the images of this recording.
    let journal: JournalSpec = "afs".parse().unwrap();
    let case = &cases("rounds", SEED).unwrap()[0];
    let mut record = Recording::make(&journal, of(Batches::Torn), case, SEED).unwrap();
    let images = |record: &Recording| -> BTreeSet<u64> {
        let base = &record.work.base.image;
        let mut replay = Replay::new(base, &record.log);
        let all = points(&record.log, record.start());
        let mut images = BTreeSet::new();
        for (event, why) in all.into_iter().filter(|(_, why)| *why == Why::Flush) {
            replay.advance_to(event);
            let uncertain = Uncertain::at(&replay);
            if !uncertain.shared(&record.log).is_empty() {
                let states = first_pass(event, why, &uncertain, SEED);
                let image = |s: StateId| image_hash(base, &s.make_of(&replay, &uncertain));
                images.extend(states.into_iter().map(image));
            }
        }
        images
    };
    let any_units = images(&record);
    for event in &mut record.log.events {
        if let Event::Share { atomic, .. } = event {
            assert!(!*atomic, "the record is of a device that tears");
            *atomic = true;
        }
    }
    let whole = images(&record);
    println!("{} images torn, {} whole", any_units.len(), whole.len());
    assert!(any_units.difference(&whole).count() > 0);

    let dir = stetfs_testkit::Scratch::new("record").unwrap();
    let path = dir.path().join("record");
    let record = Recording::make(&journal, of(Batches::Atomic), case, SEED).unwrap();
    record.save(&path).unwrap();
    let again = Recording::load(&path).unwrap();
    assert_eq!(again.header.shape(), of(Batches::Atomic));
    let promised = |r: &Recording| Share::limits(&*r.work.base.image).atomic;
    assert!(promised(&record) && promised(&again));
    let shares: Vec<bool> = again
        .log
        .events
        .iter()
        .filter_map(|e| match e {
            Event::Share { atomic, .. } => Some(*atomic),
            _ => None,
        })
        .collect();
    assert!(!shares.is_empty() && shares.iter().all(|atomic| *atomic));
}

/// The log is filled more than once, and checkpoints share. The lab finds shares that are not
/// flushed before their log block is reused, shares of an image that has a newer one, and shares
/// that come too early.
#[test]
fn faults_of_what_is_shared_are_found() {
    let shape = Shape {
        block: 4096,
        ..Shape::default()
    };
    let sound = ("", false);
    let faults = [
        "home-volatile",
        "older-home",
        "share-volatile",
        "share-early",
        "share-older",
    ];
    let faults = faults.map(|name| (name, true));
    for (name, is_found) in [sound].into_iter().chain(faults) {
        let journal = match name {
            "" => "afs".to_owned(),
            name => format!("afs,canary={name}"),
        };
        let config = Config {
            seconds: Some(if is_found { 30.0 } else { 5.0 }),
            passes: Some(1),
            failures: 1,
            ..Config::default()
        };
        let o = search(&journal, "rounds", shape, config);
        println!(
            "{journal}: {} batches, {} states, {} failures",
            o.shares, o.states, o.failures
        );
        for f in &o.findings {
            println!("  {}", f.finding);
        }
        assert!(o.shares > 10 && (o.failures > 0) == is_found, "{journal}");
    }
}

/// The cases of a workload in which one flush fails: `count` of them, spread over all flushes.
fn failing_of(journal: &JournalSpec, workload: &str, count: usize) -> Vec<Case> {
    let cases = cases(workload, SEED).unwrap();
    let all = failing(journal, Shape::default(), &cases, SEED).unwrap();
    let step = all.len().div_ceil(count);
    assert!(step > 0, "{journal}, {workload}: nothing is flushed");
    all.into_iter().step_by(step).collect()
}

#[test]
fn flushes_that_fail_break_no_promise() {
    for (journal, workload) in [
        ("ordered", "smoke"),
        ("writeback", "overwrites"),
        ("ijournal", "smoke"),
        ("ldj", "appends"),
        ("stet", "appends"),
    ] {
        let journal: JournalSpec = journal.parse().unwrap();
        let cases = failing_of(&journal, workload, if long() { usize::MAX } else { 8 });
        let source = Source::Cases {
            journal: &journal,
            shape: Shape::default(),
            cases: &cases,
        };
        let config = Config {
            seconds: long().then_some(300.0),
            states: (!long()).then_some(300),
            ..Config::default()
        };
        let o = explore(&source, &config, &mut Progress::default(), &|_| Ok(())).unwrap();
        println!(
            "{journal}, {workload}: {} states, {} distinct, {}/{} failing flushes, {:.1} s",
            o.states, o.distinct, o.cases_done, o.cases, o.seconds
        );
        let told: Vec<String> = o.findings.iter().map(|f| f.text()).collect();
        assert!(o.failures == 0, "{journal}, {workload}: {told:#?}");
        assert!(o.states > 100 && o.distinct > 20, "hardly anything tried");
    }
}

#[test]
fn every_canary_is_found() {
    let bounds = canary::Bounds {
        seed: SEED,
        seconds: 30.0,
        states: 20_000,
        sound: false,
        brisk: true,
    };
    let no_stress = |_: &str| anyhow::bail!("only the lab is asked");
    let mut faults = 0;
    for fault in canary::all() {
        assert!(fault.trials.iter().all(|trial| trial.missing().is_none()));
        // Threads act differently in each recording, and not every recording has what a fault
        // needs.
        let told = (0..4).find_map(|again| {
            let bounds = canary::Bounds {
                seed: SEED + again,
                ..bounds
            };
            let told = canary::try_fault(fault, bounds, &no_stress, &mut |_| ()).unwrap();
            (again == 3 || told.iter().all(|c| c.caught)).then_some(told)
        });
        let told = told.unwrap();
        faults += usize::from(!told.is_empty());
        for c in told {
            println!(
                "{} in {}: {} states, {} images, {:.1} s: {}",
                c.canary, c.journal, c.states, c.distinct, c.seconds, c.finding
            );
            assert!(c.caught, "{c:?} survives");
        }
    }
    assert!(faults >= 30, "only {faults} faults were planted");
}

fn recorded(journal: &str, workload: &str) -> Recording {
    let journal: JournalSpec = journal.parse().unwrap();
    let case = cases(workload, SEED).unwrap().swap_remove(0);
    Recording::make(&journal, Shape::default(), &case, SEED).unwrap()
}

fn explored(recording: &Recording, config: Config) -> Outcome {
    let source = Source::Record(recording);
    explore(&source, &config, &mut Progress::default(), &|_| Ok(())).unwrap()
}

/// One thread, and no checks that need other programs.
fn quick() -> Config {
    Config {
        threads: 1,
        fsck: Often::Never,
        thorough: Often::Never,
        recovery: Often::Never,
        ..Config::default()
    }
}

#[test]
fn a_promise_that_nobody_gave_is_found_repeated_and_shrunk() {
    // The failure is late in the workload, so that shrinking has something to remove.
    let mut recording = recorded("data,canary=promise", "smoke");
    recording.header.setup = 25;
    let outcome = explored(
        &recording,
        Config {
            failures: 3,
            ..quick()
        },
    );
    assert_eq!(outcome.failures, 3);
    let failure = &outcome.findings[0];
    assert_eq!(failure.finding.oracle, Oracle::Promise);

    let state: StateId = failure.state.parse().unwrap();
    let image = recording.crashed(&state);
    let progress = recording.work.progress_at(&recording.log, state.event);
    let again = recording.work.check(&image, &progress, Checks::default());
    assert_eq!(
        again.unwrap_err(),
        failure.finding,
        "the name of a state repeats it"
    );

    let (small, record) = shrink(
        &recording,
        failure,
        Instant::now() + Duration::from_secs(30),
    )
    .unwrap();
    let script = small.script.clone().unwrap();
    assert_eq!(
        script.lines().count(),
        1,
        "one operation that is not synced shows it:\n{script}"
    );
    assert_eq!(text::write(&record.case().unwrap().scripts), script);
    assert!(small.lost.len() <= 1, "{:?}", small.lost);
    assert!(
        small.text().contains("not the state after operation 1"),
        "{}",
        small.text()
    );
    page_shows(small, record);
}

/// The page of a failure has its description, the script, the log, and the difference of the two
/// trees.
fn page_shows(mut failure: Failure, recording: Recording) {
    failure.record = Some("here".into());
    let script = failure.script.clone().unwrap();
    let report = Report {
        share: recording.header.batches,
        region: recording.header.region,
        journal: recording.header.journal.clone(),
        workload: "<smoke>".into(),
        block: recording.header.block,
        seed: SEED,
        states_per_second: 1.0,
        outcome: Outcome {
            findings: vec![failure],
            ..Outcome::default()
        },
    };
    let page = html::page(&report, &BTreeMap::from([("here".into(), recording)]));
    let path = script.split_whitespace().nth(1).unwrap();
    for part in [
        "&lt;smoke&gt;",
        "not the state after operation 1",
        script.trim(),
        "class=\"cut\"",
        "class=\"flush\"",
        &format!("<tr class=\"bad\"><td>/{path}</td>"),
    ] {
        assert!(page.contains(part), "{part} is not in {page}");
    }
}

#[test]
fn a_record_with_a_region_survives_its_file() {
    let journal: JournalSpec = "ijournal".parse().unwrap();
    let shape = Shape {
        region: Some(64 << 10),
        ..Shape::default()
    };
    let case = &cases("smoke", SEED).unwrap()[0];
    let recording = Recording::make(&journal, shape, case, SEED).unwrap();
    assert!(!recording.region.is_empty());
    let dir = stetfs_testkit::Scratch::new("record").unwrap();
    let path = dir.path().join("record");
    recording.save(&path).unwrap();
    let loaded = Recording::load(&path).unwrap();
    assert_eq!(loaded.header, recording.header);
    assert_eq!(loaded.log, recording.log);
    assert_eq!(loaded.region, recording.region);
    // Each state can be made again, with the same result; the region has different states.
    let places = recording.places(0);
    let base = recording.work.machine();
    let mut walk = recording.walk(&base);
    let fences = places.into_iter().filter(|(_, why)| *why == Why::Fence);
    let place = fences.map(|(place, _)| place).find(|place| {
        walk.advance_to(*place);
        walk.uncertain().lines.len() > 4
    });
    let place = place.unwrap();
    let states = walk.first_pass(place, Why::Fence, &walk.uncertain(), SEED);
    let mut images = BTreeSet::new();
    for state in &states {
        let text = state.to_string();
        let left = recording.crashed(state);
        assert_eq!(left.differs(&loaded.crashed(&text.parse().unwrap())), None);
        images.insert(left.region.unwrap().to_vec());
    }
    assert!(images.len() > 3, "{} of {}", images.len(), states.len());
}

/// Damage that checksums cover is never silent; damage that cannot be noticed is counted as such.
#[test]
fn misbehaving_devices_are_told_of() {
    for journal in [
        "ordered",
        "data",
        "ordered,async_commit",
        "ldj",
        "ldj,compress=none",
    ] {
        let recording = recorded(journal, "smoke");
        for t in faults::try_all(&recording, if long() { 3000 } else { 60 }, SEED).unwrap() {
            println!(
                "{journal}, {:?}: {} tried, {} correct, {} errors, {} silent",
                t.fault, t.tried, t.correct, t.errors, t.silent
            );
            assert!(!t.is_defect(), "{journal}: {t:#?}");
            assert_eq!(t.tried, t.correct + t.errors + t.silent);
            match t.fault {
                Fault::RotInLog | Fault::RotInMetadata => assert!(t.errors > 10, "{t:#?}"),
                Fault::RotInData if journal == "ordered" => assert!(t.silent > 10, "{t:#?}"),
                _ => {}
            }
        }
    }
}

#[test]
fn a_seed_repeats_a_search() {
    let recording = recorded("ordered", "smoke");
    let numbers = |seed| {
        let config = Config {
            seed,
            passes: Some(2),
            ..quick()
        };
        let o = explored(&recording, config);
        (o.states, o.distinct, o.judged)
    };
    assert_eq!(numbers(1), numbers(1));
    assert_ne!(numbers(1), numbers(2));
}

#[test]
fn a_search_goes_on_where_it_stopped() {
    let recording = recorded("ordered", "smoke");
    let config = quick();
    let whole = explored(&recording, config);
    let dir = stetfs_testkit::Scratch::new("resume").unwrap();
    let file = dir.path().join("progress");
    let mut outcome = Outcome::default();
    // The search is interrupted after every tenth of it, however long that takes.
    let step = (whole.states / 10).max(1);
    let mut parts = 0;
    while outcome.passes == 0 {
        assert!(parts < 1000, "{outcome:?}");
        parts += 1;
        let mut progress = Progress::load(&file, "this search").unwrap();
        let config = Config {
            states: Some(outcome.states + step),
            ..config
        };
        let save = |p: &Progress| p.save(&file);
        outcome = explore(&Source::Record(&recording), &config, &mut progress, &save).unwrap();
    }
    assert!(parts > 5, "{parts}");
    assert_eq!(outcome.distinct, whole.distinct);
    assert!(outcome.states >= whole.states);
    let other = Progress::load(&file, "another search")
        .unwrap_err()
        .to_string();
    assert!(other.contains("belongs to another search"), "{other}");
}

#[test]
fn a_record_survives_its_file() {
    let dir = stetfs_testkit::Scratch::new("record").unwrap();
    let path = dir.path().join("record");
    let recording = recorded("data,async_commit", "threads");
    recording.save(&path).unwrap();
    let loaded = Recording::load(&path).unwrap();
    assert_eq!(loaded.header, recording.header);
    assert_eq!(loaded.log, recording.log);
    assert_eq!(loaded.work.options, recording.work.options);
    let (a, b) = (&recording.work.base, &loaded.work.base);
    assert!(a.image.differences(&b.image).is_empty());
    assert_eq!((a.blocks, a.inodes), (b.blocks, b.inodes));
    let numbers = |r: &Recording| {
        let config = Config {
            states: Some(1000),
            ..quick()
        };
        let o = explored(r, config);
        (o.states, o.distinct, o.failures)
    };
    assert_eq!(numbers(&recording), numbers(&loaded));

    let bytes = std::fs::read(&path).unwrap();
    let wrong = |bytes: &[u8], path: &Path| {
        std::fs::write(path, bytes).unwrap();
        format!("{:#}", Recording::load(path).unwrap_err())
    };
    let damaged = dir.path().join("damaged");
    assert!(wrong(&bytes[..bytes.len() / 2], &damaged).contains("is not a usable recording"));
    assert!(wrong(b"something else", &damaged).contains("wrong magic number"));
    let mut rng = fastrand::Rng::with_seed(1);
    for _ in 0..50 {
        let mut changed = bytes.clone();
        let at = rng.usize(0..changed.len());
        changed[at] ^= 1 << rng.u8(0..8);
        assert!(
            wrong(&changed, &damaged).contains("is not a usable recording"),
            "byte {at}"
        );
    }
    let lacking = Recording::load(&dir.path().join("none")).unwrap_err();
    assert!(format!("{lacking:#}").contains("stetfs crash record"));
}

#[test]
fn what_was_shared_survives_a_records_file() {
    let dir = stetfs_testkit::Scratch::new("record").unwrap();
    let path = dir.path().join("record");
    let mut recording = recorded("data", "threads");
    let pair = |dst, src| SharePair {
        dst,
        src,
        len: 8192,
    };
    for (id, atomic) in [(1 << 40, true), (1 << 41, false)] {
        recording.log.events.push(Event::Share {
            id,
            pairs: [pair(0, 1 << 20), pair(1 << 16, 1 << 19)].into(),
            unit: 4096,
            atomic,
        });
    }
    recording.save(&path).unwrap();
    assert_eq!(Recording::load(&path).unwrap().log, recording.log);
    recording.log.events.push(Event::Share {
        id: 1,
        pairs: [pair(0, u64::MAX)].into(),
        unit: 4096,
        atomic: true,
    });
    recording.save(&path).unwrap();
    let beyond = format!("{:#}", Recording::load(&path).unwrap_err());
    assert!(beyond.contains("beyond the volume"), "{beyond}");
}
