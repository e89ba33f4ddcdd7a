//! The standard comparison with its own setup: kernel ext4 and StetFS, each on an equal image of
//! its own.
//!
//! Needs root. Images are fully written files behind loop devices with direct I/O: writes reach the
//! disk below as on a separate disk, and never allocate or convert blocks in the host file system.

mod spec;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, anyhow};
use stetfs::low::{
    BlockDevice, Composition, FsOptions, MemDevice, RegionFile, Volume, VolumeOptions,
};
use stetfs_flash::{Model, Ssd, Timed};
use stetfs_fuse::{DeviceFs, MountOptions, Service};
use stetfs_testkit::{Attach, Image, LoopDev, LoopOptions, Mkfs, Mounted, Mounter, Scratch};

use super::format::Format;
use super::host::XfsHost;
use super::target::OnVolume;
use super::{CompareConfig, Report, SqliteJournal, Target, run};
use crate::aged;
pub use spec::{InMemory, KernelFs, PeerSpec, PeersConfig};

/// The state of FUSE's switch for io_uring, which a mount may turn on; restored when dropped.
struct Switch(Option<String>);

impl Switch {
    const PATH: &str = "/sys/module/fuse/parameters/enable_uring";

    fn remember() -> Switch {
        Switch(std::fs::read_to_string(Self::PATH).ok())
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        if let Some(was) = &self.0 {
            // On failure it stays on, which does no harm.
            let _ = std::fs::write(Self::PATH, was);
        }
    }
}

/// A mounted peer, shared with the hook that mounts it again.
struct Peer {
    mounter: Mounter,
    // Dropped before the image: the fields are in the order of taking down.
    mounted: Option<Mounted>,
    /// Serves the image, if it is on a simulated device.
    service: Option<Service>,
    /// The device, if it has flash.
    flash: Option<Arc<Ssd>>,
    image: Image,
    /// The XFS that holds the image, if it is not a file of the machine's own file system.
    host: Option<XfsHost>,
    /// The device of its journal, if it is another.
    _journal: Option<JournalDevice>,
    format: Format,
    protects: Option<bool>,
    sqlite: SqliteJournal,
    stetfs: Option<Stetfs>,
    untouched: bool,
}

/// Facts about a mount of StetFS.
#[derive(Clone)]
struct Stetfs {
    binary: PathBuf,
    journal: Composition,
    /// `nvm=`: its region.
    region: Option<String>,
    whole_writes: bool,
    /// The mount runs the same version as this program's library.
    this_version: bool,
}

impl Peer {
    fn mount(&mut self) -> Result<(PathBuf, Option<PathBuf>)> {
        let mounted = self.mounter.mount(self.image.path())?;
        let place = (mounted.path().to_owned(), self.device_below(&mounted));
        self.mounted = Some(mounted);
        Ok(place)
    }

    /// The device whose writes are counted: below the host file system of the image, if that is set
    /// up here.
    fn device_below(&self, mounted: &Mounted) -> Option<PathBuf> {
        match &self.host {
            Some(host) => Some(host.device()),
            None => mounted.device().map(PathBuf::from),
        }
    }

    fn as_library(&mut self, work: &mut OnVolume<'_>) -> Result<(PathBuf, Option<PathBuf>)> {
        if let Some(mounted) = self.mounted.take() {
            mounted.umount()?;
        }
        let direct = LoopOptions {
            direct_io: true,
            ..LoopOptions::default()
        };
        let device = LoopDev::attach(self.image.path(), direct)?;
        let journal = self.stetfs.as_ref().map(|s| s.journal.clone());
        let region = self.stetfs.as_ref().and_then(|s| s.region.as_ref());
        let options = VolumeOptions {
            fs: FsOptions {
                journal: journal.unwrap_or_default(),
                ..FsOptions::default()
            },
            nvm: region.map(RegionFile::from),
            ..VolumeOptions::default()
        };
        let volume = Volume::open(device.path(), &options)?;
        let worked = work(&volume);
        volume.close()?;
        drop(volume);
        drop(device);
        worked?;
        self.mount()
    }

