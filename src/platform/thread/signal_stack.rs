//! Alternate signal stacks: memory on which a thread's signal handlers run if they ask for it.
//!
//! **Contract** (cited below):
//! - *ours*: the region is created here. It is unmapped only when the kernel no longer has it as the
//!   signal stack of a thread, and no code can restore it: the thread has ended, or nothing has
//!   replaced it.
//! - *owned*: each entry of a list of stacks is a leaked box, which the list alone refers to. Who
//!   takes the first entry owns all that it leads to.

use std::io;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicPtr, Ordering};

use nix::errno::Errno;
use nix::sys::mman::{ProtFlags, mprotect};
use nix::unistd::{SysconfVar, sysconf};

use crate::platform::identity::{
    current_process_id, current_thread_id, is_main_thread, thread_has_ended,
};
use crate::platform::memory::mapping::LazyRegion;
use crate::types::{ProcessId, ThreadId};

/// Size, in bytes, of the stack for a thread without one. It has space for a handler of the
/// application and for the profiler's, which interrupts it, each with the registers of every x86_64
/// processor.
const SMALLEST_BYTES: usize = 64 << 10;
/// Stack that the profiler's handler needs in addition to the kernel's frame, in bytes: it uses
/// less than 3 KiB in a debug build.
const HANDLER_BYTES: usize = 4 << 10;
/// Size of the kernel's frame where it does not report one, in bytes: `MINSIGSTKSZ`.
const SMALLEST_FRAME_BYTES: usize = 2048;

/// Maximum number of threads that an installation asks for: some microseconds. More than one, so
/// that the list of stacks of ended threads gets shorter.
const MAX_ASKED: usize = 8;

/// Stacks that other code of their threads has replaced, and may restore.
static REPLACED: StackList = StackList(AtomicPtr::new(std::ptr::null_mut()));

/// An alternate signal stack of the calling thread, until it is dropped there.
#[derive(Debug)]
pub(crate) struct SignalStack {
    /// `None` only while the value is dropped.
    memory: Option<Box<StackMemory>>,
    /// The signal stack that was replaced, if any.
    before: Option<libc::stack_t>,
    not_send: PhantomData<*const ()>,
}

impl SignalStack {
    /// Gives the calling thread a signal stack if it has none, or one that is too small for the
    /// profiler's handler: the kernel kills a process whose frame does not fit. Returns `None` if the
    /// thread's own is large enough, or if the system has no memory. Cost: one system call, or six;
    /// and two for each of at most [`MAX_ASKED`] threads whose own code has replaced such a stack.
    pub(crate) fn install_if_needed() -> Option<Self> {
        // `std::process::exit` on another thread unmaps the stack that the standard library has given
        // to the main thread, which may run on. The kernel kills a process whose frame lies there.
        let may_be_unmapped =
            |stack: libc::stack_t| is_main_thread() && stack.ss_size <= SMALLEST_BYTES;
        let is_enough = |stack: libc::stack_t| {
            stack.ss_size >= frame_bytes() + HANDLER_BYTES && !may_be_unmapped(stack)
        };
        let before = current().ok()?;
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
        REPLACED.unmap_of_ended_threads();
        let memory = Box::new(StackMemory {
            region,
            process: current_process_id(),
            thread: current_thread_id(),
            next: std::ptr::null_mut(),
        });
        // SAFETY: *ours*: the memory is mapped as long as the kernel has it.
        let before = unsafe { exchange(&stack) }?;
        Ok(Self {
            memory: Some(memory),
            before,
            not_send: PhantomData,
        })
    }
}

/// Gives the calling thread, which is the main one, a signal stack for good, unless it has one.
///
/// For a program whose standard library has not begun. The standard library keeps a stack that it
/// finds, and reports the overflow of the thread's own stack on it.
pub(crate) fn install_lasting_signal_stack() {
    let has_none = matches!(current(), Ok(None));
    // Larger than the smallest one, so that `install_if_needed` keeps it, too.
    if has_none && let Ok(stack) = SignalStack::install(SMALLEST_BYTES + page_bytes()) {
        std::mem::forget(stack);
    }
}

impl Drop for SignalStack {
    fn drop(&mut self) {
        let Some(memory) = self.memory.take() else {
            return;
        };
        let own = memory.region.start().as_ptr().addr() + page_bytes();
        let is_current = matches!(current(), Ok(Some(stack)) if stack.ss_sp.addr() == own);
        // SAFETY: a disabled stack is not used, and the earlier one was in use when it was replaced.
        let is_unused = is_current && unsafe { exchange(&self.before.unwrap_or(DISABLED)) }.is_ok();
        if !is_unused {
            REPLACED.add(memory);
        }
    }
}

/// The memory of a stack, the thread that it was installed on, and the next entry of a list.
#[derive(Debug)]
struct StackMemory {
    region: LazyRegion,
    process: ProcessId,
    thread: ThreadId,
    next: *mut StackMemory,
}

impl StackMemory {
    /// Returns whether the thread may still use the stack. In the child of a fork, the only thread
    /// has another id than in the parent, so the parent's stacks stay.
    fn may_be_used(&self) -> bool {
        self.process != current_process_id() || !thread_has_ended(self.process, self.thread)
    }
}

/// A list of stacks that waits for no other thread, so that a fork never finds it locked. A fork may
/// find it empty while a thread goes through it; those stacks then stay mapped in the child.
struct StackList(AtomicPtr<StackMemory>);

impl StackList {
    fn add(&self, memory: Box<StackMemory>) {
        let memory = Box::into_raw(memory);
        // SAFETY: *owned*: one leaked box.
        unsafe { self.add_all(memory, memory) };
    }

