//! Test harness: images, loop devices, kernel mounts, tree snapshots, e2fsck; everything is taken down on drop.
