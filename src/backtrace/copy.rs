//! Backtraces: copies of the calling thread's own stack, which a thread can make at any point.
//!
//! **Contract** (cited below):
//! - *caller's registers*: the registers belong to a function on the calling thread that has not
//!   returned. So the memory from their stack pointer to the top of this thread's stack is mapped,
//!   and does not change during the call;
//! - *words are bytes*: memory of words may be read and written as bytes, eight per word.

use crate::backtrace::pool::{MAX_WORDS, give_back_words, take_words};
use crate::capture::MAX_STACK_BYTES;
use crate::labels::{ProfilingStackFrame, ScriptLocation, own_profiling_stack};
use crate::platform::{
    Registers, StackBounds, copy_words_in_handler, current_registers, monotonic_now,
};
use crate::threads::CachedThreadInfo;
use crate::types::{FrameFlags, StackAddress, ThreadId, TimeStamp};

/// Size of a label's header, in bytes: stack address, lengths of the two texts, script location
/// (function 0 for a label), category, subcategory and flags. The texts follow it.
const LABEL_HEADER_BYTES: usize = 31;

/// Everything about a backtrace except the copied stack and labels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BacktraceHead {
    thread: ThreadId,
    pub(crate) time: TimeStamp,
    pub(crate) registers: Registers,
    /// Stack address of the first copied byte; 0 if no stack was copied, for example because the stack
    /// pointer lay outside the thread's stack.
    pub(crate) stack_start: u64,
    stack_words: usize,
    label_bytes: usize,
    /// Whether the newest labels are missing because they did not fit.
    pub(crate) labels_left_out: bool,
    /// Whether the words of the stack are return addresses, innermost first.
    is_unwound: bool,
}

/// Registers, stack and labels of a thread, not unwound yet. Dropping it returns its memory to the
/// pool.
pub(crate) struct CapturedBacktrace {
    pub(crate) head: BacktraceHead,
    /// [`RESERVED_WORDS`], then the stack, then the labels, oldest first.
    pub(crate) words: Box<[u64]>,
}

/// Words at the front of a backtrace's memory that are reserved for a list node
/// (`pending.rs`).
pub(crate) const RESERVED_WORDS: usize = 40;

/// Parts of the calling thread that a backtrace contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BacktraceParts {
    LabelsAndStack,
    Labels,
}

/// A label or a script frame of a backtrace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BacktraceLabel<'a> {
    pub(crate) stack_address: StackAddress,
    pub(crate) text: &'a [u8],
    pub(crate) dynamic: &'a [u8],
    pub(crate) script: Option<ScriptLocation>,
    pub(crate) category: u8,
    pub(crate) subcategory: u8,
    pub(crate) flags: FrameFlags,
}

impl CapturedBacktrace {
    /// Captures the stack from the function into which this one is inlined. Otherwise like
    /// [`Self::capture`].
    #[inline(always)]
    pub(crate) fn capture_here(parts: BacktraceParts) -> Option<Self> {
        // SAFETY: *caller's registers*: of this function, or of the one into which it is inlined.
        unsafe { Self::capture(current_registers(), parts) }
    }

    /// Copies the calling thread's stack, from the function with these registers to the oldest
    /// frame, or at most [`MAX_STACK_BYTES`] of it; `None` when out of memory.
    ///
    /// The first call on a thread asks the system for the bounds of the stack. Later calls take no
    /// lock, allocate nothing and make no system call, provided that backtraces of about this size
    /// were dropped before.
    ///
    /// # Safety
    /// - *caller's registers*.
    #[inline(never)]
    unsafe fn capture(registers: Registers, parts: BacktraceParts) -> Option<Self> {
        let own = CachedThreadInfo::current();
        // SAFETY: the stack is a thread-local of the calling thread, and no label is pushed while
        // the slices are in use.
        let (frames, texts) = unsafe { (*own_profiling_stack()).contents_in_handler() };
        let label_bytes: usize = frames
            .iter()
            .map(|frame| BacktraceLabel::bytes_of(frame, texts))
            .sum();
        let (stack_start, stack_bytes) = match parts {
            BacktraceParts::LabelsAndStack => used_stack(registers.sp, own.bounds),
            BacktraceParts::Labels => (0, 0),
        };
        let other_words = RESERVED_WORDS + label_bytes.div_ceil(8);
        let stack_words =
            (stack_bytes.min(MAX_STACK_BYTES) / 8).min(MAX_WORDS.saturating_sub(other_words));
        let mut words = take_words(stack_words + other_words)?;
        // SAFETY: as above. The slices are read again because the application's allocator may have
        // pushed labels, which can move the label stack.
        let (frames, texts) = unsafe { (*own_profiling_stack()).contents_in_handler() };
        let (stack, rest) = words
            .get_mut(RESERVED_WORDS..)?
            .split_at_mut_checked(stack_words)?;
        // SAFETY: *caller's registers*: the source is readable and belongs to this thread. The
        // target is as long, both are word aligned, and a box does not overlap a stack.
        unsafe { copy_words_in_handler(stack_start, stack.as_mut_ptr().cast(), stack_words * 8) };
        let mut free = bytes_of_mut(rest);
        let (mut written, mut labels_left_out) = (0, false);
        for frame in frames {
            // SAFETY: this thread pushed the labels, by code that is still running and therefore
            // loaded.
            let label = unsafe { BacktraceLabel::of(frame, texts) };
            let Some((target, remaining)) =
                std::mem::take(&mut free).split_at_mut_checked(label.bytes())
            else {
                labels_left_out = true;
                break;
            };
            label.write_to(target);
            written += label.bytes();
            free = remaining;
        }
        let head = BacktraceHead {
            thread: own.tid,
            time: monotonic_now(),
            registers,
            stack_start,
            stack_words,
            label_bytes: written,
            labels_left_out,
            is_unwound: false,
        };
        Some(Self { head, words })
    }

