//! `stetfs mount` and the mount helper.

use std::path::{Path, PathBuf};

use serde_json::json;
use stetfs::low::{FirstLook, NbdAddress};

use crate::args::{HelperArgs, MountArgs};
use crate::daemon::{self, Told};
use crate::failure::{Code, Failure, Result};
use crate::job::Job;
use crate::log;
use crate::options::{self, Options};
use crate::print;

/// `stetfs mount`.
pub(crate) fn run(args: &MountArgs, json: bool) -> Result<Code> {
    let text = args.options.join(",");
    let mut options = Options::default();
    options::parse(&text, false, &mut options)?;
    // Mistakes in the options are reported before anything starts.
    let mut warnings = options.warnings()?;
    if args.server.is_none() && !json {
        warnings.iter().for_each(|warning| daemon::warn(warning));
    }
    if options.remount {
        if args.log_file.is_some() {
            return Err(log::file_stays());
        }
        let warning = super::remount::run(&args.dir, &text)?;
        if let (Some(warning), false) = (&warning, json) {
            daemon::warn(warning);
        }
        warnings.extend(warning);
        if json {
            let answer = json!({
                "remounted": true, "dir": args.dir.display().to_string(), "warnings": warnings,
            });
            print::value(&answer, true);
        }
        return Ok(Code::Done);
    }
    options.volume()?;
    let (source, dir) = (absolute(&args.source)?, absolute_dir(&args.dir)?);
    if let Some(parent) = args.server {
        if let Some(path) = &args.log_file {
            options.log_file = Some(path.clone());
        }
        let job = Job {
            text,
            options,
            look: FirstLook::default(),
            source,
            dir,
            daemon: !args.foreground,
            protected: false,
        };
        daemon::run(&job, parent)?;
        return Ok(Code::Done);
    }
    let log_file = args.log_file.as_ref().map(std::path::absolute).transpose();
    let log_file = log_file
        .map_err(|e| Failure::new(Code::Usage, format!("--log-file must be a path ({e})")))?;
    let told = Told {
        options: &text,
        log_file: log_file.as_deref(),
    };
    let (code, state) = if args.foreground {
        (daemon::stay(&source, &dir, told, json)?, "unmounted")
    } else {
        let told = daemon::start(&source, &dir, told)?;
        if !json {
            told.iter().for_each(|warning| daemon::warn(warning));
        }
        warnings.extend(told);
        (Code::Done, "mounted")
    };
    // A server that failed in the foreground has reported it already.
    if json && code == Code::Done {
        let answer = json!({
            state: true, "volume": source.display().to_string(),
            "dir": dir.display().to_string(), "warnings": warnings,
        });
        print::value(&answer, true);
    }
    Ok(code)
}

/// Mounts as mount(8) asks a helper to.
pub(crate) fn helper(args: &HelperArgs) -> Result {
    let text = args.options.join(",");
    let mut options = Options::default();
    options::parse(&text, args.sloppy, &mut options)?;
    if args.fake {
        return options.volume().map(drop);
    }
    let warnings = options.warnings()?;
    warnings.iter().for_each(|warning| daemon::warn(warning));
    if options.remount {
        let warning = super::remount::run(&args.dir, &text)?;
        warning.iter().for_each(|warning| daemon::warn(warning));
        return Ok(());
    }
    options.volume()?;
    let known = if args.sloppy {
        options::known_only(&text)
    } else {
        text
    };
    let told = Told {
        options: &known,
        log_file: None,
    };
    let warnings = daemon::start(&absolute(&args.source)?, &absolute_dir(&args.dir)?, told)?;
    warnings.iter().for_each(|warning| daemon::warn(warning));
    Ok(())
}

fn absolute(source: &Path) -> Result<PathBuf> {
    if NbdAddress::is_meant(source) {
        let address = source.to_string_lossy().parse::<NbdAddress>();
        return address
            .map(|address| address.to_string().into())
            .map_err(|e| Failure::new(Code::Usage, e.to_string()));
    }
    source
        .canonicalize()
        .map_err(|e| Failure::from(&stetfs::low::BlockError::open(source, e)))
}

/// The absolute path of a directory to mount on. A dead mount at it is reported when it is mounted.
fn absolute_dir(dir: &Path) -> Result<PathBuf> {
    stetfs_fuse::mountinfo::absolute(dir).map_err(|e| {
        let failure = Failure::new(
            Code::NotFound,
            format!("cannot mount on {}: {e}", dir.display()),
        );
        match e.kind() {
            std::io::ErrorKind::NotFound => failure.hint(format!(
                "make the directory first: mkdir -p {}",
                dir.display()
            )),
            _ => failure,
        }
    })
}
