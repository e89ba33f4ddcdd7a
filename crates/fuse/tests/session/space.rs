//! A full volume: short writes, errors, and room that deleted files return.

use stetfs_fuse::VolumeFsOptions;

use crate::kernel::{Kernel, ROOT, image};

/// Fills the volume with one file; returns its node and length.
fn fill(kernel: &Kernel) -> (u64, u64) {
    let file = kernel.file(ROOT, "large");
    let data = vec![1; 1 << 20];
    let mut len = 0;
    loop {
        match kernel.write(file, 0, len, &data) {
            Ok(n) => {
                assert!(n > 0);
                len += u64::from(n);
            }
            Err(errno) => {
                assert_eq!(errno, libc::ENOSPC);
                return (file, len);
            }
        }
    }
}

#[test]
fn a_full_volume_writes_what_it_can_and_says_so() {
    let image = image();
    let mut kernel = Kernel::on(&image, VolumeFsOptions::default());
    kernel.others = true;
    let (_, free) = kernel.free();
    let (file, len) = fill(&kernel);
    assert!(len > (free - 200) << 12 && len <= free << 12);
    assert_eq!(kernel.getattr(file).unwrap().size, len);
    assert_eq!(
        kernel.fallocate((file, 0), 0, len, 1 << 20),
        Err(libc::ENOSPC)
    );
    assert_eq!(
        kernel.write(file, 0, 0, b"over").unwrap(),
        4,
        "what is there is written over"
    );
    // A file without a name keeps its room until it is forgotten.
    kernel.unlink(ROOT, "large").unwrap();
    let other = kernel.file(ROOT, "other");
    assert_eq!(
        kernel.write(other, 0, 0, &vec![2; 1 << 20]),
        Err(libc::ENOSPC)
    );
    kernel.forget(file, 1);
    assert_eq!(kernel.write(other, 0, 0, &vec![2; 1 << 20]), Ok(1 << 20));
    kernel.end(&image);
}

/// The kernel forgets a file after the call that deleted it has returned: a later write may come
/// first.
#[test]
fn a_write_waits_for_the_file_that_is_about_to_be_forgotten() {
    let image = image();
    let mut kernel = Kernel::on(&image, VolumeFsOptions::default());
    kernel.others = true;
    let (file, _) = fill(&kernel);
    kernel.unlink(ROOT, "large").unwrap();
    let other = kernel.file(ROOT, "other");
    std::thread::scope(|scope| {
        let written = scope.spawn(|| kernel.write(other, 0, 0, &vec![2; 1 << 20]));
        std::thread::sleep(std::time::Duration::from_millis(20));
        kernel.forget(file, 1);
        assert_eq!(written.join().unwrap(), Ok(1 << 20));
    });
    kernel.end(&image);
}
