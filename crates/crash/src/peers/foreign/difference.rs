//! The difference of two trees.

use std::collections::BTreeMap;

use crate::tree::Seen;

/// The first difference of two trees, by path; times, and sizes and link counts of directories, do
/// not count.
pub(super) fn difference(a: &Seen, b: &Seen) -> Option<String> {
    let (a, b) = (paths(a), paths(b));
    for path in a.keys().chain(b.keys()) {
        let (x, y) = (a.get(path), b.get(path));
        if x != y {
            return Some(format!("{path}: {}, {}", shown(x), shown(y)));
        }
    }
    None
}

/// The properties of a name that are compared.
type Shown = (
    String,
    u32,
    (u32, u32),
    u64,
    Vec<u8>,
    Vec<u8>,
    Vec<(String, Vec<u8>)>,
);

fn shown(node: Option<&Shown>) -> String {
    let Some((kind, mode, owner, size, content, target, xattrs)) = node else {
        return "is not there".into();
    };
    let hash = content
        .iter()
        .fold(0u64, |h, b| h.wrapping_mul(31).wrapping_add(u64::from(*b)));
    format!(
        "{kind} {mode:o} {owner:?} {size} bytes #{hash:x} {target:?} {} attributes",
        xattrs.len()
    )
}

fn paths(seen: &Seen) -> BTreeMap<String, Shown> {
    let mut all = BTreeMap::new();
    let mut todo = vec![(String::new(), stetfs::low::ROOT_INO)];
    while let Some((path, ino)) = todo.pop() {
        let Some(node) = seen.nodes.get(&ino) else {
            continue;
        };
        let names = node
            .entries
            .iter()
            .filter(|(name, _)| *name != "lost+found");
        todo.extend(names.map(|(name, child)| (format!("{path}/{name}"), *child)));
        let dir = node.kind == stetfs::low::FileType::Directory;
        let user = node
            .xattrs
            .iter()
            .filter(|(name, _)| name.starts_with("user."));
        let shown = (
            format!("{:?}", node.kind),
            node.mode,
            (node.uid, node.gid),
            if dir { 0 } else { node.size },
            node.content.clone(),
            node.target.clone(),
            user.map(|(n, v)| (n.clone(), v.clone())).collect(),
        );
        all.insert(path, shown);
    }
    all
}
