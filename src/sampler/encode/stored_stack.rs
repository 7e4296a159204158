//! Step 8 of 12: native frames and labels are merged into one stack, ordered by stack address, and the
//! labels are encoded. The stack is kept until the thread has a different one.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::backtrace::{BacktraceLabel, CapturedBacktrace};
use crate::buffer::{EntryWriter, FrameTag, root_node};
use crate::capture::{CapturedView, EventLoopState};
use crate::labels::{ContextWords, MAX_CONTEXT_LABELS};
#[cfg(any(test, fuzzing))]
use crate::sampler::encode::scripted_stack::{ScriptedFrame, ScriptedStack};
use crate::types::{FrameFlags, NoStack, OTHER_CATEGORY, StackAddress, Wait};
use crate::unwind::{NativeFrame, NativeStack};
use crate::waiting_tasks::StackNames;

/// A frame of a merged stack: an index into the native frames or into the labels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MergedFrame {
    Native(usize),
    Label(usize),
}

/// Merges native frames and labels into `out`, oldest frame first. `native` is innermost first,
/// `labels` are oldest first.
///
/// The address of a label is the stack pointer at its push. It lies in the frame of the function
/// that pushed the label: at or above that function's stack pointer, below its caller's. So a label
/// goes between the two frames, as in Gecko.
///
/// Some labels have no matching frame, because the stack is truncated or because the application
/// moved the label's guard to another function. Such labels keep their order. The innermost native
/// frame stays innermost, because the time was spent there.
///
/// Script frames are merged like labels. Their address comes from their own push, or from the
/// interpreter's hooks, which may give the same address to several frames in a row.
#[doc(alias = "MergeStacks")]
pub(crate) fn merge_stacks(
    native: &[NativeFrame],
    labels: impl Iterator<Item = StackAddress>,
    out: &mut Vec<MergedFrame>,
) {
    out.clear();
    let mut labels = labels.enumerate().peekable();
    for (index, frame) in native.iter().enumerate().rev() {
        let innermost = index == 0;
        while let Some((label, _)) =
            labels.next_if(|(_, address)| innermost || *address >= frame.stack_address)
        {
            out.push(MergedFrame::Label(label));
        }
        out.push(MergedFrame::Native(index));
    }
    out.extend(labels.map(|(label, _)| MergedFrame::Label(label)));
}

/// Returns one of the labels of a capture.
pub(crate) fn label_of<'v>(view: &'v CapturedView<'_>, index: usize) -> BacktraceLabel<'v> {
    let label = &view.labels()[index];
    let (text, dynamic) = view.texts_of(label);
    BacktraceLabel {
        stack_address: label.stack_address,
        text,
        dynamic,
        script: label.script(),
        category: label.category,
        subcategory: label.subcategory,
        flags: label.flags,
    }
}

/// What the address of a native frame is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum NativePlace {
    /// A return address.
    Return,
    /// The thread's program counter.
    Innermost,
    /// The thread's program counter in the system call that blocks it.
    Waiting(Wait),
}

impl NativePlace {
    fn new(is_innermost: bool) -> Self {
        match is_innermost {
            true => Self::Innermost,
            false => Self::Return,
        }
    }
}

/// A frame of a stored stack.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum StoredFrame {
    Native {
        address: u64,
        place: NativePlace,
    },
    /// A frame of the label stack, as the range of its encoding in the stack's `labels`.
    Label {
        start: u32,
        end: u32,
    },
}

/// Facts about a stack as a whole.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StackHead {
    pub(crate) is_truncated: bool,
    pub(crate) is_of_other_stack: bool,
    /// Whether older frames are missing because the stack was too deep to be copied as a whole.
    pub(crate) is_too_deep: bool,
    /// The state of the event loop, which may change while the stack stays the same.
    pub(crate) event_loop: EventLoopState,
    /// Whether the last frame is the context.
    has_context: bool,
}

/// A stack as it is written to the buffer, oldest frame first, and the state of the thread's event
/// loop.
#[derive(Debug, Default)]
pub(crate) struct StoredStack {
    frames: Vec<StoredFrame>,
    /// The encoded labels. `entry_kind.rs` defines the encoding.
    labels: EntryWriter,
    pub(crate) head: StackHead,
}