    /// Stores return addresses that the application collected, innermost first, as a stack of the
    /// calling thread at this time; `None` when out of memory.
    pub(crate) fn of_return_addresses(addresses: &[u64]) -> Option<Self> {
        let addresses = &addresses[..addresses.len().min(MAX_WORDS - RESERVED_WORDS)];
        let mut words = take_words(RESERVED_WORDS + addresses.len())?;
        words
            .get_mut(RESERVED_WORDS..)?
            .get_mut(..addresses.len())?
            .copy_from_slice(addresses);
        let head = BacktraceHead {
            thread: CachedThreadInfo::current().tid,
            time: monotonic_now(),
            registers: current_registers(),
            stack_start: 0,
            stack_words: addresses.len(),
            label_bytes: 0,
            labels_left_out: false,
            is_unwound: true,
        };
        Some(Self { head, words })
    }

    /// Returns the return addresses, innermost first, if the application collected them.
    pub(crate) fn return_addresses(&self) -> Option<&[u64]> {
        let stack = &self.words[RESERVED_WORDS..][..self.head.stack_words];
        self.head.is_unwound.then_some(stack)
    }

    /// Copies the backtrace; `None` when out of memory.
    pub(crate) fn copy(&self) -> Option<Self> {
        let mut words = take_words(self.words.len())?;
        let used = self.used_words();
        words.get_mut(..used)?.copy_from_slice(&self.words[..used]);
        Some(Self {
            head: self.head,
            words,
        })
    }

    fn used_words(&self) -> usize {
        RESERVED_WORDS + self.head.stack_words + self.head.label_bytes.div_ceil(8)
    }

    pub(crate) fn thread(&self) -> ThreadId {
        self.head.thread
    }

    /// Returns the copied part of the stack.
    pub(crate) fn stack(&self) -> &[u8] {
        bytes_of(&self.words[RESERVED_WORDS..][..self.head.stack_words])
    }

    /// Iterates over the labels, oldest first.
    pub(crate) fn labels(&self) -> impl Iterator<Item = BacktraceLabel<'_>> {
        let mut rest = &bytes_of(&self.words[RESERVED_WORDS + self.head.stack_words..])
            [..self.head.label_bytes];
        std::iter::from_fn(move || {
            let (label, after) = BacktraceLabel::read_from(rest)?;
            rest = after;
            Some(label)
        })
    }
}

impl Drop for CapturedBacktrace {
    fn drop(&mut self) {
        give_back_words(std::mem::take(&mut self.words));
    }
}

impl std::fmt::Debug for CapturedBacktrace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let BacktraceHead {
            thread,
            registers,
            stack_words,
            ..
        } = &self.head;
        write!(
            f,
            "CapturedBacktrace {{ {thread:?}, pc: {:#x}, {stack_words} words of stack }}",
            registers.pc
        )
    }
}

/// Returns the start and the length of the used part of the stack; both are 0 when the stack
/// pointer lies outside `bounds`.
fn used_stack(sp: u64, bounds: Option<StackBounds>) -> (u64, usize) {
    let Some(StackBounds { low, top }) = bounds else {
        return (0, 0);
    };
    let (start, top) = (sp & !7, top & !7);
    if sp < low || sp >= top {
        (0, 0)
    } else {
        (start, (top - start) as usize)
    }
}

impl<'a> BacktraceLabel<'a> {
    /// Returns the label of a frame.
    ///
    /// # Safety
    /// - The frame was pushed on a stack of this process, by code that is still loaded.
    unsafe fn of(frame: &ProfilingStackFrame, texts: &'a [u8]) -> Self {
        Self {
            stack_address: StackAddress(frame.stack_address),
            // SAFETY: by this function's contract.
            text: unsafe { frame.label_in_handler() },
            dynamic: frame.text_of_in_handler(texts),
            script: frame.script_location_in_handler(),
            category: frame.category,
            subcategory: frame.subcategory,
            flags: frame.flags,
        }
    }

    /// Returns the encoded size of a frame's label, in bytes.
    fn bytes_of(frame: &ProfilingStackFrame, texts: &[u8]) -> usize {
        LABEL_HEADER_BYTES + frame.label_bytes as usize + frame.text_of_in_handler(texts).len()
    }