    fn remount(&mut self) -> Result<(PathBuf, Option<PathBuf>)> {
        if let Some(mounted) = self.mounted.take() {
            mounted.umount()?;
        }
        // The host's cache of the image file must be cold, too.
        crate::cold::try_drop_caches();
        if self.untouched {
            crate::cold::let_memory_go();
        }
        self.mount()
    }
}

/// The mounted peers. Taken down when dropped.
pub struct Peers {
    peers: Vec<(String, Arc<Mutex<Peer>>)>,
    _switch: Switch,
}

impl Peers {
    /// Makes the images and mounts them.
    pub fn set_up(config: &PeersConfig) -> Result<Self> {
        if !rustix::process::geteuid().is_root() {
            return Err(anyhow!("setting up loop devices and mounts needs root"));
        }
        let mut wanted: Vec<(&PeerSpec, Mounter, Option<Stetfs>)> = config
            .kernel
            .iter()
            .map(|peer| {
                let mounter = Mounter::Kernel {
                    fstype: peer.format.kernel_type().into(),
                    options: peer.options.clone(),
                    direct_io: true,
                };
                (peer, mounter, None)
            })
            .collect();
        if let Some(binary) = &config.stetfs {
            for preset in &config.presets {
                let another = preset.program.as_ref();
                let binary = another.unwrap_or(binary);
                let mounter = Mounter::Stetfs {
                    binary: binary.clone(),
                    options: preset.options.clone(),
                    // A loop device does not pass on SHARE requests.
                    attach: match config.shares() {
                        true => Attach::File,
                        false => Attach::Loop { direct_io: true },
                    },
                    deadline: None,
                };
                let journal = preset.journal()?;
                let stetfs = Stetfs {
                    binary: binary.clone(),
                    region: preset.value("nvm").map(str::to_owned),
                    whole_writes: preset.whole_writes(&journal),
                    this_version: another.is_none(),
                    journal,
                };
                wanted.push((preset, mounter, Some(stetfs)));
            }
        }
        let switch = Switch::remember();
        let mut peers = Vec::new();
        for (spec, mounter, stetfs) in wanted {
            let peer = set_up_one(config, spec, mounter, stetfs)
                .with_context(|| format!("setting up {}", spec.name))?;
            peers.push((spec.name.clone(), Arc::new(Mutex::new(peer))));
        }
        Ok(Self {
            peers,
            _switch: switch,
        })
    }

    /// The targets to compare. They are valid as long as `self` lives.
    pub fn targets(&self) -> Result<Vec<Target>> {
        self.peers
            .iter()
            .map(|(name, this)| {
                let hook = Arc::clone(this);
                let remount = Box::new(move || lock(&hook).remount());
                let peer = lock(this);
                let mounted = peer
                    .mounted
                    .as_ref()
                    .ok_or_else(|| anyhow!("{name} is not mounted"))?;
                let mut target = Target::new(name, mounted.path())
                    .with_remount(remount)
                    .with_memory(peer.service.is_some())
                    .with_protection(peer.protects)
                    .with_sqlite(peer.sqlite);
                if let Some(stetfs) = &peer.stetfs {
                    target = target
                        .with_stat(&stetfs.binary)
                        .with_whole_writes(stetfs.whole_writes);
                    if stetfs.this_version {
                        let hook = Arc::clone(this);
                        target = target.with_library(Box::new(move |w| lock(&hook).as_library(w)));
                    }
                }
                if let Some(device) = peer.device_below(mounted) {
                    target = target.on_device(&device);
                }
                if let Some(flash) = &peer.flash {
                    target = target.on_flash(Arc::clone(flash));
                }
                Ok(target)
            })
            .collect()
    }

