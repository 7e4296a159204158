//! The label stack of a thread, labels and script frames: pushed and popped by it, copied by its own signal handler.
//!
//! Only the thread itself touches it, in its code or in a handler that interrupts that code at any instruction and runs
//! to its end before the code goes on. So there is no other thread to order with, only the compiler. The sampler reads the
//! stack of a thread that sleeps from outside, as bytes that may be anything (`outside_capture.rs`).
//!
//! **Contract** (cited below):
//! - *own thread*: the stack is a thread-local without a destructor; its cells are read and written on its thread alone;
//! - *published last*: a frame or a text is written after the depth or the length was lowered to its place and before it
//!   is raised to cover it, and a grown array is filled before its address replaces the old one's, with compiler fences
//!   between; the handler reads the depth first and the address after;
//! - *one store*: the only change to a frame below the depth is that of a script frame's position, one aligned number;
//!   what a label has there nobody reads;
//! - *freed last*: an array is freed after its address was replaced;
//! - *numbers only*: a [`LabelToken`] holds a depth, and a pop can only lower it; so a token that is forgotten, or used
//!   late or out of order, at worst removes labels. The length of the texts follows from the labels that are left.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering, compiler_fence};

use crate::base::{FrameFlags, ProfilingCategoryPair};
use crate::threads::growing_array::{free_array, leak_array, replace_array};
use crate::threads::profiling_stack_frame::{ProfilingStackFrame, ScriptPlace};

/// A dynamic string is cut to this many bytes, at a character.
const MAX_DYNAMIC_BYTES: usize = 512;
const FIRST_FRAMES: u32 = 32;
const FIRST_TEXT_BYTES: u32 = 512;

/// The label stack of one thread.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ProfilingStack {
    frames: AtomicPtr<ProfilingStackFrame>,
    capacity: AtomicU32,
    depth: AtomicU32,
    text: AtomicPtr<u8>,
    text_capacity: AtomicU32,
    text_bytes: AtomicU32,
}

thread_local! {
    // Without a destructor and made at compile time, so that it is one addition away and never gone.
    static PROFILING_STACK: ProfilingStack = const { ProfilingStack::new() };
}

/// What a pop goes back to, and where a script frame stands.
#[derive(Debug)]
pub(crate) struct LabelToken {
    depth: u32,
    own_thread: PhantomData<*const ()>,
}

impl LabelToken {
    /// Of a push that found no stack.
    const NONE: Self = Self { depth: u32::MAX, own_thread: PhantomData };
}

/// Pushes a label on the calling thread's stack; nothing where the thread is not registered.
#[inline]
pub(crate) fn push_label(
    stack_address: u64,
    label: &'static str,
    category: ProfilingCategoryPair,
    flags: FrameFlags,
    dynamic: &str,
) -> LabelToken {
    PROFILING_STACK.with(|stack| stack.push(stack_address, label, category, flags, dynamic))
}

/// Pushes a script frame, by its function's number, where a label would be pushed.
#[inline]
pub(crate) fn push_script_frame(stack_address: u64, function: u32, line: u32, column: u32) -> LabelToken {
    let place = ScriptPlace { position: ScriptPlace::position_of(line, column), function };
    PROFILING_STACK.with(|stack| stack.push_script(stack_address, place))
}

/// Tells where in its function the script frame of this push is now.
#[inline]
pub(crate) fn move_script_frame(token: &LabelToken, line: u32, column: u32) {
    PROFILING_STACK.with(|stack| stack.move_script(token, ScriptPlace::position_of(line, column)));
}

/// Goes back to what was there before the push.
#[inline]
pub(crate) fn pop_labels(token: &LabelToken) {
    PROFILING_STACK.with(|stack| stack.pop_to(token));
}

/// Gives the calling thread's stack its memory, and its address for the handler's use.
pub(super) fn open_profiling_stack() -> *const ProfilingStack {
    PROFILING_STACK.with(|stack| {
        stack.open();
        stack as *const ProfilingStack
    })
}

/// The calling thread's stack, whether it is open or not.
pub(super) fn own_profiling_stack() -> *const ProfilingStack {
    PROFILING_STACK.with(|stack| stack as *const ProfilingStack)
}

/// Takes the memory back. Guards that are still alive do nothing from then on.
pub(super) fn close_profiling_stack() {
    PROFILING_STACK.with(ProfilingStack::close);
}

impl ProfilingStack {
    const fn new() -> Self {
        Self {
            frames: AtomicPtr::new(std::ptr::null_mut()),
            capacity: AtomicU32::new(0),
            depth: AtomicU32::new(0),
            text: AtomicPtr::new(std::ptr::null_mut()),
            text_capacity: AtomicU32::new(0),
            text_bytes: AtomicU32::new(0),
        }
    }

