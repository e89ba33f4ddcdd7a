//! The processor's instructions that write lines of its cache back to memory.

/// The flush instruction in use: the best that this processor has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum LineFlush {
    /// Writes the line back, and may keep it.
    #[cfg(target_arch = "x86_64")]
    Clwb,
    /// Writes the line back and drops it.
    #[cfg(target_arch = "x86_64")]
    ClflushOpt,
    /// Writes the line back and drops it; flushes are serialised.
    #[cfg(target_arch = "x86_64")]
    Clflush,
}

impl LineFlush {
    /// Detects the best instruction of this processor. `None` on architectures without a supported
    /// instruction: durability then needs the kernel (msync).
    pub(crate) fn detect() -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        return Some(x86::detect());
        #[cfg(not(target_arch = "x86_64"))]
        None
    }

    pub(crate) fn name(self) -> &'static str {
        #[cfg(target_arch = "x86_64")]
        return match self {
            LineFlush::Clwb => "clwb",
            LineFlush::ClflushOpt => "clflushopt",
            LineFlush::Clflush => "clflush",
        };
        #[cfg(not(target_arch = "x86_64"))]
        match self {}
    }

    /// Flushes the lines of these words to memory. They are there when [`LineFlush::fence`] returns
    /// on the same thread.
    pub(crate) fn flush(self, words: &[std::sync::atomic::AtomicU64]) {
        #[cfg(target_arch = "x86_64")]
        x86::flush(self, words);
        #[cfg(not(target_arch = "x86_64"))]
        match (self, words) {}
    }

    /// Waits for the calling thread's flushes.
    pub(crate) fn fence(self) {
        #[cfg(target_arch = "x86_64")]
        x86::fence();
        #[cfg(not(target_arch = "x86_64"))]
        match self {}
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::asm;
    use std::arch::x86_64::{__cpuid, __cpuid_count, _mm_clflush, _mm_sfence};
    use std::sync::atomic::AtomicU64;

    use super::LineFlush;
    use crate::{LINE, WORD};

    /// CPUID leaf 7, EBX.
    const CLFLUSHOPT: u32 = 1 << 23;
    const CLWB: u32 = 1 << 24;

    pub(super) fn detect() -> LineFlush {
        let features = match __cpuid(0).eax {
            7.. => __cpuid_count(7, 0).ebx,
            _ => 0,
        };
        match features {
            f if f & CLWB != 0 => LineFlush::Clwb,
            f if f & CLFLUSHOPT != 0 => LineFlush::ClflushOpt,
            _ => LineFlush::Clflush,
        }
    }

    pub(super) fn flush(how: LineFlush, words: &[AtomicU64]) {
        for line in words.chunks((LINE / WORD) as usize) {
            let at = line.as_ptr().cast::<u8>();
            match how {
                // SAFETY: the address lies in `words`, which is mapped; the instruction changes no
                // content, and `detect` found it. Without `nomem` the compiler keeps it behind the
                // earlier stores.
                LineFlush::Clwb => unsafe {
                    asm!("clwb [{}]", in(reg) at, options(nostack, preserves_flags));
                },
                // SAFETY: as above.
                LineFlush::ClflushOpt => unsafe {
                    asm!("clflushopt [{}]", in(reg) at, options(nostack, preserves_flags));
                },
                // SAFETY: as above; every x86_64 has it.
                LineFlush::Clflush => unsafe { _mm_clflush(at) },
            }
        }
    }

    pub(super) fn fence() {
        // SAFETY: every x86_64 has it.
        unsafe { _mm_sfence() }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn each_instruction_that_is_there_leaves_content_alone() {
            let words: Vec<AtomicU64> = (0..64).map(AtomicU64::new).collect();
            let mut all = vec![LineFlush::Clflush];
            let features = __cpuid_count(7, 0).ebx;
            all.extend((features & CLWB != 0).then_some(LineFlush::Clwb));
            all.extend((features & CLFLUSHOPT != 0).then_some(LineFlush::ClflushOpt));
            assert!(all.contains(&detect()));
            for how in all {
                how.flush(&words);
                how.fence();
            }
            assert!((0..).zip(words).all(|(n, w)| w.into_inner() == n));
        }
    }
}
