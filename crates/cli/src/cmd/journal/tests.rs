//! Tests of the picture with made-up logs: the paper's figure, jbd2 logs, hostile ones.
#![allow(clippy::unwrap_used)]

use stetfs::low::{JournalImage, JournalRecord, JournalRecordKind};

use super::draw::picture;
use super::graph::{BOXES, Counts, Fate, Graph, Key};
use super::text;

fn record(lane: Option<u16>, transaction: u64, kind: JournalRecordKind) -> JournalRecord {
    JournalRecord {
        log_block: 7,
        transaction,
        lane,
        kind,
    }
}

/// A frame of a lane: number, stamp, images, how many of them recovery writes to their home
/// locations, and what it depends on.
fn frame(
    (lane, seq): (u16, u64),
    stamp: u64,
    images: &[u64],
    home: u64,
    edges: &[(u16, u64)],
    dropped: Option<(u16, u64)>,
) -> JournalRecord {
    let kind = JournalRecordKind::Frame {
        stamp,
        blocks: 2,
        images: images.to_vec(),
        revokes: Vec::new(),
        edges: edges.to_vec(),
        home,
        dropped,
    };
    record(Some(lane), seq, kind)
}

fn end(lane: Option<u16>, seq: u64) -> JournalRecord {
    let why = "nothing <more> & so on".to_owned();
    record(lane, seq, JournalRecordKind::End { why })
}

fn graph(records: &[JournalRecord], format: &'static str) -> Graph {
    let mut graph = Graph::default();
    for record in records {
        graph.add(record);
    }
    graph.finished(format)
}

/// Figure 5 of the Z-Journal paper, as `the_figure_recovers_as_the_paper_says` of the journal's
/// tests has it: (2,7) is lost.
fn figure() -> Vec<JournalRecord> {
    vec![
        frame((0, 3), 13, &[400], 0, &[], None),
        frame((0, 4), 15, &[400], 1, &[], None),
        end(Some(0), 5),
        frame((1, 7), 14, &[401], 0, &[], None),
        frame((1, 8), 18, &[400, 402, 403], 0, &[(2, 7)], Some((2, 7))),
        end(Some(1), 9),
        frame((2, 6), 16, &[401], 1, &[], None),
        end(Some(2), 7),
    ]
}

fn fates(graph: &Graph, key: Key) -> Vec<(u64, Fate)> {
    let nodes = graph.rows[&key].nodes.iter();
    nodes.map(|node| (node.seq, node.fate)).collect()
}

/// The names of the elements, each closed in order; panics if the text is not XML.
fn elements(xml: &str) -> Vec<String> {
    let ok = |c: char| c == '\n' || (c >= ' ' && !('\u{7f}'..='\u{9f}').contains(&c));
    assert!(xml.chars().all(ok), "characters that XML cannot hold");
    for piece in xml.split('&').skip(1) {
        let known = ["amp;", "lt;", "gt;", "quot;"];
        assert!(known.iter().any(|k| piece.starts_with(k)), "&{piece:.9}");
    }
    let body = xml.split_once("?>").unwrap().1;
    let (mut stack, mut names) = (Vec::new(), Vec::new());
    for piece in body.split('<').skip(1) {
        let (tag, text) = piece.split_once('>').expect("a tag ends");
        assert!(!text.contains('>'), "{text}");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(stack.pop().as_deref(), Some(name));
            continue;
        }
        let inner = tag.trim_end_matches('/');
        assert_eq!(inner.matches('"').count() % 2, 0, "{tag}");
        let name = inner.split(' ').next().unwrap().to_owned();
        if !tag.ends_with('/') {
            stack.push(name.clone());
        }
        names.push(name);
    }
    assert!(stack.is_empty(), "{stack:?}");
    names
}

fn count(names: &[String], name: &str) -> usize {
    names.iter().filter(|n| *n == name).count()
}

#[test]
fn the_figure_is_drawn_with_what_is_dropped() {
    let graph = graph(&figure(), "stetfs");
    let old = Fate::Superseded;
    assert_eq!(fates(&graph, Key::Lane(0)), [(3, old), (4, Fate::Counts)]);
    assert_eq!(fates(&graph, Key::Lane(1)), [(7, old), (8, Fate::Dropped)]);
    let lost = [(6, Fate::Counts), (7, Fate::Missing)];
    assert_eq!(fates(&graph, Key::Lane(2)), lost);
    assert_eq!(
        graph.summary(),
        "a StetFS journal of 3 lanes: 5 transactions, 7 images (2 to write back), 1 dropped, 2 \
         superseded"
    );
    let svg = picture(&graph, "a <volume> & \"more\"\u{1}");
    let names = elements(&svg);
    // Six boxes, four in the legend, the paper.
    assert_eq!(count(&names, "rect"), 11, "{svg}");
    // One arrow, and one in the legend.
    assert_eq!(count(&names, "line"), 2, "{svg}");
    assert!(svg.contains("class=\"needs-dropped\""), "{svg}");
    for words in [
        "a &lt;volume&gt; &amp; &quot;more&quot;\u{fffd}",
        "dropped: depends on 2:7, which is missing or dropped",
        "transaction 7 of lane 2 is not in the log",
        ">lane 2<",
        "lane 2 end: nothing &lt;more&gt; &amp; so on",
    ] {
        assert!(svg.contains(words), "{words}: {svg}");
    }
    let told: Vec<String> = figure().iter().map(text::line).collect();
    assert!(
        told[4].ends_with("needs: 2:7; DROPPED: depends on 2:7, which is missing or dropped"),
        "{told:#?}"
    );
    assert!(told[1].ends_with("1 to write back"), "{told:#?}");
}