    fn open(&self) {
        if self.capacity.load(Ordering::Relaxed) == 0 {
            self.grow_frames(FIRST_FRAMES);
            self.grow_text(FIRST_TEXT_BYTES);
        }
    }

    fn close(&self) {
        self.depth.store(0, Ordering::Relaxed);
        self.text_bytes.store(0, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        let frames = self.frames.swap(std::ptr::null_mut(), Ordering::Relaxed);
        let capacity = self.capacity.swap(0, Ordering::Relaxed);
        let text = self.text.swap(std::ptr::null_mut(), Ordering::Relaxed);
        let text_capacity = self.text_capacity.swap(0, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        // SAFETY: *freed last*: both came from `leak_array` with these lengths, or are null.
        unsafe {
            free_array(frames, capacity);
            free_array(text, text_capacity);
        }
    }

    #[inline]
    fn push(
        &self,
        stack_address: u64,
        label: &'static str,
        category: ProfilingCategoryPair,
        flags: FrameFlags,
        dynamic: &str,
    ) -> LabelToken {
        let Some((depth, frame)) = self.next_frame() else { return LabelToken::NONE };
        let text_start = self.text_bytes.load(Ordering::Relaxed);
        let text_bytes = if dynamic.is_empty() { 0 } else { self.push_text(text_start, dynamic) };
        let (category, subcategory) = category.indices();
        // SAFETY: *own thread*: a frame of the array, not below the depth. Its place stays: see *one store*.
        unsafe {
            (*frame).stack_address = stack_address;
            (*frame).label_address = label.as_ptr().expose_provenance() as u64;
            (*frame).label_bytes = label.len() as u32;
            (*frame).text_start = text_start;
            (*frame).text_bytes = text_bytes;
            (*frame).category = category;
            (*frame).subcategory = subcategory;
            (*frame).flags = flags;
            (*frame).unused = 0;
        }
        self.cover(depth)
    }

    #[inline]
    fn push_script(&self, stack_address: u64, place: ScriptPlace) -> LabelToken {
        let Some((depth, frame)) = self.next_frame() else { return LabelToken::NONE };
        let no_text = "";
        let new = ProfilingStackFrame {
            stack_address,
            label_address: no_text.as_ptr().expose_provenance() as u64,
            text_start: self.text_bytes.load(Ordering::Relaxed),
            flags: FrameFlags::SCRIPT.with(FrameFlags::RELEVANT_FOR_JS),
            place,
            ..ProfilingStackFrame::default()
        };
        // SAFETY: *own thread*: a frame of the array, not below the depth.
        unsafe { frame.write(new) };
        self.cover(depth)
    }

    #[inline]
    fn move_script(&self, token: &LabelToken, position: u64) {
        if self.depth.load(Ordering::Relaxed) > token.depth {
            // SAFETY: *own thread*, and the frame is below the depth. Whatever frame it is by now: *one store*.
            unsafe {
                let frame = self.frames.load(Ordering::Relaxed).add(token.depth as usize);
                (&raw mut (*frame).place.position).write_volatile(position);
            }
        }
    }

    /// The newest frame is written.
    #[inline]
    fn cover(&self, depth: u32) -> LabelToken {
        compiler_fence(Ordering::SeqCst);
        self.depth.store(depth + 1, Ordering::Relaxed);
        LabelToken { depth, own_thread: PhantomData }
    }

    /// The place above the newest frame; `None` when the stack is closed.
    #[inline]
    fn next_frame(&self) -> Option<(u32, *mut ProfilingStackFrame)> {
        let depth = self.depth.load(Ordering::Relaxed);
        let capacity = self.capacity.load(Ordering::Relaxed);
        if depth >= capacity {
            if capacity == 0 {
                return None;
            }
            self.grow_frames(capacity.saturating_mul(2));
        }
        // SAFETY: *own thread*, and `depth` is below the capacity of the array at this address.
        Some((depth, unsafe { self.frames.load(Ordering::Relaxed).add(depth as usize) }))
    }

    /// Copies the text behind the others and gives its length.
    #[cold]
    fn push_text(&self, start: u32, dynamic: &str) -> u32 {
        let cut = (0..=dynamic.len().min(MAX_DYNAMIC_BYTES)).rev().find(|&cut| dynamic.is_char_boundary(cut));
        let dynamic = &dynamic[..cut.unwrap_or(0)];
        let end = start + dynamic.len() as u32;
        let capacity = self.text_capacity.load(Ordering::Relaxed);
        if end > capacity {
            self.grow_text(end.max(capacity.saturating_mul(2)));
        }
        // SAFETY: *own thread*, and the area has room up to `end`.
        unsafe {
            let target = self.text.load(Ordering::Relaxed).add(start as usize);
            std::ptr::copy_nonoverlapping(dynamic.as_ptr(), target, dynamic.len());
        }
        compiler_fence(Ordering::SeqCst);
        self.text_bytes.store(end, Ordering::Relaxed);
        dynamic.len() as u32
    }

    #[inline]
    fn pop_to(&self, token: &LabelToken) {
        if self.depth.load(Ordering::Relaxed) > token.depth {
            self.depth.store(token.depth, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
            if self.text_bytes.load(Ordering::Relaxed) > 0 {
                self.text_bytes.store(self.text_end(token.depth), Ordering::Relaxed);
                compiler_fence(Ordering::SeqCst);
            }
        }
    }

    /// Where the texts of so many labels end.
    #[cold]
    fn text_end(&self, depth: u32) -> u32 {
        if depth == 0 {
            return 0;
        }
        // SAFETY: *own thread*, and labels below the depth are written.
        let newest = unsafe { &*self.frames.load(Ordering::Relaxed).add(depth as usize - 1) };
        newest.text_start + newest.text_bytes
    }

    #[cold]
    fn grow_frames(&self, capacity: u32) {
        let old_capacity = self.capacity.load(Ordering::Relaxed);
        // SAFETY: *own thread*; the array at this address has the capacity that stands beside it.
        unsafe {
            replace_array(&self.frames, old_capacity, leak_array(ProfilingStackFrame::default(), capacity))
        };
        self.capacity.store(capacity, Ordering::Relaxed);
    }

    #[cold]
    fn grow_text(&self, capacity: u32) {
        let old_capacity = self.text_capacity.load(Ordering::Relaxed);
        // SAFETY: *own thread*; the area at this address has the capacity that stands beside it.
        unsafe { replace_array(&self.text, old_capacity, leak_array(0, capacity)) };
        self.text_capacity.store(capacity, Ordering::Relaxed);
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
        let frames = self.frames.load(Ordering::Relaxed);
        let text = self.text.load(Ordering::Relaxed);
        if frames.is_null() || text.is_null() {
            return (&[], &[]);
        }
        // SAFETY: *published last*: what lies below these lengths is written, in whichever array stands there now.
        unsafe { (std::slice::from_raw_parts(frames, depth), std::slice::from_raw_parts(text, text_bytes)) }
    }
}

/// What another thread's stack was, read from outside: see [`crate::threads`]'s slots. The same fields in the same order.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct StackFromOutside {
    pub(super) frames: u64,
    capacity: u32,
    pub(super) depth: u32,
    pub(super) text: u64,
    text_capacity: u32,
    pub(super) text_bytes: u32,
}
const _: () = assert!(
    size_of::<StackFromOutside>() == size_of::<ProfilingStack>()
        && std::mem::offset_of!(StackFromOutside, depth) == std::mem::offset_of!(ProfilingStack, depth)
        && std::mem::offset_of!(StackFromOutside, text) == std::mem::offset_of!(ProfilingStack, text)
        && std::mem::offset_of!(StackFromOutside, text_bytes)
            == std::mem::offset_of!(ProfilingStack, text_bytes)
);

#[cfg(test)]
mod tests {
    use super::*;

    const OTHER: ProfilingCategoryPair = ProfilingCategoryPair::Other(None);
    const LABEL: FrameFlags = FrameFlags::LABEL;

    fn labels(stack: &ProfilingStack) -> Vec<String> {
        // SAFETY: the test's own stack; no push comes between.
        let (frames, text) = unsafe { stack.contents_in_handler() };
        let text_of =
            |frame: &ProfilingStackFrame| &text[frame.text_start as usize..][..frame.text_bytes as usize];
        let utf8 = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
        // SAFETY: pushed by these tests.
        let label_of = |frame: &ProfilingStackFrame| utf8(unsafe { frame.label_in_handler() });
        frames.iter().map(|frame| label_of(frame) + &utf8(text_of(frame))).collect()
    }

    #[test]
    fn labels_come_and_go_with_their_texts() {
        let stack = ProfilingStack::new();
        stack.push(1, "lost: closed", OTHER, LABEL, "");
        assert!(labels(&stack).is_empty());
        stack.open();
        let outer = stack.push(1, "a", OTHER, LABEL, "");
        let inner = stack.push(1, "b ", OTHER, LABEL, "dynamic");
        assert_eq!(labels(&stack), ["a", "b dynamic"]);
        stack.pop_to(&inner);
        stack.push(1, "c ", OTHER, LABEL, "x");
        assert_eq!(labels(&stack), ["a", "c x"]);
        stack.pop_to(&outer);
        assert!(labels(&stack).is_empty());
        stack.close();
    }

    #[test]
    fn tokens_out_of_order_or_late_corrupt_nothing() {
        let stack = ProfilingStack::new();
        stack.open();
        let outer = stack.push(1, "outer", OTHER, LABEL, "o");
        let inner = stack.push(1, "inner", OTHER, LABEL, "i");
        stack.pop_to(&outer);
        stack.pop_to(&inner);
        assert!(labels(&stack).is_empty());
        let late = stack.push(1, "late", OTHER, LABEL, "l");
        stack.close();
        stack.pop_to(&late);
        stack.open();
        stack.push(1, "new", OTHER, LABEL, "n");
        assert_eq!(labels(&stack), ["newn"]);
        stack.close();
    }

    #[test]
    fn a_late_token_leaves_the_texts_of_live_labels_alone() {
        let stack = ProfilingStack::new();
        stack.open();
        let a = stack.push(1, "a ", OTHER, LABEL, "four");
        let b = stack.push(1, "b ", OTHER, LABEL, "text");
        stack.pop_to(&a);
        stack.push(1, "c ", OTHER, LABEL, "a long text that lives");
        stack.pop_to(&b);
        stack.push(1, "d ", OTHER, LABEL, "OVERWRITES");
        assert_eq!(labels(&stack), ["c a long text that lives", "d OVERWRITES"]);
        stack.close();
    }

    #[test]
    fn it_grows_without_limit_and_cuts_texts_at_a_character() {
        let stack = ProfilingStack::new();
        stack.open();
        let long = "é".repeat(400);
        for _ in 0..1000 {
            stack.push(1, "", OTHER, LABEL, &long);
        }
        let all = labels(&stack);
        assert_eq!(all.len(), 1000);
        assert!(all.iter().all(|text| *text == "é".repeat(256)));
        let odd = format!("x{long}");
        stack.push(1, "", OTHER, LABEL, &odd);
        assert_eq!(labels(&stack)[1000].len(), 511);
        stack.close();
    }

    /// Each frame: a label's text, a script frame's function, line and column.
    fn frames(stack: &ProfilingStack) -> Vec<String> {
        // SAFETY: the test's own stack; no push comes between.
        let (frames, _) = unsafe { stack.contents_in_handler() };
        let shown = |(frame, label): (&ProfilingStackFrame, String)| match frame.script_place_in_handler() {
            Some(place) => format!("{}:{}:{}", place.function(), place.line(), place.column()),
            None => label,
        };
        frames.iter().zip(labels(stack)).map(shown).collect()
    }

    fn at(function: u32, line: u32) -> ScriptPlace {
        ScriptPlace { position: ScriptPlace::position_of(line, 0), function }
    }

    #[test]
    fn script_frames_stand_among_labels_and_change_their_line() {
        let stack = ProfilingStack::new();
        let lost = stack.push_script(1, at(2, 1));
        stack.open();
        let outer = stack.push_script(1, at(2, 10));
        let label = stack.push(1, "label", OTHER, LABEL, " text");
        let inner = stack.push_script(1, at(3, u32::MAX));
        assert_eq!(frames(&stack), ["2:10:0", "label text", &format!("3:{}:0", u32::MAX)]);
        stack.move_script(&outer, ScriptPlace::position_of(11, 7));
        stack.move_script(&inner, ScriptPlace::position_of(30, u32::MAX));
        stack.move_script(&lost, 99);
        stack.pop_to(&lost);
        assert_eq!(frames(&stack), ["2:11:7", "label text", &format!("3:30:{}", u32::MAX)]);
        stack.pop_to(&inner);
        stack.pop_to(&label);
        assert_eq!(
            (frames(&stack), stack.text_bytes.load(Ordering::Relaxed)),
            (vec!["2:11:7".to_owned()], 0)
        );
        stack.close();
    }

    #[test]
    fn a_late_line_changes_no_label_and_a_label_leaves_no_line() {
        let stack = ProfilingStack::new();
        stack.open();
        let gone = stack.push_script(1, at(2, 10));
        stack.pop_to(&gone);
        stack.move_script(&gone, 5);
        stack.push(1, "label", OTHER, LABEL, "");
        stack.move_script(&gone, 6);
        assert_eq!(frames(&stack), ["label"]);
        stack.pop_to(&gone);
        stack.push_script(1, at(4, 1));
        assert_eq!(frames(&stack), ["4:1:0"]);
        stack.close();
        stack.move_script(&gone, 7);
    }

    #[test]
    fn a_deep_script_recursion_unwinds_at_once() {
        let stack = ProfilingStack::new();
        stack.open();
        let outermost = stack.push_script(1, at(2, 1));
        for line in 0..100_000 {
            stack.push_script(1, at(3, line));
        }
        assert_eq!(frames(&stack).last().map(String::as_str), Some("3:99999:0"));
        stack.move_script(&outermost, 5);
        assert_eq!(frames(&stack)[..2], ["2:5:0", "3:0:0"]);
        stack.pop_to(&outermost);
        assert!(frames(&stack).is_empty());
        stack.close();
    }
}
