//! The spans that the calling thread has entered, with their labels.
//!
//! A thread exits the spans it entered, but not always in reverse order. It may also exit a span
//! that is missing from its list, because the layer is newer than the entry or the list was
//! destroyed at the thread's exit.

use std::cell::{Cell, RefCell};

use tracing_core::Metadata;

use crate::api::{AutoProfilerLabel, EnteredWait, ProfilerContext};
use crate::integrations::tracing::open_spans::{SpanFlow, SpanKey};
use crate::types::{ProfilerTime, ProfilingCategoryPair};

/// Maximum number of entered spans that a thread keeps. Deeper ones have neither a label nor a
/// time. A sample has fewer labels.
const MAX_ENTERED: usize = 4096;

/// A span that the thread has entered.
#[derive(Debug)]
struct EnteredSpan {
    key: SpanKey,
    label: Option<SpanLabel>,
    /// The label on the thread's label stack.
    pushed: Option<AutoProfilerLabel>,
    recorded: Option<RecordedSpan>,
    /// The context that the thread had before the span gave it another one; `None` if the span has
    /// none.
    context_before: Option<ProfilerContext>,
    /// The entry, if a session records where the span's future waits.
    wait: Option<EnteredWait>,
}

/// Further data of an entered span, if a session records the span.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordedSpan {
    pub(crate) flow: SpanFlow,
    /// Time at which the thread entered the span; `None` if busy times are not measured.
    pub(crate) since: Option<ProfilerTime>,
}

/// The span that the thread created last. Most often it is also the next that the thread enters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewestSpan {
    pub(crate) key: SpanKey,
    pub(crate) metadata: &'static Metadata<'static>,
    pub(crate) flow: Option<SpanFlow>,
}

/// The arguments for pushing a span's label.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpanLabel {
    pub(crate) name: &'static str,
    pub(crate) category: ProfilingCategoryPair,
    pub(crate) stack_address: usize,
}

impl SpanLabel {
    #[inline]
    fn push(self) -> AutoProfilerLabel {
        AutoProfilerLabel::with_stack_address(self.name, self.category, self.stack_address)
    }
}

thread_local! {
    static ENTERED: RefCell<Vec<EnteredSpan>> = const { RefCell::new(Vec::new()) };
    static NEWEST: Cell<Option<NewestSpan>> = const { Cell::new(None) };
}

#[inline]
pub(crate) fn set_newest(span: NewestSpan) {
    NEWEST.set(Some(span));
}

/// Returns the data of this span if it is the thread's newest.
#[inline]
pub(crate) fn newest(key: SpanKey) -> Option<NewestSpan> {
    NEWEST.get().filter(|span| span.key == key)
}

/// Runs `body` on the thread's list.
///
/// Returns `None` at the thread's exit, and in a nested call: `body` may call the application's
/// allocator, which may enter spans itself.
#[inline]
fn with_entered<T>(body: impl FnOnce(&mut Vec<EnteredSpan>) -> Option<T>) -> Option<T> {
    ENTERED
        .try_with(|entered| body(&mut *entered.try_borrow_mut().ok()?))
        .ok()
        .flatten()
}

/// Records that the thread enters a span. Returns whether there is space for it.
#[inline]
pub(crate) fn enter(
    key: SpanKey,
    label: Option<SpanLabel>,
    recorded: Option<RecordedSpan>,
    context: Option<ProfilerContext>,
    wait: Option<EnteredWait>,
) -> bool {
    with_entered(|entered| {
        let has_space = entered.len() < MAX_ENTERED;
        if has_space {
            entered.push(EnteredSpan {
                key,
                label,
                pushed: label.map(SpanLabel::push),
                recorded,
                context_before: context.map(ProfilerContext::replace_current),
                wait,
            });
        }
        has_space.then_some(())
    })
    .is_some()
}

/// What a thread exits with a span.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LeftSpan {
    /// Time of the span's outermost entry, if it is measured and this was the exit from that entry.
    pub(crate) since: Option<ProfilerTime>,
    /// The span's flow, if a session records the span.
    pub(crate) flow: Option<SpanFlow>,
    /// The entry, if a session records where the span's future waits.
    pub(crate) wait: Option<EnteredWait>,
}

/// Records that the thread exits a span.
#[inline]
pub(crate) fn leave(key: SpanKey) -> LeftSpan {
    with_entered(|entered| {
        let index = entered.iter().rposition(|span| span.key == key)?;
        let span = if index + 1 == entered.len() {
            entered.pop()?
        } else {
            remove_from_below(entered, index)
        };
        if let Some(before) = span.context_before {
            // The next span inside of this one leaves to what was before this one.
            let mut inside = entered[index..].iter_mut();
            match inside.find_map(|inner| inner.context_before.as_mut()) {
                Some(inner) => *inner = before,
                None => _ = before.replace_current(),
            }
        }
        // A span that was entered more than once is measured from its outermost entry.
        let since = span.recorded.and_then(|recorded| recorded.since);
        let since = since.filter(|_| !entered.iter().any(|span| span.key == key));
        Some(LeftSpan {
            since,
            flow: span.recorded.map(|recorded| recorded.flow),
            wait: span.wait,
        })
    })
    .unwrap_or_default()
}

/// Returns the flow of the innermost entered span of this layer, if a session records that span.
#[inline]
pub(crate) fn current(layer: u32) -> Option<SpanFlow> {
    with_entered(|entered| {
        entered
            .iter()
            .rev()
            .find(|span| span.key.layer == layer)?
            .recorded
            .map(|recorded| recorded.flow)
    })
}

/// Removes a span that is not the innermost.
///
/// Popping a label also pops all labels above it, so the labels of the spans above are pushed again
/// with the same stack addresses. Labels that other code pushed in between are lost.
#[cold]
fn remove_from_below(entered: &mut Vec<EnteredSpan>, index: usize) -> EnteredSpan {
    for span in entered[index..].iter_mut().rev() {
        span.pushed = None;
    }
    let removed = entered.remove(index);
    for span in &mut entered[index..] {
        span.pushed = span.label.map(SpanLabel::push);
    }
    removed
}
