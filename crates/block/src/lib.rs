//! Block devices: file or raw device (io_uring, O_DIRECT), memory, recorder, fault injector.
