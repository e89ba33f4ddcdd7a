//! A failure as an HTML page: a timeline of the log, the lost writes, and the tree as promised and
//! as found.

mod escape;
mod timeline;

use std::collections::BTreeMap;
use std::fmt::Write;

use self::escape::escape;
use crate::explore::Failure;
use crate::judge::tree;
use crate::record::Recording;
use crate::report::Report;
use crate::state::StateId;
use crate::tree::Seen;
use crate::volume::DIRS;
use crate::workload::model::{Kind, State};

/// The page of a report; `recordings` holds the recordings that its failures name.
pub fn page(report: &Report, recordings: &BTreeMap<String, Recording>) -> String {
    let mut out = String::from(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
         <title>stetfs crash</title><style>\
         body{font:15px sans-serif;margin:2em;max-width:1040px}pre{background:#f4f4f4;padding:.7em;\
         overflow-x:auto}table{border-collapse:collapse}td,th{padding:.15em .8em;text-align:left;\
         border-bottom:1px solid #ddd}.lost{fill:#c22}.kept{fill:#37a}\
         .fua{stroke:#000;stroke-width:1}\
         .flush{stroke:#2a2;stroke-width:1.5}.cut{stroke:#c22;stroke-width:2}.op{fill:#888}\
         .bad{background:#fdd}text{font-size:11px}</style>\n",
    );
    let o = &report.outcome;
    let _ = writeln!(
        out,
        "<h1>{} on {}</h1><table><tr><th>crash states</th><th>images</th><th>failures</th>\
         <th>seconds</th>\
         <th>seed</th></tr><tr><td>{}</td><td>{}</td><td>{}</td><td>{:.1}</td>\
         <td>{}</td></tr></table>",
        escape(&report.workload),
        escape(&report.journal),
        o.states,
        o.distinct,
        o.failures,
        o.seconds,
        report.seed
    );
    for (i, failure) in o.findings.iter().enumerate() {
        let _ = write!(out, "<h2>Failure {}</h2>", i + 1);
        one(&mut out, failure, recordings);
        if let Some(small) = &failure.shrunk {
            out.push_str("<h3>Shrunk</h3>");
            one(&mut out, small, recordings);
        }
    }
    out.push_str("</html>\n");
    out
}

fn one(out: &mut String, failure: &Failure, recordings: &BTreeMap<String, Recording>) {
    let mut alone = failure.clone();
    alone.shrunk = None;
    let _ = write!(out, "<pre>{}</pre>", escape(&alone.text()));
    if let Some(script) = &failure.script {
        let _ = write!(out, "<p>The script:</p><pre>{}</pre>", escape(script));
    }
    let recording = failure.record.as_ref().and_then(|r| recordings.get(r));
    let (Some(recording), Ok(state)) = (recording, failure.state.parse::<StateId>()) else {
        return;
    };
    timeline::draw(out, recording, &state);
    trees(out, recording, &state);
}

/// The tree when the power went, beside the tree after recovery.
fn trees(out: &mut String, recording: &Recording, state: &StateId) {
    let work = &recording.work;
    let found = tree(&recording.crashed(state), &work.options);
    let progress = work.progress_at(&recording.log, state.event);
    for ((script, progress), dir) in work.scripts.iter().zip(progress).zip(DIRS) {
        let Some(model) = script.states.get(progress.acked) else {
            continue;
        };
        let _ = write!(
            out,
            "<p>The tree of {dir}:</p><table><tr><th>path</th><th>when the power went</th>\
             <th>after recovery</th></tr>"
        );
        let was = modelled(model);
        let is = match &found {
            Ok(seen) => shown(seen, dir),
            Err(why) => {
                let _ = write!(out, "<tr><td colspan=3>{}</td></tr>", escape(&why.detail));
                BTreeMap::new()
            }
        };
        let mut paths: Vec<&String> = was.keys().chain(is.keys()).collect();
        paths.sort_unstable();
        paths.dedup();
        for path in paths {
            let side = |tree: &BTreeMap<String, String>| {
                tree.get(path).map_or("&ndash;".to_owned(), |t| escape(t))
            };
            let (a, b) = (side(&was), side(&is));
            let _ = write!(
                out,
                "<tr{}><td>/{}</td><td>{a}</td><td>{b}</td></tr>",
                if a == b { "" } else { " class=\"bad\"" },
                escape(path)
            );
        }
        out.push_str("</table>");
    }
}

fn content(bytes: &[u8]) -> String {
    format!(
        "{} bytes, {:08x}",
        bytes.len(),
        xxhash_rust::xxh3::xxh3_64(bytes) as u32
    )
}

fn modelled(state: &State) -> BTreeMap<String, String> {
    state
        .paths()
        .into_iter()
        .filter_map(|(path, id)| {
            let text = match &state.nodes.get(&id)?.kind {
                Kind::File(c) => content(&c.data),
                Kind::Dir(_) => "directory".into(),
                Kind::Symlink(target) => format!("→ {target}"),
                Kind::Special(kind) => format!("{kind:?}").to_lowercase(),
            };
            Some((path, text))
        })
        .collect()
}

fn shown(seen: &Seen, dir: &str) -> BTreeMap<String, String> {
    let mut out = BTreeMap::new();
    let mut todo: Vec<(String, u32)> = seen
        .find(dir)
        .map(|i| (String::new(), i))
        .into_iter()
        .collect();
    while let Some((path, ino)) = todo.pop() {
        let Some(node) = seen.nodes.get(&ino) else {
            continue;
        };
        for (name, child) in &node.entries {
            let path = if path.is_empty() {
                name.clone()
            } else {
                format!("{path}/{name}")
            };
            let Some(node) = seen.nodes.get(child) else {
                continue;
            };
            let text = match node.kind {
                stetfs::low::FileType::Directory => "directory".into(),
                stetfs::low::FileType::Symlink => {
                    format!("→ {}", String::from_utf8_lossy(&node.target))
                }
                _ => content(&node.content),
            };
            todo.push((path.clone(), *child));
            out.insert(path, text);
        }
    }
    out
}