    fn bytes(&self) -> usize {
        LABEL_HEADER_BYTES + self.text.len() + self.dynamic.len()
    }

    /// Encodes the label into `target`, which must have the label's encoded size.
    fn write_to(&self, mut target: &mut [u8]) {
        let script = self.script.unwrap_or_default();
        let parts: [&[u8]; 8] = [
            &self.stack_address.0.to_ne_bytes(),
            &(self.text.len() as u32).to_ne_bytes(),
            &(self.dynamic.len() as u32).to_ne_bytes(),
            &script.position.to_ne_bytes(),
            &script.function.to_ne_bytes(),
            &[self.category, self.subcategory, self.flags.to_byte()],
            self.text,
            self.dynamic,
        ];
        for part in parts {
            let (of_part, rest) = target.split_at_mut(part.len());
            of_part.copy_from_slice(part);
            target = rest;
        }
    }

    /// Decodes the first label of `bytes`, and returns it with the bytes that follow it.
    fn read_from(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (address, bytes) = bytes.split_first_chunk::<8>()?;
        let (text_bytes, bytes) = bytes.split_first_chunk::<4>()?;
        let (dynamic_bytes, bytes) = bytes.split_first_chunk::<4>()?;
        let (position, bytes) = bytes.split_first_chunk::<8>()?;
        let (function, bytes) = bytes.split_first_chunk::<4>()?;
        let (&[category, subcategory, flags], bytes) = bytes.split_first_chunk::<3>()?;
        let (text, bytes) = bytes.split_at_checked(u32::from_ne_bytes(*text_bytes) as usize)?;
        let (dynamic, bytes) =
            bytes.split_at_checked(u32::from_ne_bytes(*dynamic_bytes) as usize)?;
        let stack_address = StackAddress(u64::from_ne_bytes(*address));
        let script = ScriptLocation {
            position: u64::from_ne_bytes(*position),
            function: u32::from_ne_bytes(*function),
        };
        let script = (script.function() != 0).then_some(script);
        let flags = FrameFlags::from_byte(flags);
        Some((
            Self {
                stack_address,
                text,
                dynamic,
                script,
                category,
                subcategory,
                flags,
            },
            bytes,
        ))
    }
}

fn bytes_of(words: &[u64]) -> &[u8] {
    // SAFETY: *words are bytes*.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}

fn bytes_of_mut(words: &mut [u64]) -> &mut [u8] {
    // SAFETY: *words are bytes*, and any eight bytes are a valid word.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), size_of_val(words)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labels::{push_label, push_label_with_text, push_script_frame};
    use crate::threads::{RegistrationHooks, register_current_thread, unregister_current_thread};
    use crate::types::ProfilingCategoryPair;

    #[test]
    fn capture_here_copies_stack_and_labels() {
        let marker = std::hint::black_box([0x1234_5678_9abc_def0u64; 4]);
        register_current_thread("captures itself", RegistrationHooks::NONE);
        let (category, flags) = (ProfilingCategoryPair::Other(None), FrameFlags::NONE);
        let _outer = push_label_with_text(70, "outer ", category, flags, "dynamic");
        let _script = push_script_frame(65, 7, 11, 3);
        let _inner = push_label(60, "inner", category, flags);
        let backtrace =
            CapturedBacktrace::capture_here(BacktraceParts::LabelsAndStack).expect("memory");
        unregister_current_thread();
        let here = &raw const marker as u64;
        let place = (here - backtrace.head.stack_start) as usize;
        assert_eq!(backtrace.stack()[place..place + 8], marker[0].to_ne_bytes());
        let labels: Vec<_> = backtrace
            .labels()
            .map(|label| (label.stack_address.0, label.text, label.dynamic))
            .collect();
        assert_eq!(
            labels,
            [
                (70, &b"outer "[..], &b"dynamic"[..]),
                (65, b"", b""),
                (60, b"inner", b"")
            ]
        );
        let scripts: Vec<_> = backtrace.labels().map(|label| label.script).collect();
        let place = scripts[1].expect("a script frame");
        assert_eq!((place.function(), place.line(), place.column()), (7, 11, 3));
        assert_eq!((scripts[0], scripts[2]), (None, None));
        let copy = backtrace.copy().expect("memory");
        assert_eq!(
            (copy.stack(), copy.labels().count()),
            (backtrace.stack(), 3)
        );
        let kinds: Vec<_> = copy
            .labels()
            .map(|label| (label.category, label.flags))
            .collect();
        assert_eq!(
            kinds,
            [
                (1, FrameFlags::NONE),
                (0, FrameFlags::SCRIPT),
                (1, FrameFlags::NONE)
            ]
        );
    }

    #[test]
    fn used_stack_is_empty_outside_bounds() {
        let bounds = Some(StackBounds {
            low: 800,
            top: 8000,
        });
        assert_eq!(used_stack(4000, bounds), (4000, 4000));
        for (sp, bounds) in [(0, bounds), (799, bounds), (8000, bounds), (4000, None)] {
            assert_eq!(used_stack(sp, bounds), (0, 0));
        }
    }
}
