//! Names of users, groups and projects: lines of /etc/passwd and its like, and this system's own.

use std::collections::BTreeMap;

/// The file with the names of a kind (`user`, `group`, `project`), and the index of the field that
/// is the number.
fn table(kind: &str) -> Option<(&'static str, usize)> {
    match kind {
        "user" => Some(("/etc/passwd", 2)),
        "group" => Some(("/etc/group", 2)),
        "project" => Some(("/etc/projid", 1)),
        _ => None,
    }
}

/// All names of a kind by number; empty without the file. Directory services are not consulted.
pub(crate) fn names(kind: &str) -> BTreeMap<u32, String> {
    let Some((path, field)) = table(kind) else {
        return BTreeMap::new();
    };
    let bytes = std::fs::read(path).unwrap_or_default();
    read(&String::from_utf8_lossy(&bytes), field)
}

/// The number of a name.
pub(crate) fn number(kind: &str, name: &str) -> Option<u32> {
    let names = names(kind).into_iter();
    let mut found = names.filter(|(_, known)| known == name);
    found.next().map(|(id, _)| id)
}

/// The names and numbers of lines `name:…:number:…`.
pub(crate) fn lines(text: &str, field: usize) -> impl Iterator<Item = (&str, u32)> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(move |line| {
        let (name, rest) = line.split_once(':')?;
        let id = rest.split(':').nth(field - 1)?.trim().parse().ok()?;
        (!name.is_empty()).then_some((name, id))
    })
}

/// The first name of each number.
fn read(text: &str, field: usize) -> BTreeMap<u32, String> {
    let mut all = BTreeMap::new();
    for (name, id) in lines(text, field) {
        all.entry(id).or_insert_with(|| name.to_owned());
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_files() {
        let users = "root:x:0:0::/root:/bin/sh\ntoor:x:0:0::/:\n# a:x:5:\n:x:6:\nb:x:many:\n";
        assert_eq!(read(users, 2), BTreeMap::from([(0, "root".to_owned())]));
        let projects = read("web:7\nmail: 8", 1);
        assert_eq!(projects.get(&8).map(String::as_str), Some("mail"));
        assert_eq!(number("user", "root"), Some(0));
        assert_eq!(number("user", "no such user"), None);
        assert!(names("planet").is_empty());
    }
}
