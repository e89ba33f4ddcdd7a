//! The columns of the boxes: those of a row follow each other, and none stands before a box it
//! depends on.

use std::collections::HashMap;

use super::graph::{Graph, Key, Row};

/// The place of a box: its row, and its index in the row.
pub(super) type Place = (Key, usize);

/// The column of each box, by row. In a row with older boxes left out, column 0 stands for those.
pub(super) fn columns(graph: &Graph) -> HashMap<Key, Vec<usize>> {
    let mut order: Vec<(u64, Place)> = Vec::new();
    for (key, row) in &graph.rows {
        let mut last = 0;
        for (i, node) in row.nodes.iter().enumerate() {
            last = last.max(node.stamp);
            order.push((last, (*key, i)));
        }
    }
    // The sort is stable: a row's boxes stay in their order.
    order.sort_by_key(|(stamp, _)| *stamp);
    let mut columns: HashMap<Key, Vec<usize>> = HashMap::new();
    for (_, (key, i)) in order {
        let Some(row) = graph.rows.get(&key) else {
            continue;
        };
        let of_row = columns.get(&key).and_then(|c| c.last());
        let mut column = of_row.map_or(usize::from(row.older > 0), |last| last + 1);
        for (lane, seq) in row.nodes.get(i).map_or(&[][..], |node| &node.edges) {
            let to = Key::Lane(*lane);
            let at = graph.rows.get(&to).and_then(|row| find(row, *seq));
            let there = at.and_then(|at| columns.get(&to)?.get(at));
            column = column.max(there.copied().unwrap_or(0));
        }
        columns.entry(key).or_default().push(column);
    }
    columns
}

/// The index of this transaction's box in a row.
pub(super) fn find(row: &Row, seq: u64) -> Option<usize> {
    row.nodes.binary_search_by_key(&seq, |node| node.seq).ok()
}
