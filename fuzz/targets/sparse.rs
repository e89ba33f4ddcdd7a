#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| stetfs_fuzzing::sparse::run(bytes));