    /// Runs the whole comparison: sets up, measures, takes down. `tune` chooses workloads, sizes
    /// and rounds.
    pub fn compare(
        config: &PeersConfig,
        tune: impl FnOnce(CompareConfig) -> CompareConfig,
    ) -> Result<Report> {
        let peers = Self::set_up(config)?;
        let mut compare = tune(CompareConfig::new(peers.targets()?));
        let report = run(&mut compare)?;
        // The targets remove their directories, which needs the mounts.
        drop(compare);
        peers.take_down()?;
        Ok(report)
    }

    /// Unmounts all peers, and checks every image (`e2fsck -fn`, `xfs_repair -n`): results of a
    /// file system that damages its image do not count.
    pub fn take_down(self) -> Result<()> {
        for (name, peer) in &self.peers {
            let mut peer = lock(peer);
            if let Some(mounted) = peer.mounted.take() {
                mounted
                    .umount()
                    .with_context(|| format!("unmounting {name}"))?;
            }
            peer.format
                .check(&peer.image)
                .with_context(|| format!("checking {name}"))?;
        }
        Ok(())
    }
}

fn lock(peer: &Mutex<Peer>) -> std::sync::MutexGuard<'_, Peer> {
    peer.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A simulated device, served as a file.
fn served<D: BlockDevice + 'static>(device: Arc<D>, model: Model) -> Result<(Service, Image)> {
    let scratch = Scratch::new("device")?;
    let dir = scratch.path().join("dev");
    std::fs::create_dir(&dir)?;
    let fs = Arc::new(DeviceFs::new(device));
    let service = Service::start(fs, &dir, &MountOptions::new(model.name), model.channels + 4)?;
    let disk = service.dir().join("disk");
    Ok((service, Image::at(disk, scratch)))
}

/// A journal in memory, on a separate device.
struct JournalDevice {
    // Detached before its file is removed.
    device: LoopDev,
    _file: Image,
}

impl JournalDevice {
    fn new(mib: u32) -> Result<Self> {
        let file = Image::in_memory(u64::from(mib) << 20)?;
        file.mkfs(&Mkfs::blocks(4096).feature("journal_dev"))?;
        Ok(Self {
            device: LoopDev::attach(file.path(), LoopOptions::default())?,
            _file: file,
        })
    }
}

fn set_up_one(
    config: &PeersConfig,
    spec: &PeerSpec,
    mounter: Mounter,
    stetfs: Option<Stetfs>,
) -> Result<Peer> {
    let host = match config.xfs {
        true => Some(XfsHost::new(config.image_bytes)?),
        false => None,
    };
    let image = match (&host, spec.memory) {
        (_, InMemory::All) => Image::in_memory(config.image_bytes)?,
        (Some(host), _) => host.image(config.image_bytes)?,
        (None, _) => Image::sparse(config.image_bytes)?,
    };
    let journal_mib = spec.journal_mib.unwrap_or(config.journal_mib);
    let journal = match spec.memory {
        InMemory::Journal => Some(JournalDevice::new(journal_mib)?),
        InMemory::Nothing | InMemory::All => None,
    };
    let device = journal.as_ref().map(|journal| &journal.device);
    spec.format.make(&image, journal_mib, device)?;
    let (mut service, mut flash) = (None, None);
    let model = config.model.filter(|_| spec.memory != InMemory::All);
    let image = match model {
        None => {
            image.fill()?;
            image
        }
        Some(model) => {
            let content = MemDevice::load(image.path())?;
            let (serving, image) = match config.flash {
                true => {
                    let ssd = Arc::new(aged::ssd(&content, true)?.timed(model));
                    served(Arc::clone(flash.insert(ssd)), model)?
                }
                false => served(Arc::new(Timed::new(content, model)), model)?,
            };
            service = Some(serving);
            image
        }
    };
    let mut peer = Peer {
        mounter,
        mounted: None,
        service,
        flash,
        image,
        host,
        _journal: journal,
        format: spec.format,
        protects: spec.protects,
        sqlite: spec.sqlite,
        stetfs,
        untouched: config.untouched,
    };
    peer.mount()?;
    Ok(peer)
}
