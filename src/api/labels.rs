//! Labels: frames that the program names itself.

use crate::api::engine;
use crate::base::{FrameFlags, ProfilingCategoryPair};

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

    /// Pushes a label with a text that is copied: 512 bytes of it at most, cut at a character.
    ///
    /// A thread's labels hold 64 MiB of such texts, and a sample of it 48 KiB, those of the oldest labels; beyond, a label
    /// is there without.
    #[inline(always)]
    pub fn with_dynamic(label: &'static str, dynamic: &str, category: ProfilingCategoryPair) -> Self {
        Self(push_with_text(label, category, FrameFlags::NONE, dynamic))
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
        Self(push_with_text(label, category, FrameFlags::RELEVANT_FOR_JS, dynamic))
    }
}

#[inline(always)]
fn push(label: &'static str, category: ProfilingCategoryPair, flags: FrameFlags) -> engine::LabelToken {
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
