//! The label stack of a thread, labels and script frames: pushed and popped by it, copied by its own signal handler.
//!
//! Only the thread itself touches it, in its code or in a handler that interrupts that code at any instruction and runs
//! to its end before the code goes on. So there is no other thread to order with, only the compiler. The sampler reads the
//! stack of a thread that sleeps from outside, as bytes that may be anything (`outside_capture.rs`).
//!
//! **Contract** (cited below):
//! - *own thread*: the stack is a thread-local without a destructor; its cells are read and written on its thread alone;
//! - *asked before*: memory is asked for before a place is taken, for the allocator may be the host's, and push and pop
//!   labels itself; what was read before is read again after, and what finds no room then is left out;
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
use crate::threads::profiling_stack_frame::{ProfilingStackFrame, ScriptPlace};

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
            frames: GrowingArray::closed(),
            text: GrowingArray::closed(),
            depth: AtomicU32::new(0),
            text_bytes: AtomicU32::new(0),
        }
    }

    fn open(&self) {
        self.frames.grow(FIRST_FRAMES, MOST_FRAMES);
        self.text.grow(FIRST_TEXT_BYTES, MOST_TEXT_BYTES);
    }

    fn close(&self) {
        self.depth.store(0, Ordering::Relaxed);
        self.text_bytes.store(0, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        self.frames.close();
        self.text.close();
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
        if !dynamic.is_empty() {
            self.make_room_for_text(dynamic);
        }
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
                let frame = self.frames.start().add(token.depth as usize);
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

    /// The place above the newest frame; `None` when the stack is closed, at its end, or in its allocator.
    #[inline]
    fn next_frame(&self) -> Option<(u32, *mut ProfilingStackFrame)> {
        let mut depth = self.depth.load(Ordering::Relaxed);
        let capacity = self.frames.capacity();
        if depth >= capacity {
            if capacity == 0 || !self.make_room_for_frame(depth) {
                return None;
            }
            depth = self.depth.load(Ordering::Relaxed);
        }
        // SAFETY: *own thread*, and `depth` is below the capacity of the array at this address.
        Some((depth, unsafe { self.frames.start().add(depth as usize) }))
    }

    #[cold]
    fn make_room_for_frame(&self, depth: u32) -> bool {
        self.frames.grow(depth + 1, MOST_FRAMES);
        // *Asked before*: so much for what was true when it was called.
        self.depth.load(Ordering::Relaxed) < self.frames.capacity()
    }

    #[cold]
    fn make_room_for_text(&self, dynamic: &str) {
        let end = self.text_bytes.load(Ordering::Relaxed) + dynamic.len().min(MAX_DYNAMIC_BYTES) as u32;
        let capacity = self.text.capacity();
        if end > capacity && capacity > 0 {
            self.text.grow(end, MOST_TEXT_BYTES);
        }
    }

    /// Copies the text behind the others and gives its length: 0 where there is no room for it.
    #[cold]
    fn push_text(&self, start: u32, dynamic: &str) -> u32 {
        let dynamic = cut_at_character(dynamic, MAX_DYNAMIC_BYTES);
        let end = start + dynamic.len() as u32;
        if end > self.text.capacity() {
            return 0;
        }
        // SAFETY: *own thread*, and the area has room up to `end`.
        unsafe {
            let target = self.text.start().add(start as usize);
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
        let newest = unsafe { &*self.frames.start().add(depth as usize - 1) };
        newest.text_start + newest.text_bytes
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
        unsafe { (std::slice::from_raw_parts(frames, depth), std::slice::from_raw_parts(text, text_bytes)) }
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
}
const _: () = assert!(
    size_of::<StackFromOutside>() == size_of::<ProfilingStack>()
        && std::mem::offset_of!(StackFromOutside, depth) == std::mem::offset_of!(ProfilingStack, depth)
        && std::mem::offset_of!(StackFromOutside, text) == std::mem::offset_of!(ProfilingStack, text)
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
    fn it_grows_and_cuts_texts_at_a_character() {
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

    #[test]
    fn what_is_too_deep_or_too_long_is_left_out_and_the_rest_stays() {
        let stack = ProfilingStack::new();
        stack.open();
        let outer = stack.push(1, "outer", OTHER, LABEL, "");
        let long = "x".repeat(MAX_DYNAMIC_BYTES);
        let fitting = MOST_TEXT_BYTES as usize / MAX_DYNAMIC_BYTES;
        for _ in 0..fitting {
            stack.push(1, "", OTHER, LABEL, &long);
        }
        stack.push(1, "no room", OTHER, LABEL, "x");
        let all = labels(&stack);
        assert!(all.len() == fitting + 2 && all[1..=fitting].iter().all(|text| *text == long));
        assert_eq!([&all[0], &all[fitting + 1]], ["outer", "no room"]);
        for number in fitting as u32 + 2..MOST_FRAMES {
            assert_ne!(stack.push_script(1, at(2, number)).depth, LabelToken::NONE.depth);
        }
        for lost in [stack.push(1, "lost", OTHER, LABEL, "x"), stack.push_script(1, at(2, 0))] {
            assert_eq!(lost.depth, LabelToken::NONE.depth);
            stack.pop_to(&lost);
        }
        assert_eq!(stack.depth.load(Ordering::Relaxed), MOST_FRAMES);
        stack.pop_to(&outer);
        stack.push(1, "new", OTHER, LABEL, " text");
        assert_eq!(labels(&stack), ["new text"]);
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
