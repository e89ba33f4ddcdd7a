//! Comparison of a file with its node in the model.

use crate::tree::SeenNode;
use crate::workload::model::{Kind, Node};

/// Compares type, permissions, owner, links, flags, extended attributes and size.
///
/// # Errors
/// The difference.
pub(crate) fn attributes(node: &Node, seen: &SeenNode) -> Result<(), String> {
    let kind = node.file_type();
    if seen.kind != kind {
        return Err(format!("is a {:?}, not a {kind:?}", seen.kind));
    }
    let want = (node.mode, node.uid, node.gid);
    let is = (seen.mode, seen.uid, seen.gid);
    if want != is {
        return Err(format!("mode, owner, group {is:?}, not {want:?}"));
    }
    if !node.is_dir() && node.links != seen.nlink {
        return Err(format!("{} links, not {}", seen.nlink, node.links));
    }
    if node.flags != seen.flags {
        return Err(format!("flags {:#x}, not {:#x}", seen.flags, node.flags));
    }
    if node.xattrs != seen.xattrs {
        let (is, want) = (seen.xattrs.keys(), node.xattrs.keys());
        return Err(format!(
            "extended attributes {is:?}, not {want:?}, or their values differ"
        ));
    }
    if let Some(content) = node.content()
        && content.data.len() as u64 != seen.size
    {
        return Err(format!("size {}, not {}", seen.size, content.data.len()));
    }
    Ok(())
}

/// Compares a file that no crash affects with its node: attributes, content, target.
///
/// # Errors
/// The difference.
pub(crate) fn is_as_left(node: &Node, seen: &SeenNode) -> Result<(), String> {
    attributes(node, seen)?;
    match &node.kind {
        Kind::File(content) if *content.data != seen.content => {
            let mut both = content.data.iter().zip(&seen.content);
            let first = both.position(|(a, b)| a != b);
            Err(format!("content differs from byte {first:?} on"))
        }
        Kind::Symlink(target) if target.as_bytes() != seen.target => Err("another target".into()),
        _ => Ok(()),
    }
}