impl StoredStack {
    /// Returns the memory of its frames and labels, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.frames) + self.labels.bytes().len()
    }

    pub(crate) fn frames(&self) -> &[StoredFrame] {
        &self.frames
    }

    /// Returns the encoding of one of the stack's labels.
    pub(crate) fn label(&self, start: u32, end: u32) -> &[u8] {
        self.labels
            .bytes()
            .get(start as usize..end as usize)
            .unwrap_or_default()
    }

    /// Returns the root node below the stack's oldest frame.
    pub(crate) fn root(&self) -> u32 {
        root_node(self.head.is_truncated, self.head.is_of_other_stack)
    }

    /// Returns whether both stacks have the same frames and the same root.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.root() == other.root()
            && self.frames == other.frames
            && self.labels.bytes() == other.labels.bytes()
    }

    /// Returns a hash that is equal for stacks that are the same.
    pub(crate) fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.root(), &self.frames, self.labels.bytes()).hash(&mut hasher);
        hasher.finish()
    }

    /// Removes all frames, and makes space for this many, with these labels. Returns false if
    /// memory is lacking.
    pub(crate) fn try_reserve(&mut self, frames: usize, labels: usize, text_bytes: usize) -> bool {
        /// Numbers of an encoded label or script frame, and its other bytes.
        const NUMBERS: usize = 4;
        const OTHER_BYTES: usize = 2;
        /// Numbers of an encoded context, and its other bytes.
        const CONTEXT_NUMBERS: usize = 2 + MAX_CONTEXT_LABELS;
        const CONTEXT_BYTES: usize = 24;
        self.set_empty(EventLoopState::Unknown);
        let numbers = labels * NUMBERS + CONTEXT_NUMBERS;
        let other_bytes = labels * OTHER_BYTES + text_bytes + CONTEXT_BYTES;
        self.frames.try_reserve(frames + 1).is_ok() && self.labels.try_reserve(numbers, other_bytes)
    }

    /// Copies `other` and reuses the memory of `self`. Without memory for that, returns false and
    /// makes this a truncated stack without frames.
    pub(crate) fn try_copy_from(&mut self, other: &Self) -> bool {
        let label_bytes = other.labels.bytes().len();
        self.set_empty(other.head.event_loop);
        let has_memory = self.frames.try_reserve(other.frames.len()).is_ok()
            && self.labels.try_reserve(0, label_bytes);
        if has_memory {
            self.frames.clone_from(&other.frames);
            self.labels.raw(other.labels.bytes());
            self.head = other.head;
        } else {
            self.head.is_truncated = true;
        }
        has_memory
    }

    /// Makes this a stack without frames.
    pub(crate) fn set_empty(&mut self, event_loop: EventLoopState) {
        self.frames.clear();
        self.labels.clear();
        self.head = StackHead {
            event_loop,
            ..StackHead::default()
        };
    }

    /// Stores a stack that the thread's handler captured, merged with its labels, with its script
    /// frames if `has_scripts` is true, and with its context as the last frame.
    pub(crate) fn set(
        &mut self,
        native: &NativeStack,
        view: &CapturedView<'_>,
        has_scripts: bool,
        merged: &mut Vec<MergedFrame>,
    ) {
        let header = view.header();
        self.set_empty(header.event_loop);
        self.head.is_truncated = native.truncated;
        self.head.is_of_other_stack = header.on_other_stack;
        self.head.is_too_deep = native.truncated && header.stack_left_out();
        let addresses = view.labels().iter().map(|label| label.stack_address);
        merge_stacks(&native.frames, addresses, merged);
        let left_out = header.labels_left_out;
        let label = |index| label_of(view, index);
        self.add_merged(native, merged, left_out, has_scripts, label);
        self.add_context(header.context);
    }

    /// Stores a stack that a thread captured itself, merged like a stack in [`Self::set`].
    pub(crate) fn set_backtrace(
        &mut self,
        native: &NativeStack,
        backtrace: &CapturedBacktrace,
        has_scripts: bool,
        merged: &mut Vec<MergedFrame>,
    ) {
        self.set_empty(EventLoopState::Unknown);
        self.head.is_truncated = native.truncated;
        let labels: Vec<_> = backtrace.labels().collect();
        let addresses = labels.iter().map(|label| label.stack_address);
        merge_stacks(&native.frames, addresses, merged);
        let left_out = backtrace.head.labels_left_out;
        self.add_merged(native, merged, left_out, has_scripts, |index| labels[index]);
    }

    /// Adds the merged frames. `label` returns the label with a given index.
    fn add_merged<'l>(
        &mut self,
        native: &NativeStack,
        merged: &[MergedFrame],
        labels_left_out: bool,
        has_scripts: bool,
        label: impl Fn(usize) -> BacktraceLabel<'l>,
    ) {
        let left_out_at = labels_left_out.then(|| {
            let last_label = merged
                .iter()
                .rposition(|frame| matches!(frame, MergedFrame::Label(_)));
            last_label.map_or(0, |last| last + 1)
        });
        for (index, frame) in merged.iter().enumerate() {
            if left_out_at == Some(index) {
                self.add_labels_left_out();
            }
            match *frame {
                MergedFrame::Native(index) => {
                    let address = native.frames[index].address.get();
                    let place = NativePlace::new(index == 0);
                    self.frames.push(StoredFrame::Native { address, place });
                }
                MergedFrame::Label(index) => {
                    let label = label(index);
                    match label.script {
                        Some(_) if !has_scripts => {}
                        Some(place) => {
                            let place = [place.function(), place.line(), place.column()];
                            self.add_script_frame(label.flags, place);
                        }
                        None => {
                            let category = (label.category, label.subcategory);
                            self.add_label(label.flags, category, (label.text, label.dynamic));
                        }
                    }
                }
            }
        }
        if left_out_at == Some(merged.len()) {
            self.add_labels_left_out();
        }
    }

    /// Notes what the thread waits for, which is blocked in a system call.
    pub(crate) fn set_wait(&mut self, wait: Option<Wait>) {
        let after_innermost = usize::from(self.head.has_context);
        let innermost = self.frames.iter_mut().rev().nth(after_innermost);
        if let Some(wait) = wait
            && let Some(StoredFrame::Native { place, .. }) = innermost
            && *place == NativePlace::Innermost
        {
            *place = NativePlace::Waiting(wait);
        }
    }

    /// Stores the names of futures, outermost first, and a context.
    pub(crate) fn set_task_names(&mut self, names: &StackNames, context: ContextWords) {
        self.set_empty(EventLoopState::Unknown);
        names.visit(|name| {
            let texts = (name.label.as_bytes(), name.dynamic.as_bytes());
            // The viewer hides a track whose frames are all of the category “Idle”.
            self.add_label(FrameFlags::NONE, (OTHER_CATEGORY, 0), texts);
        });
        self.add_context(context);
    }

    fn add_label(&mut self, flags: FrameFlags, category: (u8, u8), texts: (&[u8], &[u8])) {
        self.add_encoded(FrameTag::Label.join(flags.to_byte().into()), |code| {
            code.byte(category.0)
                .byte(category.1)
                .text(texts.0)
                .text(texts.1);
        });
    }

    fn add_script_frame(&mut self, flags: FrameFlags, [function, line, column]: [u32; 3]) {
        self.add_encoded(FrameTag::Label.join(flags.to_byte().into()), |code| {
            code.number(function.into())
                .number(line.into())
                .number(column.into());
        });
    }

    /// Adds the context, if any, in which the stack was captured.
    fn add_context(&mut self, context: ContextWords) {
        if context.is_none() {
            return;
        }
        self.head.has_context = true;
        self.add_encoded(FrameTag::Label.join(FrameTag::CONTEXT), |code| {
            let ids = [context.trace[0], context.trace[1], context.span];
            code.raw(ids.map(u64::to_le_bytes).as_flattened());
            let labels = context.labels.iter().filter(|number| **number != 0);
            code.number(labels.clone().count() as u64);
            labels.for_each(|number| _ = code.number((*number).into()));
        });
    }

    /// Makes this a stack of a single frame, which says why the real stack is missing.
    pub(crate) fn set_no_stack(&mut self, reason: NoStack, event_loop: EventLoopState) {
        self.set_empty(event_loop);
        self.add_no_stack(reason);
    }

    fn add_no_stack(&mut self, reason: NoStack) {
        self.add_encoded(FrameTag::Label.join(FrameTag::NO_STACK), |code| {
            code.number(reason.to_number().unsigned_abs().into());
        });
    }

    fn add_labels_left_out(&mut self) {
        self.add_encoded(FrameTag::Label.join(FrameTag::LABELS_LEFT_OUT), |_| ());
    }

    fn add_encoded(&mut self, tag: u64, fields: impl FnOnce(&mut EntryWriter)) {
        let start = self.labels.bytes().len() as u32;
        self.labels.number(tag);
        fields(&mut self.labels);
        let end = self.labels.bytes().len() as u32;
        self.frames.push(StoredFrame::Label { start, end });
    }

    /// Returns a stack of return addresses whose last address is the innermost frame. Used in tests
    /// of other modules.
    #[cfg(test)]
    pub(crate) fn of_addresses(addresses: &[u64]) -> Self {
        let mut stack = Self::default();
        let innermost = addresses.len().wrapping_sub(1);
        stack.frames = addresses
            .iter()
            .enumerate()
            .map(|(index, &address)| StoredFrame::Native {
                address,
                place: NativePlace::new(index == innermost),
            })
            .collect();
        stack
    }

    /// Stores a made-up stack.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn set_scripted(&mut self, stack: &ScriptedStack) {
        self.set_empty(stack.event_loop);
        self.head.is_truncated = stack.is_truncated;
        self.head.is_of_other_stack = stack.is_of_other_stack;
        for frame in &stack.frames {
            match *frame {
                ScriptedFrame::Native {
                    address,
                    is_innermost,
                } => {
                    let place = NativePlace::new(is_innermost);
                    self.frames.push(StoredFrame::Native { address, place });
                }
                ScriptedFrame::Waiting { address, wait } => {
                    let place = NativePlace::Waiting(wait);
                    self.frames.push(StoredFrame::Native { address, place });
                }
                ScriptedFrame::Label {
                    category,
                    subcategory,
                    ref text,
                    ref dynamic,
                } => {
                    self.add_label(FrameFlags::NONE, (category, subcategory), (text, dynamic));
                }
                ScriptedFrame::Script {
                    function,
                    line,
                    column,
                } => {
                    self.add_script_frame(FrameFlags::SCRIPT, [function, line, column]);
                }
                ScriptedFrame::LabelsLeftOut => self.add_labels_left_out(),
                ScriptedFrame::NoStack(reason) => self.add_no_stack(reason),
            }
        }
        self.add_context(stack.context);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::CodeAddress;

    fn merged(native: &[u64], labels: &[u64]) -> String {
        let native: Vec<NativeFrame> = native
            .iter()
            .map(|&sp| NativeFrame {
                address: CodeAddress::new(sp),
                stack_address: StackAddress(sp),
            })
            .collect();
        let mut out = Vec::new();
        merge_stacks(&native, labels.iter().map(|&sp| StackAddress(sp)), &mut out);
        let name = |frame: &MergedFrame| match frame {
            MergedFrame::Native(index) => format!("n{index}"),
            MergedFrame::Label(index) => format!("l{index}"),
        };
        out.iter().map(name).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn label_is_placed_before_the_frame_that_pushed_it() {
        assert_eq!(merged(&[100, 200, 300], &[]), "n2 n1 n0");
        assert_eq!(merged(&[100, 200, 300], &[200]), "n2 l0 n1 n0");
        assert_eq!(
            merged(&[100, 200, 300], &[250, 240, 100]),
            "n2 l0 l1 n1 l2 n0"
        );
        assert_eq!(merged(&[100, 200, 300], &[400]), "l0 n2 n1 n0");
    }

    #[test]
    fn script_frames_are_placed_where_the_interpreter_was_entered() {
        // One interpreter call for each script frame, then one call for a run of three, whose hooks
        // gave all of them the same address.
        assert_eq!(merged(&[100, 200, 300], &[310, 210]), "l0 n2 l1 n1 n0");
        assert_eq!(
            merged(&[100, 200, 300], &[250, 250, 250]),
            "n2 l0 l1 l2 n1 n0"
        );
        // A call into the application, which enters the interpreter again.
        assert_eq!(
            merged(&[100, 200, 300, 400], &[350, 350, 260, 150, 150]),
            "n3 l0 l1 n2 l2 n1 l3 l4 n0"
        );
    }

    #[test]
    fn innermost_native_frame_stays_innermost_and_labels_keep_their_order() {
        assert_eq!(merged(&[100, 200], &[50]), "n1 l0 n0");
        assert_eq!(merged(&[100, 200], &[50, 300]), "n1 l0 l1 n0");
        assert_eq!(merged(&[], &[50, 40]), "l0 l1");
        assert_eq!(merged(&[], &[]), "");
    }

    #[test]
    fn stacks_with_equal_frames_and_roots_are_the_same() {
        let stack = StoredStack::of_addresses(&[1, 2]);
        let mut other = StoredStack::default();
        assert!(other.try_copy_from(&stack));
        other.head.event_loop = EventLoopState::Idle;
        assert!(stack.is_same(&other), "the event loop does not matter");
        other.head.is_truncated = true;
        assert!(!stack.is_same(&other));
        for addresses in [&[1][..], &[2, 1], &[1, 2, 3]] {
            assert!(!stack.is_same(&StoredStack::of_addresses(addresses)));
        }
        let script = |line| ScriptedStack {
            frames: vec![ScriptedFrame::Script {
                function: 1,
                line,
                column: 0,
            }],
            ..ScriptedStack::default()
        };
        other.set_scripted(&script(1));
        let mut moved = StoredStack::default();
        moved.set_scripted(&script(2));
        assert!(!other.is_same(&moved), "the label's encoding matters");
    }
}
