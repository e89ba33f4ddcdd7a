//! The kinds of volumes.

use stetfs_testkit::{Image, Mkfs};

/// One kind.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    mkfs: Mkfs,
    /// The volume has a journal.
    pub(crate) journal: bool,
    /// Files may have unwritten blocks.
    pub(crate) preallocates: bool,
    /// Values of attributes may have inodes of their own.
    pub(crate) values: bool,
    /// Crash tests also use StetFS's own log, because its data or metadata takes paths of its own.
    pub(crate) own_log: bool,
    /// The unit of allocation is large, so a small volume is soon full.
    pub(crate) coarse: bool,
    /// The kernel of this machine mounts it.
    pub(crate) kernel: bool,
    /// The quota types of `usrquota`, `grpquota` and `prjquota` that tune2fs adds. The kernel of
    /// this machine only reads such volumes.
    quota: &'static str,
}

impl Kind {
    fn new(name: &'static str, mkfs: Mkfs) -> Kind {
        Kind {
            name,
            mkfs,
            journal: true,
            preallocates: true,
            values: false,
            own_log: false,
            coarse: false,
            kernel: true,
            quota: "",
        }
    }

    fn ext4(name: &'static str, block_size: u32, features: &str) -> Kind {
        let mkfs = Mkfs::blocks(block_size);
        Kind::new(
            name,
            if features.is_empty() {
                mkfs
            } else {
                mkfs.feature(features)
            },
        )
    }

    fn typed(name: &'static str, fs_type: &str, block_size: u32) -> Kind {
        let mkfs = Mkfs {
            fs_type: Some(fs_type.into()),
            ..Mkfs::blocks(block_size)
        };
        Kind::new(name, mkfs).block_mapped()
    }

    fn block_mapped(mut self) -> Kind {
        self.preallocates = false;
        self
    }

    fn without_journal(mut self) -> Kind {
        self.journal = false;
        self
    }

    fn small_inodes(mut self) -> Kind {
        self.mkfs = self.mkfs.inode_size(128);
        self
    }

    fn extended(mut self, option: &str) -> Kind {
        self.mkfs = self.mkfs.extended(option);
        self
    }

    fn with_values(mut self) -> Kind {
        self.values = true;
        self.own_log = true;
        self
    }

    fn not_for_the_kernel(mut self) -> Kind {
        self.coarse = true;
        self.kernel = false;
        self
    }

    /// A fresh volume.
    pub(crate) fn make(&self) -> Image {
        let image = self.make_writable();
        self.complete(&image);
        image
    }

    /// A fresh volume that the kernel of this machine can write.
    pub(crate) fn make_writable(&self) -> Image {
        Image::make(64 << 20, &self.mkfs).unwrap_or_else(|e| panic!("{}: {e:#}", self.name))
    }

    /// Adds features that the kernel of this machine cannot write.
    pub(crate) fn complete(&self, image: &Image) {
        if self.quota.is_empty() {
            return;
        }
        let mut tune = std::process::Command::new("tune2fs");
        if self.projects() {
            tune.args(["-O", "project"]);
        }
        tune.args(["-Q", self.quota]).arg(image.path());
        stetfs_testkit::cmd::run(&mut tune).unwrap_or_else(|e| panic!("{}: {e:#}", self.name));
        // tune2fs (1.47) counts values in inodes of their own in a way of its own; e2fsck corrects
        // the counts.
        let counted = image.e2fsck_fy();
        counted.unwrap_or_else(|e| panic!("{}: {e:#}", self.name));
    }

    /// Whether inodes belong to projects.
    pub(crate) fn projects(&self) -> bool {
        self.quota.contains("prjquota")
    }

    fn quota(mut self, quota: &'static str) -> Kind {
        self.quota = quota;
        self.own_log = true;
        self
    }
}

