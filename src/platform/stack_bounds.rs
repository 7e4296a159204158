//! Where a thread's stack begins and ends, as the system says.

use crate::platform::{identity, procfs};

/// The addresses from `low` to `top` are the thread's stack; `top` is its oldest end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StackBounds {
    pub(crate) low: u64,
    pub(crate) top: u64,
}

impl StackBounds {
    pub(crate) fn bytes(self) -> usize {
        (self.top - self.low) as usize
    }
}

/// The calling thread's; `None` when the C library cannot tell. A few microseconds; reads files on the main thread.
pub(crate) fn current_stack_bounds() -> Option<StackBounds> {
    // SAFETY: `pthread_getattr_np` fills the attributes, which lie on this stack, and allocates what
    // `pthread_attr_destroy` frees; the out-pointers are to locals.
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
        top: first_frame_of_main(low, top).unwrap_or(top),
    })
}

/// Above the main thread's first frame lie the arguments and the environment, which can be long and hold no frame.
fn first_frame_of_main(low: u64, top: u64) -> Option<u64> {
    if !identity::is_main_thread() {
        return None;
    }
    // The word at the start is the count of arguments; the frame of `_start` ends right there.
    let start = procfs::own_stat()?.start_stack.checked_add(64)? & !7;
    (low < start && start < top).then_some(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_lies_within_the_bounds_of_its_thread() {
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
                    (256 << 10..512 << 10).contains(&bounds.bytes()),
                    "{bounds:x?}"
                );
            })
            .expect("spawn")
            .join()
            .expect("thread");
    }
}
