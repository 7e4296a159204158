//! The label stack of a thread, with labels and script frames. The thread pushes and pops them, and
//! its signal handler copies them.
//!
//! Only the thread itself accesses the stack: in its code, or in a handler that interrupts this
//! code at any instruction and finishes before the code continues. So accesses are ordered against
//! the compiler, not against other threads. The sampler also reads the stack of a blocked thread
//! remotely, as bytes that may have any value (`remote_capture.rs`).
//!
//! Runs in the signal handler: [`ProfilingStack::contents_in_handler`] and
//! [`ProfilingStack::context_in_handler`].
//!
//! **Contract** (cited below):
//! - *own thread*: the stack is a thread-local without a destructor (`thread_labels.rs`); its cells
//!   are read and written only on its thread;
//! - *asked before*: memory is requested before an index is chosen, because the allocator may be
//!   the application's and may push and pop labels. Values that were read before the request are
//!   read again after it. A frame or text that finds no space then is left out;
//! - *chained*: `text_depth` is at most `depth`, or `depth` is about to be raised to it. The frame
//!   at `text_depth - 1` has a text, and links to the next older frame with a text;
//! - *published last*: a frame or text is written while the depth or length does not include it;
//!   then the depth or length is raised. A grown array is filled before its address replaces the
//!   old one. Compiler fences separate the steps. The handler reads the depth first, and the
//!   address after it;
//! - *one store*: of a frame below the depth, only the position of a script frame changes, by one
//!   aligned store. The position of a label is never used;
//! - *numbers only*: a [`LabelToken`] holds a depth, and a pop can only lower the depth. So a token
//!   that is leaked, used late or used out of order at worst removes labels. The length of the
//!   texts follows from the labels that remain.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, compiler_fence};

use once_cell::race::OnceBox;

use crate::labels::growing_array::GrowingArray;
use crate::labels::profiling_stack_frame::{ProfilingStackFrame, ScriptLocation, TextRange};
use crate::labels::thread_context::{ContextCell, ContextWords, RemoteContext};
use crate::types::{FrameFlags, LabelOfOneThread, ProfilingCategoryPair};
use crate::util::cut_at_character;

/// Maximum length of a dynamic text, in bytes. A longer one is cut at a character boundary.
const MAX_DYNAMIC_BYTES: usize = 512;
const FIRST_FRAMES: u32 = 32;
const FIRST_TEXT_BYTES: u32 = 512;
/// Maximum depth, in frames. Deeper frames are left out: such a depth most likely comes from leaked
/// guards, and at 48 bytes per frame the stack would exhaust the memory.
const MAX_FRAMES: u32 = 1 << 20;
/// Maximum size of all texts, in bytes. A text that does not fit is left out of its label.
const MAX_TEXT_BYTES: u32 = 64 << 20;

/// The label stack of one thread.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ProfilingStack {
    frames: GrowingArray<ProfilingStackFrame>,
    text: GrowingArray<u8>,
    depth: AtomicU32,
    text_bytes: AtomicU32,
    /// Depth of the stack up to and including the newest frame with a text; 0 without such a frame.
    text_depth: AtomicU32,
    /// Fills what would be padding.
    unused: u32,
    context: ContextCell,
}

/// The depth before a push. A pop returns to it; for a script frame it is also the frame's index.
#[derive(Debug)]
pub(crate) struct LabelToken {
    depth: u32,
    of_one_thread: LabelOfOneThread,
}

/// Whether a push on a closed stack, and a context, call the hook: a session runs that records
/// every thread.
static CALLS_HOOK: AtomicBool = AtomicBool::new(false);

/// Called when a label is pushed on a closed stack, on that stack's thread.
static CLOSED_STACK_HOOK: OnceBox<fn()> = OnceBox::new();

/// Sets the function that is called when a label is pushed on a closed stack, if
/// [`call_closed_stack_hook`] asks for it. It may open the stack, and must do nothing if it is
/// called within itself. The first function stays.
pub(crate) fn set_closed_stack_hook(hook: fn()) {
    // A second one is dropped.
    let _ = CLOSED_STACK_HOOK.set(Box::new(hook));
}

