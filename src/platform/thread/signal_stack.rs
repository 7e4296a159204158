//! Alternate signal stacks: memory on which a thread's signal handlers run if they ask for it.
//!
//! **Contract** (cited below):
//! - *ours*: the region is created here. It is unmapped only when the kernel no longer has it as
//!   the signal stack of a thread.

use std::io;
use std::marker::PhantomData;

use nix::errno::Errno;
use nix::sys::mman::{ProtFlags, mprotect};
use nix::unistd::{SysconfVar, sysconf};

use crate::platform::memory::LazyRegion;

/// Size, in bytes, of the stack for a thread without one. It has space for a handler of the
/// application and for the profiler's, which interrupts it, each with the registers of every x86_64
/// processor.
const SMALLEST_BYTES: usize = 64 << 10;
/// Stack that the profiler's handler needs in addition to the kernel's frame, in bytes: it uses
/// less than 3 KiB in a debug build.
const HANDLER_BYTES: usize = 4 << 10;
/// Size of the kernel's frame where it does not report one, in bytes: `MINSIGSTKSZ`.
const SMALLEST_FRAME_BYTES: usize = 2048;

/// An alternate signal stack of the calling thread, until it is dropped there.
#[derive(Debug)]
pub(crate) struct SignalStack {
    /// `None` only while the value is dropped.
    region: Option<LazyRegion>,
    before: Before,
    not_send: PhantomData<*const ()>,
}

/// The signal stack that another one replaced, if there was one.
#[derive(Clone, Copy, Debug)]
struct Before(Option<libc::stack_t>);

impl SignalStack {
    /// Gives the calling thread a signal stack if it has none, or one that is too small for the
    /// profiler's handler: the kernel kills a process whose frame does not fit. Returns `None` if
    /// the thread's own is large enough, or if the system has no memory. Cost: one system call, or
    /// four.
    pub(crate) fn install_if_needed() -> Option<Self> {
        let is_enough = |stack: libc::stack_t| stack.ss_size >= frame_bytes() + HANDLER_BYTES;
        let before = current().ok()?.0;
        if before.is_some_and(is_enough) {
            return None;
        }
        Self::install(0).ok()
    }

    /// Gives the calling thread a signal stack of at least `bytes` bytes.
    ///
    /// # Errors
    /// The system's error, for example because the caller runs on a signal stack.
    pub(crate) fn install(bytes: usize) -> io::Result<Self> {
        let bytes = bytes.max(SMALLEST_BYTES);
        let no_memory = || io::Error::from(io::ErrorKind::OutOfMemory);
        let guard_bytes = page_bytes();
        let length = bytes.checked_add(guard_bytes).ok_or_else(no_memory)?;
        let region = LazyRegion::reserve(length).ok_or_else(no_memory)?;
        // SAFETY: *ours*: nothing uses the region yet.
        unsafe { mprotect(region.start().cast(), guard_bytes, ProtFlags::PROT_NONE) }?;
        // SAFETY: *ours*: the range lies in the region.
        let start = unsafe { region.start().as_ptr().add(guard_bytes) };
        let stack = libc::stack_t {
            ss_sp: start.cast(),
            ss_flags: 0,
            ss_size: bytes,
        };
        // SAFETY: *ours*: the memory is mapped as long as the kernel has it.
        let before = unsafe { exchange(&stack) }?;
        Ok(Self {
            region: Some(region),
            before,
            not_send: PhantomData,
        })
    }
}

impl Drop for SignalStack {
    fn drop(&mut self) {
        let Some(region) = self.region.take() else {
            return;
        };
        let own = region.start().as_ptr().addr() + page_bytes();
        let is_unused = match current() {
            Ok(Before(Some(stack))) if stack.ss_sp.addr() == own => {
                // SAFETY: a disabled stack is not used, and the earlier one was in use when it was
                // replaced.
                unsafe { exchange(&self.before.0.unwrap_or(DISABLED)) }.is_ok()
            }
            Ok(Before(None)) => true,
            // Other code has replaced the stack, and may restore it.
            _ => false,
        };
        if !is_unused {
            std::mem::forget(region);
        }
    }
}

/// Returns the size of a page, in bytes: that of the guard page below a stack.
fn page_bytes() -> usize {
    let reported = sysconf(SysconfVar::PAGE_SIZE).ok().flatten();
    reported.map_or(4096, |bytes| bytes as usize)
}

/// Returns the maximum size of the kernel's frame on this machine, in bytes.
fn frame_bytes() -> usize {
    /// `AT_MINSIGSTKSZ`.
    const FRAME_SIZE: libc::c_ulong = 51;
    // SAFETY: reads the auxiliary vector.
    let reported = unsafe { libc::getauxval(FRAME_SIZE) } as usize;
    reported.max(SMALLEST_FRAME_BYTES)
}

const DISABLED: libc::stack_t = libc::stack_t {
    ss_sp: std::ptr::null_mut(),
    ss_flags: libc::SS_DISABLE,
    ss_size: 0,
};

/// Returns the calling thread's signal stack.
fn current() -> nix::Result<Before> {
    // SAFETY: changes no stack.
    unsafe { exchange(std::ptr::null()) }
}

/// Sets the calling thread's signal stack, unless `stack` is null, and returns the one before.
///
/// # Safety
/// - A stack that is not disabled is mapped for as long as the kernel has it.
unsafe fn exchange(stack: *const libc::stack_t) -> nix::Result<Before> {
    let mut before = DISABLED;
    // SAFETY: the out-pointer is to a local; by this function's contract.
    Errno::result(unsafe { libc::sigaltstack(stack, &mut before) })?;
    // The kernel reports a stack in use by a flag; it can only be set again without it.
    before.ss_flags &= !libc::SS_ONSTACK;
    let has_stack = before.ss_flags & libc::SS_DISABLE == 0;
    Ok(Before(has_stack.then_some(before)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size() -> usize {
        let stack = current().expect("a query").0;
        stack.map_or(0, |stack| stack.ss_size)
    }

    #[test]
    fn signal_stack_is_replaced_until_the_drop() {
        let by_std = size();
        assert!(by_std > 0 && SignalStack::install_if_needed().is_none());
        let larger = SignalStack::install(100_000).expect("a stack");
        let nested = SignalStack::install(0).expect("a stack");
        assert_eq!(size(), SMALLEST_BYTES);
        drop(nested);
        assert_eq!(size(), 100_000);
        drop(larger);
        assert_eq!(size(), by_std);
    }

    #[test]
    fn thread_without_signal_stack_gets_one() {
        // SAFETY: disables the stack, which nothing uses now.
        let by_std = unsafe { exchange(&DISABLED) }.expect("disabled").0;
        let stack = SignalStack::install_if_needed().expect("a stack");
        assert_eq!(size(), SMALLEST_BYTES);
        drop(stack);
        assert_eq!(size(), 0);
        // One that only has space for the frame is replaced, too.
        let small = LazyRegion::reserve(frame_bytes()).expect("memory");
        let place = libc::stack_t {
            ss_sp: small.start().as_ptr().cast(),
            ss_flags: 0,
            ss_size: small.bytes(),
        };
        // SAFETY: the memory is mapped until the standard library's stack is restored.
        unsafe { exchange(&place) }.expect("set");
        let stack = SignalStack::install_if_needed().expect("a stack");
        assert_eq!(size(), SMALLEST_BYTES);
        drop(stack);
        assert_eq!(size(), frame_bytes());
        // SAFETY: the standard library's stack is mapped until the thread ends.
        unsafe { exchange(&by_std.expect("a stack")) }.expect("restored");
    }
}
