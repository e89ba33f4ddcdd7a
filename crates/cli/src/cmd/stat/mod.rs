//! `stetfs stat`: live counters of a mount, or the attributes of files in a volume.

mod prometheus;
mod text;
mod units;
mod watch;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use stetfs_fuse::mountinfo::{self, MountEntry};

use self::prometheus::Scrape;
use super::connect;
use super::mounted::{find_mount, mounts};
use crate::args::StatArgs;
use crate::control::client::Client;
use crate::failure::{Code, Failure, Result};
use crate::files::look;
use crate::held::name_of;
use crate::print;

/// The default time of a `--watch` step, seconds.
const STEP: f64 = 1.0;

/// Shows counters.
pub(crate) fn run(args: &StatArgs, as_json: bool) -> Result<Code> {
    if let Some(places) = look::places(&args.dirs).filter(|_| args.watch.is_none()) {
        let question = look::Question {
            opening: &args.opening,
            dereference: args.dereference,
            format: args.format.as_deref(),
        };
        return look::run(&places, &question, as_json);
    }
    if args.format.is_some() || args.dereference {
        let message = "--format and --dereference are for files in volumes";
        return Err(
            Failure::new(Code::Usage, message).hint("write IMAGE:/PATH, such as disk.img:/etc")
        );
    }
    let (step, dirs) = step_and_dirs(args)?;
    if args.prometheus {
        if as_json {
            let message = "--prometheus and --json are two formats of the same answer";
            return Err(Failure::new(Code::Usage, message).hint("leave one of them out"));
        }
        out!("{}", prometheus::exposition(&scrapes(&dirs)?));
        return Ok(Code::Done);
    }
    let [dir] = dirs.as_slice() else {
        let message = match dirs.len() {
            0 => "no mount was named",
            _ => "only --prometheus takes several mounts at once",
        };
        return Err(Failure::new(Code::Usage, message).hint(
            "write it as: stetfs stat DIR; findmnt -t fuse.stetfs,fuseblk.stetfs lists the mounts",
        ));
    };
    let mount = find_mount(dir)?;
    let client = connect(&mount)?;
    if let Some(step) = step {
        return watch::run(&mount, client, step, as_json);
    }
    let answer = ask(client)?;
    match as_json {
        true => print::value(&answer, true),
        false => print::value(&text::readable(answer), false),
    }
    Ok(Code::Done)
}

/// The time of a step and the mounts, from the words behind `--watch`: the first is a number of
/// seconds, or already a mount.
fn step_and_dirs(args: &StatArgs) -> Result<(Option<Duration>, Vec<PathBuf>)> {
    let mut dirs = args.dirs.clone();
    let Some(said) = &args.watch else {
        return Ok((None, dirs));
    };
    let seconds = match said {
        None => STEP,
        Some(word) => match number(word) {
            Some(seconds) => seconds,
            None if !dirs.is_empty() => {
                let message = format!(
                    "--watch takes a number of seconds, such as 0.5, and not {}",
                    word.display()
                );
                return Err(Failure::new(Code::Usage, message).hint(
                    "write it as: stetfs stat --watch 0.5 DIR; one mount is watched at once",
                ));
            }
            None => {
                dirs.insert(0, PathBuf::from(word));
                STEP
            }
        },
    };
    if !(0.01..=86_400.0).contains(&seconds) {
        let message = format!("--watch cannot use steps of {seconds} s");
        return Err(Failure::new(Code::Usage, message).hint("use 0.01 s to a day (86400)"));
    }
    Ok((Some(Duration::from_secs_f64(seconds)), dirs))
}

fn number(word: &OsStr) -> Option<f64> {
    word.to_str()?.parse().ok()
}

/// The counters of a server.
fn ask(mut client: Client) -> Result<Value> {
    let pid = client.pid();
    let mut answer = client.request(&json!({ "op": "stat" }))?;
    answer["pid"] = json!(pid);
    Ok(answer)
}

/// The counters of these mounts, or of all mounts if none is named. A named mount must answer.
fn scrapes(dirs: &[PathBuf]) -> Result<Vec<Scrape>> {
    if !dirs.is_empty() {
        return dirs.iter().map(|dir| named(dir)).collect();
    }
    let mut seen: Vec<MountEntry> = Vec::new();
    for mount in mounts()?.into_iter().filter(mountinfo::is_stetfs) {
        // A mount that is also bound elsewhere has one server.
        if !seen.iter().any(|other| other.dev == mount.dev) {
            // A mount covered by another one cannot be reached: usually it is dead.
            seen.retain(|other| other.dir != mount.dir);
            seen.push(mount);
        }
    }
    let scraped = seen.iter().map(|mount| Scrape {
        dir: mount.dir.clone(),
        source: name_of(mount),
        answer: connect(mount).and_then(ask).ok(),
    });
    Ok(scraped.collect())
}

fn named(dir: &Path) -> Result<Scrape> {
    let mount = find_mount(dir)?;
    let answer = ask(connect(&mount)?)?;
    Ok(Scrape {
        source: name_of(&mount),
        dir: mount.dir,
        answer: Some(answer),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::files::args::Opening;

    fn parsed(
        watch: Option<Option<&str>>,
        dirs: &[&str],
    ) -> Result<(Option<Duration>, Vec<PathBuf>)> {
        step_and_dirs(&StatArgs {
            dirs: dirs.iter().map(PathBuf::from).collect(),
            prometheus: false,
            watch: watch.map(|word| word.map(Into::into)),
            format: None,
            dereference: false,
            opening: Opening::default(),
        })
    }

    #[test]
    fn what_follows_watch_is_a_number_or_the_mount() {
        let second = Some(Duration::from_secs(1));
        let dir = vec![PathBuf::from("/mnt")];
        assert_eq!(parsed(None, &["/mnt"]).unwrap(), (None, dir.clone()));
        assert_eq!(
            parsed(Some(None), &["/mnt"]).unwrap(),
            (second, dir.clone())
        );
        assert_eq!(
            parsed(Some(Some("/mnt")), &[]).unwrap(),
            (second, dir.clone())
        );
        let half = Some(Duration::from_millis(500));
        assert_eq!(parsed(Some(Some("0.5")), &["/mnt"]).unwrap(), (half, dir));
        let said = parsed(Some(Some("abc")), &["/mnt"]).unwrap_err();
        assert!(said.message.contains("a number of seconds"), "{said}");
        for no in ["0", "-1", "nan", "1e9"] {
            assert_eq!(parsed(Some(Some(no)), &[]).unwrap_err().code, Code::Usage);
        }
    }
}