/// Two transactions that depend on each other stand one below the other, with an arrow each way.
#[test]
fn chained_both_ways() {
    let records = [
        frame((0, 1), 1, &[5], 1, &[], None),
        frame((0, 2), 4, &[6], 1, &[(1, 9)], None),
        end(Some(0), 3),
        frame((1, 9), 3, &[7], 1, &[(0, 2)], None),
        end(Some(1), 10),
    ];
    let svg = picture(&graph(&records, "stetfs"), "v");
    assert_eq!(count(&elements(&svg), "line"), 3, "{svg}");
    assert!(!svg.contains("class=\"needs-dropped\""), "{svg}");
}

fn jbd2(tid: u64, blocks: &[u64], home: Option<u64>) -> [JournalRecord; 2] {
    let image = |block: &u64| JournalImage {
        block: *block,
        escaped: false,
        checksum: 0,
        valid: true,
    };
    let images = blocks.iter().map(image).collect();
    let commit = JournalRecordKind::Commit {
        time: 1.0,
        valid: home.is_some(),
        home,
    };
    [
        record(None, tid, JournalRecordKind::Descriptor { images }),
        record(None, tid, commit),
    ]
}

#[test]
fn a_jbd2_log_is_one_row_and_fast_commits() {
    let mut records = [
        jbd2(5, &[1, 2], Some(0)),
        jbd2(6, &[1, 2, 3], Some(3)),
        jbd2(7, &[4], Some(1)),
    ]
    .concat();
    let torn = jbd2(8, &[9], None)[0].clone();
    records.push(torn);
    let changes = Vec::new();
    records.push(record(None, 8, JournalRecordKind::FastCommit { changes }));
    records.push(end(None, 8));
    let graph = graph(&records, "jbd2");
    assert_eq!(
        fates(&graph, Key::Ring),
        [
            (5, Fate::Superseded),
            (6, Fate::Counts),
            (7, Fate::Counts),
            (8, Fate::Torn)
        ]
    );
    assert_eq!(fates(&graph, Key::Fast), [(8, Fate::Record)]);
    let expected = Counts {
        transactions: 3,
        images: 6,
        home: 4,
        superseded: 1,
        torn: 1,
        fast_commits: 1,
        ..Counts::default()
    };
    assert_eq!(graph.counts(), expected);
    elements(&picture(&graph, "v"));
}

/// Damage as the walk reports it: in a jbd2 log a broken record, then that it had been committed;
/// in a lane, the place where the lane ends.
#[test]
fn damage_is_shown_once() {
    let damaged = |lane, seq, lost| {
        let why = "it does not match".to_owned();
        record(lane, seq, JournalRecordKind::Damaged { why, lost })
    };
    let mut records = jbd2(5, &[1], Some(1)).to_vec();
    records.extend([damaged(None, 6, false), damaged(None, 6, true)]);
    let of_jbd2 = graph(&records, "jbd2");
    let both = [(5, Fate::Counts), (6, Fate::Lost)];
    assert_eq!(fates(&of_jbd2, Key::Ring), both);

    let mut records = jbd2(5, &[1], Some(1)).to_vec();
    records.extend(jbd2(6, &[2], None));
    records.push(damaged(None, 6, true));
    let broken_commit = graph(&records, "jbd2");
    assert_eq!(fates(&broken_commit, Key::Ring), both);
    assert_eq!(broken_commit.counts().damaged, 1);
    assert_eq!(broken_commit.counts().torn, 0);

    let records = [
        damaged(Some(0), 3, false),
        damaged(Some(1), 4, true),
        damaged(None, 0, true),
    ];
    let of_lanes = graph(&records, "stetfs");
    assert_eq!(fates(&of_lanes, Key::Lane(0)), [(3, Fate::Torn)]);
    assert_eq!(fates(&of_lanes, Key::Lane(1)), [(4, Fate::Lost)]);
    assert_eq!(fates(&of_lanes, Key::AnyFiles), [(0, Fate::Lost)]);
    for graph in [of_jbd2, broken_commit, of_lanes] {
        elements(&picture(&graph, "v"));
    }
}

/// The number of boxes is bounded, whatever the log claims to hold; the newest are drawn, among
/// them the dropped ones.
#[test]
fn a_picture_is_never_endless() {
    let lanes = 3;
    let many = 4 * BOXES as u64;
    let mut records = Vec::new();
    for lane in 0..lanes {
        for seq in 1..=many {
            let edges: Vec<(u16, u64)> = (0..lanes).map(|to| (to, seq)).collect();
            let stamp = (seq * 77) % 1000;
            records.push(frame((lane, seq), stamp, &[1], 1, &edges, None));
        }
        let missing = (u16::MAX, u64::MAX);
        records.push(frame(
            (lane, many + 1),
            5,
            &[1],
            0,
            &[(1, u64::MAX)],
            Some(missing),
        ));
        records.push(end(Some(lane), many + 2));
    }
    let graph = graph(&records, "stetfs");
    let drawn: usize = graph.rows.values().map(|row| row.nodes.len()).sum();
    assert!((BOXES - 3..=BOXES).contains(&drawn), "{drawn}");
    assert_eq!(graph.counts().transactions, 3 * (many + 1));
    assert_eq!(graph.counts().dropped, 3);
    assert!(graph.rows.values().all(|row| row.older > 0));
    let svg = picture(&graph, "v");
    assert!(svg.len() < 2 << 20, "{} bytes", svg.len());
    let names = elements(&svg);
    assert!(count(&names, "rect") <= BOXES + 9);
    assert!(count(&names, "line") <= 2 * BOXES + 1);
    assert!(svg.contains("… and ") && svg.contains("DROPPED"));
}