    /// Adds the entries from `first` to `last`.
    ///
    /// # Safety
    /// - *owned*: the caller owns these entries.
    unsafe fn add_all(&self, first: *mut StackMemory, last: *mut StackMemory) {
        let mut next = self.0.load(Ordering::Relaxed);
        loop {
            // SAFETY: by this function's contract.
            unsafe { (*last).next = next };
            let (success, failure) = (Ordering::Release, Ordering::Relaxed);
            match self.0.compare_exchange(next, first, success, failure) {
                Ok(_) => return,
                Err(newer) => next = newer,
            }
        }
    }

    /// Asks for the threads of some stacks, and unmaps those of ended threads. Other calls ask for
    /// the other stacks' threads. Returns the number of unmapped stacks.
    fn unmap_of_ended_threads(&self) -> usize {
        if self.0.load(Ordering::Relaxed).is_null() {
            return 0;
        }
        let mut first = self.0.swap(std::ptr::null_mut(), Ordering::Acquire);
        let mut unmapped = 0;
        for _ in 0..MAX_ASKED {
            if first.is_null() {
                return unmapped;
            }
            // SAFETY: *owned*: the swap has taken the entries.
            let memory = unsafe { Box::from_raw(first) };
            first = memory.next;
            if memory.may_be_used() {
                self.add(memory);
            } else {
                unmapped += 1;
            }
        }
        // The remaining entries go before the checked ones.
        let mut last = first;
        // SAFETY: *owned*: the swap has taken the entries.
        while let Some(next) = unsafe { last.as_ref() }.map(|last| last.next) {
            if next.is_null() {
                // SAFETY: *owned*, as above.
                unsafe { self.add_all(first, last) };
                break;
            }
            last = next;
        }
        unmapped
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
fn current() -> nix::Result<Option<libc::stack_t>> {
    // SAFETY: changes no stack.
    unsafe { exchange(std::ptr::null()) }
}

/// Sets the calling thread's signal stack, unless `stack` is null, and returns the one before.
///
/// # Safety
/// - A stack that is not disabled is mapped for as long as the kernel has it.
unsafe fn exchange(stack: *const libc::stack_t) -> nix::Result<Option<libc::stack_t>> {
    let mut before = DISABLED;
    // SAFETY: the out-pointer is to a local; by this function's contract.
    Errno::result(unsafe { libc::sigaltstack(stack, &mut before) })?;
    // The kernel reports a stack in use by a flag; it can only be set again without it.
    before.ss_flags &= !libc::SS_ONSTACK;
    let has_stack = before.ss_flags & libc::SS_DISABLE == 0;
    Ok(has_stack.then_some(before))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size() -> usize {
        let stack = current().expect("a query");
        stack.map_or(0, |stack| stack.ss_size)
    }

    #[test]
    fn signal_stack_is_replaced_until_the_drop() {
        let by_std = size();
        assert!(by_std > 0);
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
        let by_std = unsafe { exchange(&DISABLED) }.expect("disabled");
        let stack = SignalStack::install_if_needed().expect("a stack");
        assert_eq!(size(), SMALLEST_BYTES);
        drop(stack);
        assert_eq!(size(), 0);
        // SAFETY: the standard library's stack is mapped until the thread ends.
        unsafe { exchange(&by_std.expect("a stack")) }.expect("restored");
    }

    #[test]
    fn signal_stack_is_kept_if_it_has_space_for_the_handler() {
        let enough = frame_bytes() + HANDLER_BYTES;
        for (bytes, is_kept) in [(enough, true), (enough - 1, false), (frame_bytes(), false)] {
            let region = LazyRegion::reserve(bytes).expect("memory");
            let stack = libc::stack_t {
                ss_sp: region.start().as_ptr().cast(),
                ss_flags: 0,
                ss_size: bytes,
            };
            // SAFETY: the memory is mapped until the standard library's stack is restored.
            let by_std = unsafe { exchange(&stack) }.expect("set");
            let larger = SignalStack::install_if_needed();
            assert_eq!(larger.is_none(), is_kept, "{bytes} bytes");
            assert_eq!(size(), if is_kept { bytes } else { SMALLEST_BYTES });
            drop(larger);
            assert_eq!(size(), bytes);
            // SAFETY: the standard library's stack is mapped until the thread ends.
            unsafe { exchange(&by_std.expect("a stack")) }.expect("restored");
        }
    }

    #[test]
    fn replaced_stack_is_unmapped_after_its_thread_has_ended() {
        const ENDED: usize = 2 * MAX_ASKED + 1;
        /// Id that no thread has, so that no thread of another test gets it: the kernel's ids end
        /// at 4,194,304.
        const ENDED_ID: ThreadId = ThreadId::from_number(i32::MAX);
        let list = StackList(AtomicPtr::new(std::ptr::null_mut()));
        let add = |thread| {
            list.add(Box::new(StackMemory {
                region: LazyRegion::reserve(1).expect("memory"),
                process: current_process_id(),
                thread,
                next: std::ptr::null_mut(),
            }));
        };
        assert_eq!(list.unmap_of_ended_threads(), 0);
        (0..ENDED).for_each(|_| add(ENDED_ID));
        // These are asked for first, and then stay behind the others.
        (0..MAX_ASKED).for_each(|_| add(current_thread_id()));
        let unmapped = [(); 5].map(|()| list.unmap_of_ended_threads());
        assert_eq!(unmapped, [0, MAX_ASKED, MAX_ASKED, 1, 0]);
    }
}
