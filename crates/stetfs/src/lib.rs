//! StetFS as a library: open a volume, presets, operations.
