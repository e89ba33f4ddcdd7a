//! The subject of a certificate: a volume or a mount, with its settings.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stetfs::low::{NbdAddress, Part, VolumeOptions};
use stetfs_cli::{Code, Failure, Result, connect, find_mount, options_of_volume};
use stetfs_crash::setup::JournalSpec;
use stetfs_crash::volume::Base;

use super::page::Section;
use crate::args::CertifyArgs;

/// A volume, mounted or not, and its journal.
pub(super) struct Subject {
    /// The name that the user gave.
    pub(super) name: String,
    /// The image or device.
    pub(super) volume: PathBuf,
    pub(super) is_device: bool,
    /// The directory of the mount.
    pub(super) mounted: Option<PathBuf>,
    /// The journal, in the form of the crash lab.
    pub(super) spec: JournalSpec,
    /// The options of a volume that is not mounted, without its part.
    pub(super) options: VolumeOptions,
    is_part: bool,
    direct_io: bool,
    /// Size of a block, bytes.
    pub(super) block: u32,
    /// Objections before any trial.
    pub(super) objections: Vec<String>,
    settings: Vec<(&'static str, String)>,
}

fn spec_of(text: &str) -> Result<JournalSpec> {
    text.parse().map_err(|e: String| {
        Failure::new(Code::Usage, format!("its journal cannot be tested: {e}"))
    })
}

fn is_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|m| m.file_type().is_block_device())
}

impl Subject {
    pub(super) fn of(args: &CertifyArgs) -> Result<Subject> {
        if NbdAddress::is_meant(&args.volume) {
            let message = format!(
                "{} is the address of an NBD server: the storage below it cannot be checked from \
                 here",
                args.volume.display()
            );
            return Err(Failure::new(Code::Usage, message).hint(
                "certify the image where the server runs, or mount the address and certify the \
                 mount: stetfs certify DIR",
            ));
        }
        match args.volume.is_dir() {
            true if !args.options.is_empty() => Err(Failure::new(
                Code::Usage,
                "-o is for a volume that is not mounted: a mount has its options already; remove -o",
            )),
            true => Subject::of_mount(&args.volume),
            false => Subject::of_image(&args.volume, &args.options.join(",")),
        }
    }

    fn of_mount(dir: &Path) -> Result<Subject> {
        let stat = stat(dir)?;
        let text = |at: &str| stat.pointer(at).and_then(Value::as_str).map(str::to_owned);
        let preset = text("/journal/preset");
        let preset = preset.unwrap_or_else(|| "ordered".into());
        let parts = stat.pointer("/journal/parts").and_then(Value::as_object);
        let parts = parts.into_iter().flatten();
        let parts = parts.filter_map(|(name, part)| Some(format!(",{name}={}", part.as_str()?)));
        let spec = spec_of(&format!("{preset}{}", parts.collect::<String>()))?;
        let shown = stat.pointer("/connection/mount_options");
        let shown = shown.and_then(Value::as_array).cloned().unwrap_or_default();
        let shown: Vec<&str> = shown.iter().filter_map(Value::as_str).collect();
        let block = rustix::fs::statfs(dir).map(|s| s.f_bsize);
        let block = block.ok().and_then(|size| u32::try_from(size).ok());
        let volume = PathBuf::from(text("/volume").unwrap_or_default());
        Ok(Subject {
            name: dir.display().to_string(),
            is_device: is_device(&volume),
            mounted: Some(dir.to_owned()),
            options: VolumeOptions::default(),
            is_part: false,
            direct_io: shown.contains(&"direct_io"),
            block: block.unwrap_or(4096),
            objections: Vec::new(),
            settings: vec![
                ("volume", volume.display().to_string()),
                ("preset", preset),
                ("mount options", shown.join(",")),
            ],
            volume,
            spec,
        })
    }

    fn of_image(path: &Path, text: &str) -> Result<Subject> {
        let said = options_of_volume(path, text)?;
        let low = said.volume()?;
        let source = stetfs::low::Source {
            path: path.to_owned(),
            part: low.part.clone(),
            journal_path: low.journal_path.clone(),
            ..Default::default()
        };
        let info = stetfs::low::info(&source)?;
        let mut objections = Vec::new();
        if let Some(why) = &info.refused {
            objections.push(format!("it cannot be mounted for writing: {why}"));
        }
        if info.error_count > 0 {
            objections.push(format!(
                "{} errors were found in it since the last check",
                info.error_count
            ));
        }
        if !low.fs.barrier {
            objections
                .push("with nobarrier what was synced does not survive a loss of power".into());
        }
        let without = if low.fs.barrier { "" } else { ",nobarrier" };
        let journal = low.fs.journal.to_string();
        let spec = spec_of(&format!("{journal}{without}"))?;
        Ok(Subject {
            name: path.display().to_string(),
            volume: path.to_owned(),
            is_device: is_device(path),
            mounted: None,
            is_part: low.part != Part::Whole,
            direct_io: said.direct_io,
            block: info.block_size,
            objections,
            settings: vec![
                ("UUID", info.uuid.clone()),
                ("state", info.state.to_owned()),
                ("journal", format!("{journal}{without}")),
                ("options", text.to_owned()),
            ],
            spec,
            options: VolumeOptions {
                part: Part::Whole,
                journal_path: None,
                nvm: None,
                ..low
            },
        })
    }

    /// The section that describes the volume.
    pub(super) fn section(&self) -> Section {
        let mut section = Section::new("The volume", "as its superblock says");
        for (what, found) in &self.settings {
            section.row(*what, found.clone());
        }
        section.row("bytes of a block", self.block.to_string());
        let uname = rustix::system::uname();
        let kernel = uname.release().to_string_lossy();
        section.row("kernel", format!("Linux {kernel}"));
        section
    }

    /// The largest write that is whole or absent after any crash.
    pub(super) fn whole_writes(&self) -> Section {
        let mut section = Section::new(
            "The largest write that is whole",
            "by how the journal is made; why is in docs/schemes/ldj.md",
        );
        let journaled = self.spec.options.journal.data().keeps_whole();
        let found = match (journaled, self.direct_io) {
            (true, true) => {
                "1 MiB by one call: a database may leave out its own protection of pages".into()
            }
            (true, false) => format!(
                "a block ({} bytes): without direct_io the kernel may cut a call",
                self.block
            ),
            (false, _) => {
                "none that overwrites: a block can be half old, as with the kernel's data=ordered"
                    .into()
            }
        };
        section.row("after a crash", found);
        section
    }

    /// A copy of the volume, recovered, in memory.
    ///
    /// # Errors
    /// The reason why there can be none.
    pub(super) fn copy(&self) -> std::result::Result<Base, String> {
        match () {
            () if self.mounted.is_some() => Err("it is mounted".into()),
            () if self.is_device => Err("it is a device".into()),
            () if self.is_part => Err("it is a part of an image".into()),
            () => stetfs_crash::certify::base_of(&self.volume).map_err(|e| format!("{e:#}")),
        }
    }

    /// Flushes of the mount's device so far.
    pub(super) fn flushes(&self) -> Option<u64> {
        let stat = stat(self.mounted.as_deref()?).ok()?;
        stat.pointer("/device/flushes")?.as_u64()
    }
}

fn stat(dir: &Path) -> Result<Value> {
    connect(&find_mount(dir)?)?.request(&json!({ "op": "stat" }))
}
