//! Atomics: the standard library's, each on a cache line of its own.

/// As `std::sync::atomic`.
pub mod atomic {
    pub use std::sync::atomic::{Ordering, compiler_fence, fence};

    use super::super::line::Line;
    use super::super::operations::touch;
    use super::super::world::Op;

    macro_rules! atomic {
        ($name:ident, $value:ty) => {
            /// As the type of the standard library.
            #[derive(Default)]
            pub struct $name {
                line: Line,
                inner: std::sync::atomic::$name,
            }

            impl $name {
                /// An atomic with `value`.
                pub const fn new(value: $value) -> $name {
                    $name {
                        line: Line::new(),
                        inner: std::sync::atomic::$name::new(value),
                    }
                }

                /// Its value.
                #[track_caller]
                pub fn load(&self, order: Ordering) -> $value {
                    touch(&self.line, false, Op::Atomic);
                    self.inner.load(order)
                }

                /// Sets the value.
                #[track_caller]
                pub fn store(&self, value: $value, order: Ordering) {
                    touch(&self.line, true, Op::Atomic);
                    self.inner.store(value, order);
                }

                /// Sets the value if it is `current`; returns that before.
                ///
                /// # Errors
                /// The value, if it is another.
                #[track_caller]
                pub fn compare_exchange(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    touch(&self.line, true, Op::Atomic);
                    self.inner.compare_exchange(current, new, success, failure)
                }

                /// As `compare_exchange`: it fails only for another value.
                ///
                /// # Errors
                /// The value, if it is another.
                #[track_caller]
                pub fn compare_exchange_weak(
                    &self,
                    current: $value,
                    new: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    self.compare_exchange(current, new, success, failure)
                }

                /// Changes the value as `update` says, if it says so; returns that before.
                ///
                /// # Errors
                /// The value, if `update` returns none.
                #[track_caller]
                pub fn fetch_update(
                    &self,
                    set: Ordering,
                    fetch: Ordering,
                    update: impl FnMut($value) -> Option<$value>,
                ) -> Result<$value, $value> {
                    touch(&self.line, true, Op::Atomic);
                    self.inner.fetch_update(set, fetch, update)
                }

                /// Exclusive access.
                pub fn get_mut(&mut self) -> &mut $value {
                    self.inner.get_mut()
                }

                /// The value.
                pub fn into_inner(self) -> $value {
                    self.inner.into_inner()
                }
            }

            impl From<$value> for $name {
                fn from(value: $value) -> $name {
                    $name::new(value)
                }
            }

            impl std::fmt::Debug for $name {
                fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    self.inner.fmt(f)
                }
            }
        };
    }

    macro_rules! changes {
        ($name:ident, $value:ty: $($change:ident)+) => {
            impl $name {
                $(
                    /// As that of the standard library; returns the value before.
                    #[track_caller]
                    pub fn $change(&self, value: $value, order: Ordering) -> $value {
                        touch(&self.line, true, Op::Atomic);
                        self.inner.$change(value, order)
                    }
                )+
            }
        };
    }

    macro_rules! number {
        ($($name:ident $value:ty),+) => {
            $(
                atomic!($name, $value);
                changes!($name, $value:
                    swap fetch_add fetch_sub fetch_max fetch_min fetch_or fetch_and fetch_xor);
            )+
        };
    }

    number!(
        AtomicU8 u8, AtomicU16 u16, AtomicU32 u32, AtomicU64 u64, AtomicUsize usize,
        AtomicI8 i8, AtomicI16 i16, AtomicI32 i32, AtomicI64 i64, AtomicIsize isize
    );
    atomic!(AtomicBool, bool);
    changes!(AtomicBool, bool: swap fetch_or fetch_and fetch_xor fetch_nand);
}
