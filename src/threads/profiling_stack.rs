//! The label stack of a thread, labels and script frames: pushed and popped by it, copied by its own signal handler.
//!
//! Only the thread itself touches it, in its code or in a handler that interrupts that code at any instruction and runs
//! to its end before the code goes on. So there is no other thread to order with, only the compiler. The sampler reads the
//! stack of a thread that sleeps from outside, as bytes that may be anything (`outside_capture.rs`).
//!
//! Runs in the signal handler: [`ProfilingStack::contents_in_handler`].
//!
//! **Contract** (cited below):
//! - *own thread*: the stack is a thread-local without a destructor (`thread_labels.rs`); its cells are read and written on
//!   its thread alone;
//! - *asked before*: memory is asked for before a place is taken, for the allocator may be the host's, and push and pop
//!   labels itself; what was read before is read again after, and what finds no room then is left out;
//! - *chained*: the depth of texts is at most the depth, or the depth is just about to follow; the frame that it counts
//!   last has a text, and leads to the one before;
//! - *published last*: a frame or a text is written after the depth or the length was lowered to its place and before it
//!   is raised to cover it, and a grown array is filled before its address replaces the old one's, with compiler fences
//!   between; the handler reads the depth first and the address after;
//! - *one store*: the only change to a frame below the depth is that of a script frame's position, one aligned number;
//!   what a label has there nobody reads;
//! - *numbers only*: a [`LabelToken`] holds a depth, and a pop can only lower it; so a token that is forgotten, or used
//!   late or out of order, at worst removes labels. The length of the texts follows from the labels that are left.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, Ordering, compiler_fence};

use crate::base::{FrameFlags, ProfilingCategoryPair, cut_at_character};
use crate::threads::growing_array::GrowingArray;
use crate::threads::profiling_stack_frame::{ProfilingStackFrame, ScriptPlace, TextPlace};

/// A dynamic string is cut to this many bytes, at a character.
const MAX_DYNAMIC_BYTES: usize = 512;
const FIRST_FRAMES: u32 = 32;
const FIRST_TEXT_BYTES: u32 = 512;
/// What is deeper was most likely forgotten, and is left out: by its 48 bytes a frame, the stack would take all memory.
const MOST_FRAMES: u32 = 1 << 20;
/// A text that finds no room is left out of its label.
const MOST_TEXT_BYTES: u32 = 64 << 20;

/// The label stack of one thread.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ProfilingStack {
    frames: GrowingArray<ProfilingStackFrame>,
    text: GrowingArray<u8>,
    depth: AtomicU32,
    text_bytes: AtomicU32,
    /// How deep the stack is up to the newest frame with a text; 0 where there is none.
    text_depth: AtomicU32,
}

/// What a pop goes back to, and where a script frame stands.
#[derive(Debug)]
pub(crate) struct LabelToken {
    depth: u32,
    own_thread: PhantomData<*const ()>,
}

impl LabelToken {
    /// Of a push that found no stack.
    const NONE: Self = Self {
        depth: u32::MAX,
        own_thread: PhantomData,
    };
}

impl ProfilingStack {
    pub(super) const fn new() -> Self {
        Self {
            frames: GrowingArray::closed(),
            text: GrowingArray::closed(),
            depth: AtomicU32::new(0),
            text_bytes: AtomicU32::new(0),
            text_depth: AtomicU32::new(0),
        }
    }

    /// Gives it its memory, if it has none.
    pub(super) fn open(&self) {
        self.frames.grow(FIRST_FRAMES, MOST_FRAMES);
        self.text.grow(FIRST_TEXT_BYTES, MOST_TEXT_BYTES);
    }