/// All kinds that StetFS reads and writes.
pub(crate) fn kinds() -> Vec<Kind> {
    let old = "^extents,^64bit";
    vec![
        Kind::ext4("default-1k", 1024, ""),
        Kind::ext4("default-4k", 4096, ""),
        Kind::ext4("block-maps-1k", 1024, old).block_mapped(),
        Kind::ext4("block-maps-2k", 2048, old).block_mapped(),
        Kind::ext4("block-maps-no-csum", 4096, "^extents,^64bit,^metadata_csum").block_mapped(),
        Kind::typed("ext3-1k", "ext3", 1024),
        Kind::typed("ext3-4k-128", "ext3", 4096).small_inodes(),
        Kind::typed("ext2-1k", "ext2", 1024).without_journal(),
        Kind::typed("ext2-4k-128", "ext2", 4096)
            .without_journal()
            .small_inodes(),
        Kind::ext4("no-journal", 4096, "^has_journal").without_journal(),
        Kind::ext4("no-journal-1k", 1024, "^has_journal,^metadata_csum").without_journal(),
        Kind::ext4("uninit_bg", 1024, "^metadata_csum,uninit_bg"),
        Kind::ext4("no-checksums", 4096, "^metadata_csum,^uninit_bg"),
        Kind::ext4("csum_seed", 4096, "metadata_csum_seed"),
        Kind::ext4("no-flex_bg", 1024, "^flex_bg"),
        Kind::ext4("sparse_super2", 1024, "sparse_super2,^resize_inode"),
        Kind::ext4("no-sparse_super", 1024, "^sparse_super,^resize_inode"),
        Kind::ext4("meta_bg", 1024, "meta_bg,^resize_inode"),
        Kind::ext4("32-bit", 1024, "^64bit"),
        Kind::ext4("inodes-of-128", 1024, "").small_inodes(),
        Kind::ext4("inodes-of-1024", 4096, "")
            .extended("lazy_itable_init=1")
            .inodes(1024),
        Kind::ext4("no-filetype", 1024, "^filetype"),
        Kind::ext4("no-dir_index", 1024, "^dir_index,^dir_nlink"),
        Kind::ext4("no-large_file", 4096, "^large_file,^huge_file"),
        Kind::ext4("large_dir", 1024, "large_dir"),
        Kind::ext4("orphan_file", 4096, "orphan_file"),
        Kind::ext4("inline_data", 4096, "inline_data"),
        Kind::ext4("inline_data-1k-1024", 1024, "inline_data,^metadata_csum").inodes(1024),
        Kind::ext4("inline-data-maps", 4096, "inline_data,^extents,^64bit").block_mapped(),
        Kind::ext4("stable_inodes", 4096, "stable_inodes"),
        Kind::ext4("mmp", 4096, "mmp"),
        Kind::ext4("ea_inode", 4096, "ea_inode").with_values(),
        Kind::ext4("ea_inode-1k", 1024, "ea_inode,^metadata_csum").with_values(),
        Kind::ext4(
            "ea_inode-maps",
            1024,
            "ea_inode,^extents,^64bit,orphan_file",
        )
        .block_mapped()
        .with_values(),
        Kind::ext4("ea_inode-inline-1024", 4096, "ea_inode,inline_data")
            .inodes(1024)
            .with_values(),
        Kind::ext4("bigalloc", 4096, "bigalloc").clusters(16384),
        Kind::ext4("bigalloc-1k", 1024, "bigalloc,^resize_inode").clusters(8192),
        Kind::ext4("bigalloc-of-2", 1024, "bigalloc,^metadata_csum,uninit_bg").clusters(2048),
        Kind::ext4("bigalloc-1k-64", 1024, "bigalloc,^resize_inode,orphan_file").clusters(65536),
        Kind::ext4(
            "bigalloc-inline-values",
            4096,
            "bigalloc,ea_inode,inline_data",
        )
        .clusters(32768)
        .with_values(),
        Kind::ext4("bigalloc-no-journal", 4096, "bigalloc,^has_journal")
            .clusters(16384)
            .without_journal(),
        Kind::ext4("quota", 4096, "").quota("usrquota,grpquota"),
        Kind::ext4("quota-1k-maps", 1024, "^extents,^64bit,orphan_file")
            .block_mapped()
            .quota("grpquota"),
        Kind::ext4("project-quota", 4096, "").quota("usrquota,grpquota,prjquota"),
        Kind::ext4("project-quota-1k", 1024, "^metadata_csum,inline_data").quota("prjquota"),
        Kind::ext4("quota-values", 4096, "ea_inode,orphan_file")
            .with_values()
            .quota("usrquota,grpquota,prjquota"),
        Kind::ext4("quota-bigalloc", 4096, "bigalloc,ea_inode")
            .clusters(16384)
            .with_values()
            .quota("usrquota,prjquota"),
        Kind::ext4("quota-no-journal", 1024, "^has_journal")
            .without_journal()
            .quota("usrquota,grpquota"),
        Kind::ext4("blocks-of-8k", 8192, "").not_for_the_kernel(),
        Kind::ext4("blocks-of-32k", 32768, "").not_for_the_kernel(),
        Kind::ext4("block-maps-16k", 16384, old)
            .block_mapped()
            .not_for_the_kernel(),
    ]
}

/// All kinds that StetFS reads but does not write.
pub(crate) fn sealed() -> Vec<Kind> {
    vec![
        Kind::ext4("verity", 4096, "verity"),
        Kind::ext4("encrypt", 4096, "encrypt"),
    ]
}

impl Kind {
    fn clusters(mut self, bytes: u32) -> Kind {
        self.mkfs.args.extend(["-C".into(), bytes.to_string()]);
        self.coarse = bytes > 16384;
        self.own_log = true;
        self
    }

    fn inodes(mut self, bytes: u32) -> Kind {
        self.mkfs = self.mkfs.inode_size(bytes);
        self
    }
}
