//! The bounds of a thread's stack, as reported by the C library and the kernel.

use crate::platform::{identity, procfs};

/// Address range of a thread's stack. The stack grows down from `top`, so the oldest frames are
/// there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StackBounds {
    pub(crate) low: u64,
    pub(crate) top: u64,
}

impl StackBounds {
    /// Bounds that contain no address.
    pub(crate) const NONE: Self = Self {
        low: u64::MAX,
        top: 0,
    };

    pub(crate) fn contain(&self, address: u64) -> bool {
        (self.low..self.top).contains(&address)
    }
}

/// Returns the stack bounds of the calling thread, or `None` if the C library does not know them.
///
/// Cost: a few microseconds; on the main thread it also reads files in `/proc`.
pub(crate) fn current_stack_bounds() -> Option<StackBounds> {
    // `nix` has no thread attributes.
    // SAFETY: `pthread_getattr_np` fills in the attributes, which are a local, and allocates memory
    // that `pthread_attr_destroy` frees. The out-pointers point to locals.
    let (low, bytes) = unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        if libc::pthread_getattr_np(libc::pthread_self(), &mut attributes) != 0 {
            return None;
        }
        let (mut low, mut bytes) = (std::ptr::null_mut(), 0);
        let answer = libc::pthread_attr_getstack(&attributes, &mut low, &mut bytes);
        libc::pthread_attr_destroy(&mut attributes);
        if answer != 0 {
            return None;
        }
        (low as u64, bytes as u64)
    };
    let top = low.checked_add(bytes)?;
    Some(StackBounds {
        low,
        top: top_of_main_frames(low, top).unwrap_or(top),
    })
}

/// Returns an address just above the oldest frame of the main thread; `None` on other threads. The
/// arguments and the environment above that frame can be long and contain no frames.
fn top_of_main_frames(low: u64, top: u64) -> Option<u64> {
    if !identity::is_main_thread() {
        return None;
    }
    // The word at `start_stack` is the argument count. The frame of `_start` ends directly above
    // it; the rest of the 64 bytes is a margin.
    let start = procfs::own_stat()?.start_stack.checked_add(64)? & !7;
    (low < start && start < top).then_some(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stack_bounds_contain_a_local_of_the_thread() {
        std::thread::Builder::new()
            .stack_size(256 << 10)
            .spawn(|| {
                let local = 0u8;
                let here = &raw const local as u64;
                let bounds = current_stack_bounds().expect("bounds");
                assert!(
                    bounds.low < here && here < bounds.top,
                    "{bounds:x?} {here:x}"
                );
                assert!(
                    (256 << 10..512 << 10).contains(&(bounds.top - bounds.low)),
                    "{bounds:x?}"
                );
            })
            .expect("spawn")
            .join()
            .expect("thread");
    }
}