    /// Takes the memory back. Tokens that are still around do nothing from then on.
    pub(super) fn close(&self) {
        self.depth.store(0, Ordering::Relaxed);
        self.text_bytes.store(0, Ordering::Relaxed);
        self.text_depth.store(0, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        self.frames.close();
        self.text.close();
    }

    /// Pushes a label; nothing while the stack is closed, as all the others here.
    #[inline(always)]
    pub(super) fn push(
        &self,
        stack_address: u64,
        label: &'static str,
        category: ProfilingCategoryPair,
        flags: FrameFlags,
    ) -> LabelToken {
        let Some((depth, frame)) = self.next_frame() else {
            return LabelToken::NONE;
        };
        // SAFETY: *own thread*: a frame of the array, not below the depth.
        unsafe { write_label(frame, stack_address, label, category, flags) };
        self.cover(depth)
    }

    /// The same with a text that is copied.
    #[inline(never)]
    pub(super) fn push_with_text(
        &self,
        stack_address: u64,
        label: &'static str,
        category: ProfilingCategoryPair,
        flags: FrameFlags,
        dynamic: &str,
    ) -> LabelToken {
        let dynamic = cut_at_character(dynamic, MAX_DYNAMIC_BYTES);
        self.make_room_for_text(dynamic.len() as u32);
        let Some((depth, frame)) = self.next_frame() else {
            return LabelToken::NONE;
        };
        // SAFETY: *own thread*: a frame of the array, not below the depth.
        unsafe { write_label(frame, stack_address, label, category, flags) };
        if let Some(text) = self.push_text(dynamic) {
            // SAFETY: as above.
            unsafe {
                (*frame).has_text = 1;
                (*frame).text = text;
            }
            self.text_depth.store(depth + 1, Ordering::Relaxed);
        }
        self.cover(depth)
    }

    /// Pushes a script frame.
    #[inline(always)]
    pub(super) fn push_script(&self, stack_address: u64, place: ScriptPlace) -> LabelToken {
        let Some((depth, frame)) = self.next_frame() else {
            return LabelToken::NONE;
        };
        // SAFETY: *own thread*: a frame of the array, not below the depth.
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
        self.cover(depth)
    }

    /// Changes the position of the script frame of this push.
    #[inline(always)]
    pub(super) fn move_script(&self, token: &LabelToken, position: u64) {
        if self.depth.load(Ordering::Relaxed) > token.depth {
            // SAFETY: *own thread*, and the frame is below the depth. Whatever frame it is by now: *one store*.
            unsafe {
                let frame = self.frames.start().add(token.depth as usize);
                (&raw mut (*frame).position).write_volatile(position);
            }
        }
    }

    /// The newest frame is written.
    #[inline(always)]
    fn cover(&self, depth: u32) -> LabelToken {
        compiler_fence(Ordering::SeqCst);
        self.depth.store(depth + 1, Ordering::Relaxed);
        LabelToken {
            depth,
            own_thread: PhantomData,
        }
    }

    /// The place above the newest frame; `None` when the stack is closed, at its end, or in its allocator.
    #[inline(always)]
    fn next_frame(&self) -> Option<(u32, *mut ProfilingStackFrame)> {
        let mut depth = self.depth.load(Ordering::Relaxed);
        let capacity = self.frames.capacity();
        if depth >= capacity {
            rarely();
            if capacity == 0 || !self.make_room_for_frame(depth) {
                return None;
            }
            depth = self.depth.load(Ordering::Relaxed);
        }
        // SAFETY: *own thread*, and `depth` is below the capacity of the array at this address.
        Some((depth, unsafe { self.frames.start().add(depth as usize) }))
    }

    #[cold]
    #[inline(never)]
    fn make_room_for_frame(&self, depth: u32) -> bool {
        self.frames.grow(depth + 1, MOST_FRAMES);
        // *Asked before*: so much for what was true when it was called.
        self.depth.load(Ordering::Relaxed) < self.frames.capacity()
    }

    fn make_room_for_text(&self, bytes: u32) {
        let end = self.text_bytes.load(Ordering::Relaxed) + bytes;
        let capacity = self.text.capacity();
        if end > capacity && capacity > 0 {
            self.text.grow(end, MOST_TEXT_BYTES);
        }
    }

    /// Copies the text behind the others; `None` where there is no room for it, or it is empty.
    fn push_text(&self, dynamic: &str) -> Option<TextPlace> {
        let (start, bytes) = (
            self.text_bytes.load(Ordering::Relaxed),
            dynamic.len() as u32,
        );
        let end = start + bytes;
        if bytes == 0 || end > self.text.capacity() {
            return None;
        }
        // SAFETY: *own thread*, and the area has room up to `end`.
        unsafe {
            let target = self.text.start().add(start as usize);
            std::ptr::copy_nonoverlapping(dynamic.as_ptr(), target, dynamic.len());
        }
        compiler_fence(Ordering::SeqCst);
        self.text_bytes.store(end, Ordering::Relaxed);
        Some(TextPlace {
            start,
            bytes,
            depth_before: self.text_depth.load(Ordering::Relaxed),
        })
    }

    /// Goes back to what was there before the push.
    #[inline(always)]
    pub(super) fn pop_to(&self, token: &LabelToken) {
        if self.depth.load(Ordering::Relaxed) > token.depth {
            self.depth.store(token.depth, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
            if self.text_depth.load(Ordering::Relaxed) > token.depth {
                self.pop_texts(token.depth);
            }
        }
    }

    /// Goes back to where the oldest of the texts above this depth began.
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

    /// The frames and the texts, as a handler that interrupts the thread finds them.
    ///
    /// # Safety
    /// - Called on the stack's own thread, in a signal handler or where no push can come between; the slices are not
    ///   used once the handler has returned.
    pub(crate) unsafe fn contents_in_handler(&self) -> (&[ProfilingStackFrame], &[u8]) {
        let depth = self.depth.load(Ordering::Relaxed) as usize;
        let text_bytes = self.text_bytes.load(Ordering::Relaxed) as usize;
        compiler_fence(Ordering::SeqCst);
        let (frames, text) = (self.frames.start(), self.text.start());
        if frames.is_null() || text.is_null() {
            return (&[], &[]);
        }
        // SAFETY: *published last*: what lies below these lengths is written, in whichever array stands there now.
        unsafe {
            (
                std::slice::from_raw_parts(frames, depth),
                std::slice::from_raw_parts(text, text_bytes),
            )
        }
    }
}

/// Has the compiler lay out the code so that what does not come here is a straight line.
#[cold]
const fn rarely() {}

/// # Safety
/// - The frame is of this thread's array, and no handler reads it yet.
#[inline(always)]
unsafe fn write_label(
    frame: *mut ProfilingStackFrame,
    stack_address: u64,
    label: &'static str,
    category: ProfilingCategoryPair,
    flags: FrameFlags,
) {
    let (category, subcategory) = category.indices();
    // SAFETY: by this function's contract. A script's place stays as it is: see *one store*.
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

/// What another thread's stack was, read from outside: see [`crate::threads`]'s slots. The same fields in the same order.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct StackFromOutside {
    pub(super) frames: u64,
    frames_capacity: u64,
    pub(super) text: u64,
    text_capacity: u64,
    pub(super) depth: u32,
    text_bytes: u32,
    text_depth: u32,
}
const _: () = assert!(
    size_of::<StackFromOutside>() == size_of::<ProfilingStack>()
        && std::mem::offset_of!(StackFromOutside, depth)
            == std::mem::offset_of!(ProfilingStack, depth)
        && std::mem::offset_of!(StackFromOutside, text)
            == std::mem::offset_of!(ProfilingStack, text)
);

#[cfg(test)]
#[path = "profiling_stack_tests.rs"]
mod tests;
