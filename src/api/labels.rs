//! Labels: frames that the program names itself.

use std::pin::Pin;
use std::task::Context;

use crate::api::engine;
use crate::base::{FrameFlags, LabelFlags, PolledWith, ProfilingCategoryPair, ShortText};

/// A label on the calling thread's stack, from its making until its drop.
///
/// In the profile it stands as a frame just above the function that made it; above the one that this was inlined into, if
/// it was. It is there also for samples of a session
/// that began after it. It is bound to its thread; one that is forgotten, or dropped out of order, can at worst remove
/// labels and script frames that were pushed after it.
///
/// A sample holds the 1,024 oldest labels and script frames of its thread; “(newer labels left out)” stands for the others.
/// A thread has 1,048,576 of them at most; what is pushed beyond is lost.
///
/// A text that the viewer would take for an address (`0x…`), or for a function in a file or library (`read (a.rs:3)`), has in the
/// profile a no-break space before it, or before the bracket. Others come out as they are.
///
/// Not for a signal handler of the host's: it may come in the middle of a push. (The profiler's own knows what it may find.)
///
/// Cost: a few stores; on a thread that is not registered, a load. Usually made by
/// [`auto_profiler_label!`](crate::auto_profiler_label). Idea: Gecko's `AutoProfilerLabel`, whose place in the stack is
/// its own address; here it is the stack pointer at the push, since Rust moves values.
#[derive(Debug)]
#[must_use = "the label is popped when this is dropped"]
pub struct AutoProfilerLabel(engine::LabelToken);

impl AutoProfilerLabel {
    /// Pushes a label.
    #[inline(always)]
    pub fn new(label: &'static str, category: ProfilingCategoryPair) -> Self {
        Self(push(label, category, FrameFlags::NONE))
    }

    /// Pushes a label whose text is its subcategory's.
    #[doc(alias = "AUTO_PROFILER_LABEL_CATEGORY_PAIR")]
    #[doc(alias = "LABEL_DETERMINED_BY_CATEGORY_PAIR")]
    #[inline(always)]
    pub fn of_category(category: ProfilingCategoryPair) -> Self {
        Self::new(category.label(), category)
    }

    /// Pushes a label on behalf of a function that is none of the callers of this: by a hook, say, that has returned before the
    /// function goes on. It stands where `stack_address` says: that is the address of a local variable of the function, as a
    /// number; nothing is read from there.
    ///
    /// An address that lies elsewhere moves the label to the inner or outer end of the native frames. Labels and script frames
    /// keep their order, so one that stands further in than it should moves all that is pushed after it along, to there.
    #[inline(always)]
    pub fn with_stack_address(
        label: &'static str,
        category: ProfilingCategoryPair,
        stack_address: usize,
    ) -> Self {
        Self(engine::push_label(
            stack_address as u64,
            label,
            category,
            FrameFlags::NONE,
        ))
    }

    /// Pushes a label with a text that is copied: 512 bytes of it at most, cut at a character.
    ///
    /// A thread's labels hold 64 MiB of such texts, and a sample of it 48 KiB, those of the oldest labels; beyond, a label
    /// is there without.
    #[inline(always)]
    pub fn with_dynamic(
        label: &'static str,
        dynamic: &str,
        category: ProfilingCategoryPair,
    ) -> Self {
        Self(push_with_text(label, category, FrameFlags::NONE, dynamic))
    }

    /// The same with a text in UTF-16, of which each part that is none becomes U+FFFD. No allocation.
    #[doc(alias = "AUTO_PROFILER_LABEL_DYNAMIC_LOSSY_NSSTRING")]
    #[inline(always)]
    pub fn with_dynamic_utf16(
        label: &'static str,
        dynamic: &[u16],
        category: ProfilingCategoryPair,
    ) -> Self {
        Self::with_dynamic(label, ShortText::from_utf16(dynamic).as_str(), category)
    }

    /// The same, and more that is said of it.
    #[doc(alias = "AUTO_PROFILER_LABEL_DYNAMIC_FAST")]
    #[inline(always)]
    pub fn with_flags(
        label: &'static str,
        dynamic: &str,
        category: ProfilingCategoryPair,
        flags: LabelFlags,
    ) -> Self {
        Self(push_with_text(label, category, flags.0, dynamic))
    }

    /// Pushes a label that the viewer also shows when it is asked for the frames of scripts alone: “JavaScript” in its
    /// call tree. For what a script asks of its host.
    #[doc(alias = "AUTO_PROFILER_LABEL_RELEVANT_FOR_JS")]
    #[inline(always)]
    pub fn relevant_for_js(label: &'static str, category: ProfilingCategoryPair) -> Self {
        Self(push(label, category, FrameFlags::RELEVANT_FOR_JS))
    }

    /// The same with a text that is copied, as by [`with_dynamic`](Self::with_dynamic).
    #[doc(alias = "AUTO_PROFILER_LABEL_DYNAMIC_CSTR_RELEVANT_FOR_JS")]
    #[inline(always)]
    pub fn relevant_for_js_with_dynamic(
        label: &'static str,
        dynamic: &str,
        category: ProfilingCategoryPair,
    ) -> Self {
        Self(push_with_text(
            label,
            category,
            FrameFlags::RELEVANT_FOR_JS,
            dynamic,
        ))
    }
}

#[inline(always)]
fn push(
    label: &'static str,
    category: ProfilingCategoryPair,
    flags: FrameFlags,
) -> engine::LabelToken {
    engine::push_label(engine::stack_pointer(), label, category, flags)
}

#[inline(always)]
fn push_with_text(
    label: &'static str,
    category: ProfilingCategoryPair,
    flags: FrameFlags,
    dynamic: &str,
) -> engine::LabelToken {
    engine::push_label_with_text(engine::stack_pointer(), label, category, flags, dynamic)
}

impl Drop for AutoProfilerLabel {
    #[inline(always)]
    fn drop(&mut self) {
        engine::pop_labels(&self.0);
    }
}

/// A label wherever a future runs: pushed each time that it is polled, and popped when that returns.
///
/// ```
/// # async fn answer() -> u32 { 42 }
/// # fn spawn<F: Future>(_: F) {}
/// let category = gekkota::gecko_profiler_category!(Network);
/// spawn(gekkota::labelled_future("answer", category, answer()));
/// ```
///
/// The label is there on whatever thread polls it, if that is registered, and not while the future waits. Cost: a label's for each
/// poll. The future is as `Send` as the one that is given, and hardly larger.
pub fn labelled_future<F: Future>(
    label: &'static str,
    category: ProfilingCategoryPair,
    future: F,
) -> impl Future<Output = F::Output> {
    PolledWith::new(
        future,
        move |future: Pin<&mut F>, context: &mut Context<'_>| {
            let _label = AutoProfilerLabel::new(label, category);
            future.poll(context)
        },
    )
}

/// The same with a text, of which the label has a copy: 512 bytes at most, cut at a character.
pub fn labelled_future_with_dynamic<F: Future>(
    label: &'static str,
    dynamic: impl AsRef<str> + Unpin,
    category: ProfilingCategoryPair,
    future: F,
) -> impl Future<Output = F::Output> {
    PolledWith::new(
        future,
        move |future: Pin<&mut F>, context: &mut Context<'_>| {
            let _label = AutoProfilerLabel::with_dynamic(label, dynamic.as_ref(), category);
            future.poll(context)
        },
    )
}
