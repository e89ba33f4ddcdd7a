//! Advice on SQLite without a journal file, for volumes that can have atomic writes
//! (docs/atomic.md).

use serde::Serialize;
use serde_json::Value;
use stetfs::low::VolumeInfo;

/// The shell command that says whether SQLite was built with batch atomic writes.
const BUILT: &str = "sqlite3 :memory: 'PRAGMA compile_options' | grep BATCH_ATOMIC";

/// An alternative to the recommended options: its condition and its cost.
#[derive(Debug, Serialize)]
pub(super) struct Alternative {
    pub options: String,
    #[serde(rename = "if")]
    pub condition: &'static str,
    /// The command that checks the condition.
    pub command: &'static str,
    pub because: &'static str,
    pub costs: Vec<String>,
}

fn with(journal: &str, costs: Vec<String>) -> Alternative {
    Alternative {
        options: format!("journal={journal},atomic"),
        condition: "SQLite was built with SQLITE_ENABLE_BATCH_ATOMIC_WRITE (Debian's is not), and its journal_mode \
                    is not WAL",
        command: BUILT,
        because: "SQLite writes no journal file: a transaction is whole or absent, and durable, by one commit of \
                  the volume's (docs/atomic.md); how fast that is was not measured",
        costs,
    }
}

/// The cost of a mount with `atomic`, whatever its journal.
fn requests() -> String {
    "a request for each open, and one or two for each close".into()
}

/// The cost where data did not go through the journal before.
fn data() -> String {
    "data of all files is written twice: to the journal, and later to its home location".into()
}

fn limit(bytes: Option<u64>) -> String {
    let most = match bytes {
        Some(bytes) => format!("{} KiB", bytes >> 10),
        None => "a quarter of the journal".into(),
    };
    format!(
        "a transaction of more than {most}, or a quarter of cache=, is written to free blocks \
         first: it needs that space until it ends, and may fragment the file"
    )
}

/// The alternative for a volume that is not mounted.
pub(super) fn of_volume(info: &VolumeInfo) -> Option<Alternative> {
    let journal = info.journal.as_ref()?;
    if info.refused.is_some() {
        return None;
    }
    let costs = vec![
        data(),
        requests(),
        limit(Some(journal.largest_transaction)),
        "after a crash only StetFS replays the log; with journal=data the kernel and e2fsck do, too"
            .into(),
    ];
    Some(with("ldj", costs))
}

/// The alternative for a mount, by the answer of `stat`. A mount whose data goes through the
/// journal keeps its preset.
pub(super) fn of_mount(stat: &Value) -> Option<Alternative> {
    let shown = stat.pointer("/connection/mount_options");
    let has = |name: &str| {
        let all = shown.and_then(Value::as_array).into_iter().flatten();
        all.into_iter().any(|option| option == name)
    };
    let preset = stat.pointer("/journal/preset")?.as_str()?;
    if has("ro") || has("atomic") {
        return None;
    }
    let data_mode = stat.pointer("/journal/parts/data")?.as_str()?;
    let takes_data = ["journal", "overwrites"].contains(&data_mode);
    let mut costs = Vec::new();
    if !takes_data {
        costs.push(data());
    }
    costs.extend([requests(), limit(None)]);
    if has("writeback_cache") {
        costs.push("it cannot be combined with writeback_cache, which this mount has".into());
    }
    Some(with(if takes_data { preset } else { "ldj" }, costs))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn mount(preset: &str, data: &str, options: &[&str]) -> Value {
        json!({
            "journal": { "preset": preset, "parts": { "data": data } },
            "connection": { "mount_options": options },
        })
    }

    #[test]
    fn a_mount_is_told_what_it_has_not() {
        let options = |stat: &Value| of_mount(stat).map(|it| it.options);
        let own = mount("data,compress=zstd", "journal", &["rw"]);
        let said = options(&own);
        assert_eq!(said.as_deref(), Some("journal=data,compress=zstd,atomic"));
        assert!(!of_mount(&own).is_some_and(|it| it.costs.contains(&data())));
        let own = mount("stet", "overwrites", &["rw"]);
        assert_eq!(options(&own).as_deref(), Some("journal=stet,atomic"));
        let other = mount("ordered", "ordered", &["rw", "writeback_cache"]);
        assert_eq!(options(&other).as_deref(), Some("journal=ldj,atomic"));
        let costs = of_mount(&other).map_or_else(Vec::new, |it| it.costs);
        assert!(costs.contains(&data()));
        assert!(costs.iter().any(|cost| cost.contains("writeback_cache")));
        for has in ["ro", "atomic"] {
            assert_eq!(options(&mount("data", "journal", &[has])), None);
        }
        assert_eq!(options(&json!({ "journal": null })), None);
    }
}