/// Sets whether pushes on closed stacks call the hook. They cost a few instructions more then.
pub(crate) fn call_closed_stack_hook(calls: bool) {
    CALLS_HOOK.store(calls, Ordering::Relaxed);
}

impl LabelToken {
    /// Token of a push that was left out.
    const NONE: Self = Self {
        depth: u32::MAX,
        of_one_thread: PhantomData,
    };
}

impl ProfilingStack {
    pub(crate) const fn new() -> Self {
        Self {
            frames: GrowingArray::closed(),
            text: GrowingArray::closed(),
            depth: AtomicU32::new(0),
            text_bytes: AtomicU32::new(0),
            text_depth: AtomicU32::new(0),
            unused: 0,
            context: ContextCell::new(),
        }
    }

    /// Allocates the stack's memory if it has none.
    pub(crate) fn open(&self) {
        self.frames.grow(FIRST_FRAMES, MAX_FRAMES);
        self.text.grow(FIRST_TEXT_BYTES, MAX_TEXT_BYTES);
    }

    /// Frees the memory. Tokens that still exist have no effect from then on.
    pub(crate) fn close(&self) {
        self.depth.store(0, Ordering::Relaxed);
        self.text_bytes.store(0, Ordering::Relaxed);
        self.text_depth.store(0, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        self.frames.close();
        self.text.close();
    }

    /// Pushes a label. A push of any kind on a closed stack calls the hook, which may open it.
    /// Otherwise every push and pop does nothing while the stack is closed.
    #[inline(always)]
    pub(crate) fn push(
        &self,
        stack_address: u64,
        label: &'static str,
        category: ProfilingCategoryPair,
        flags: FrameFlags,
    ) -> LabelToken {
        let Some((depth, frame)) = self.next_frame() else {
            return LabelToken::NONE;
        };
        // SAFETY: *own thread*: the frame is in the array, and not below the depth.
        unsafe { write_label(frame, stack_address, label, category, flags) };
        self.publish(depth)
    }

    /// Pushes a label with a dynamic text, which is copied.
    #[inline(never)]
    pub(crate) fn push_with_text(
        &self,
        stack_address: u64,
        label: &'static str,
        category: ProfilingCategoryPair,
        flags: FrameFlags,
        dynamic: &str,
    ) -> LabelToken {
        let dynamic = cut_at_character(dynamic, MAX_DYNAMIC_BYTES);
        self.grow_text(dynamic.len() as u32);
        let Some((depth, frame)) = self.next_frame() else {
            return LabelToken::NONE;
        };
        // SAFETY: *own thread*: the frame is in the array, and not below the depth.
        unsafe { write_label(frame, stack_address, label, category, flags) };
        if let Some(text) = self.push_text(dynamic) {
            // SAFETY: as above.
            unsafe {
                (*frame).has_text = 1;
                (*frame).text = text;
            }
            self.text_depth.store(depth + 1, Ordering::Relaxed);
        }
        self.publish(depth)
    }

    /// Pushes a script frame.
    #[inline(always)]
    pub(crate) fn push_script(&self, stack_address: u64, place: ScriptLocation) -> LabelToken {
        let Some((depth, frame)) = self.next_frame() else {
            return LabelToken::NONE;
        };
        // SAFETY: *own thread*: the frame is in the array, and not below the depth.
        unsafe {
            (*frame).stack_address = stack_address;
            (*frame).label_bytes = 0;
            (*frame).category = 0;
            (*frame).subcategory = 0;
            (*frame).flags = FrameFlags::SCRIPT;
            (*frame).has_text = 0;
            (*frame).position = place.position;
            (*frame).function = place.function;
        }
        self.publish(depth)
    }

    /// Sets the position of the script frame that the push of `token` created.
    #[inline(always)]
    pub(crate) fn set_script_position(&self, token: &LabelToken, position: u64) {
        if self.depth.load(Ordering::Relaxed) > token.depth {
            // SAFETY: *own thread*, and the frame is below the depth. If another frame has taken
            // its place: *one store*.
            unsafe {
                let frame = self.frames.start().add(token.depth as usize);
                (&raw mut (*frame).position).write_volatile(position);
            }
        }
    }

    /// Sets the thread's context, and returns the one before. On a closed stack, calls the hook,
    /// which may open it.
    #[inline(always)]
    pub(crate) fn replace_context(&self, context: ContextWords) -> ContextWords {
        if self.frames.capacity() == 0 && CALLS_HOOK.load(Ordering::Relaxed) {
            call_hook();
        }
        self.context.replace(context)
    }

    /// Returns the thread's context, as a handler that interrupts the thread finds it.
    pub(crate) fn context_in_handler(&self) -> ContextWords {
        self.context.read_in_handler()
    }

    /// Raises the depth to include the frame just written.
    #[inline(always)]
    fn publish(&self, depth: u32) -> LabelToken {
        compiler_fence(Ordering::SeqCst);
        self.depth.store(depth + 1, Ordering::Relaxed);
        LabelToken {
            depth,
            of_one_thread: PhantomData,
        }
    }

    /// Returns the index and address of the frame above the newest one; `None` when the stack is
    /// closed, full, or growing.
    #[inline(always)]
    fn next_frame(&self) -> Option<(u32, *mut ProfilingStackFrame)> {
        let mut depth = self.depth.load(Ordering::Relaxed);
        let capacity = self.frames.capacity();
        if depth >= capacity {
            cold_path();
            // Without a session, a label of a thread that has not registered costs no call.
            if (capacity == 0 && !CALLS_HOOK.load(Ordering::Relaxed)) || !self.make_room(depth) {
                return None;
            }
            depth = self.depth.load(Ordering::Relaxed);
        }
        // SAFETY: *own thread*, and `depth` is below the capacity of the array at this address.
        Some((depth, unsafe { self.frames.start().add(depth as usize) }))
    }

    /// Makes room for one more frame. Returns false if the stack is closed or full, or if the
    /// system has no memory.
    #[cold]
    #[inline(never)]
    fn make_room(&self, depth: u32) -> bool {
        if self.frames.capacity() == 0 {
            call_hook();
        } else {
            self.frames.grow(depth + 1, MAX_FRAMES);
        }
        // *Asked before*: the depth may have changed during the allocation.
        self.depth.load(Ordering::Relaxed) < self.frames.capacity()
    }

    fn grow_text(&self, bytes: u32) {
        let end = self.text_bytes.load(Ordering::Relaxed) + bytes;
        let capacity = self.text.capacity();
        if end > capacity && capacity > 0 {
            self.text.grow(end, MAX_TEXT_BYTES);
        }
    }

    /// Copies the text behind the other texts. Returns `None` if it does not fit or is empty.
    fn push_text(&self, dynamic: &str) -> Option<TextRange> {
        let (start, bytes) = (
            self.text_bytes.load(Ordering::Relaxed),
            dynamic.len() as u32,
        );
        let end = start + bytes;
        if bytes == 0 || end > self.text.capacity() {
            return None;
        }
        // SAFETY: *own thread*, and the area reaches at least to `end`.
        unsafe {
            let target = self.text.start().add(start as usize);
            std::ptr::copy_nonoverlapping(dynamic.as_ptr(), target, dynamic.len());
        }
        compiler_fence(Ordering::SeqCst);
        self.text_bytes.store(end, Ordering::Relaxed);
        Some(TextRange {
            start,
            bytes,
            depth_before: self.text_depth.load(Ordering::Relaxed),
        })
    }

    /// Returns to the state before the push of `token`.
    #[inline(always)]
    pub(crate) fn pop_to(&self, token: &LabelToken) {
        if self.depth.load(Ordering::Relaxed) > token.depth {
            self.depth.store(token.depth, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
            if self.text_depth.load(Ordering::Relaxed) > token.depth {
                self.pop_texts(token.depth);
            }
        }
    }

    /// Removes the texts of the frames from this depth on.
    #[cold]
    #[inline(never)]
    fn pop_texts(&self, depth: u32) {
        let mut text_depth = self.text_depth.load(Ordering::Relaxed);
        let mut text_bytes = self.text_bytes.load(Ordering::Relaxed);
        while text_depth > depth {
            // SAFETY: *own thread* and *chained*.
            let text = unsafe { (*self.frames.start().add(text_depth as usize - 1)).text };
            (text_depth, text_bytes) = (text.depth_before, text.start);
        }
        self.text_depth.store(text_depth, Ordering::Relaxed);
        self.text_bytes.store(text_bytes, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
    }

    /// Returns the frames and the texts, as a handler that interrupts the thread finds them.
    ///
    /// # Safety
    /// - Called on the stack's own thread, in a signal handler or where no push can intervene; the
    ///   slices are not used after the handler has returned.
    pub(crate) unsafe fn contents_in_handler(&self) -> (&[ProfilingStackFrame], &[u8]) {
        let depth = self.depth.load(Ordering::Relaxed) as usize;
        let text_bytes = self.text_bytes.load(Ordering::Relaxed) as usize;
        compiler_fence(Ordering::SeqCst);
        let (frames, text) = (self.frames.start(), self.text.start());
        if frames.is_null() || text.is_null() {
            return (&[], &[]);
        }
        // SAFETY: *published last*: everything below these lengths is written, whichever array is
        // current.
        unsafe {
            (
                std::slice::from_raw_parts(frames, depth),
                std::slice::from_raw_parts(text, text_bytes),
            )
        }
    }
}

/// Calls the hook of closed stacks, which may open the stack.
#[cold]
#[inline(never)]
fn call_hook() {
    if let Some(hook) = CLOSED_STACK_HOOK.get() {
        hook();
    }
}

/// Marks the branch that calls it as unlikely, so that the compiler lays out the other path in a
/// straight line.
#[cold]
const fn cold_path() {}

/// Writes a label into a frame.
///
/// # Safety
/// - The frame is in this thread's array, and no handler reads it yet.
#[inline(always)]
unsafe fn write_label(
    frame: *mut ProfilingStackFrame,
    stack_address: u64,
    label: &'static str,
    category: ProfilingCategoryPair,
    flags: FrameFlags,
) {
    let (category, subcategory) = category.indices();
    // SAFETY: by this function's contract. The script location keeps its old value: see *one
    // store*.
    unsafe {
        (*frame).stack_address = stack_address;
        (*frame).label_address = label.as_ptr().expose_provenance() as u64;
        (*frame).label_bytes = label.len() as u32;
        (*frame).category = category;
        (*frame).subcategory = subcategory;
        (*frame).flags = flags;
        (*frame).has_text = 0;
    }
}

/// A [`ProfilingStack`] of another thread, read remotely (`remote_capture.rs`). Has the layout of
/// that type.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct RemoteStack {
    pub(crate) frames: u64,
    frames_capacity: u64,
    pub(crate) text: u64,
    text_capacity: u64,
    pub(crate) depth: u32,
    text_bytes: u32,
    text_depth: u32,
    unused: u32,
    pub(crate) context: RemoteContext,
}
const _: () = assert!(
    size_of::<RemoteStack>() == size_of::<ProfilingStack>()
        && std::mem::offset_of!(RemoteStack, depth) == std::mem::offset_of!(ProfilingStack, depth)
        && std::mem::offset_of!(RemoteStack, text) == std::mem::offset_of!(ProfilingStack, text)
        && std::mem::offset_of!(RemoteStack, context)
            == std::mem::offset_of!(ProfilingStack, context)
);

#[cfg(test)]
#[path = "profiling_stack_tests.rs"]
mod tests;
