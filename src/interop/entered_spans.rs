//! The spans that the calling thread is in, with their labels.
//!
//! A span is left on the thread that entered it, but maybe not in order, and maybe without ever having been entered here: the
//! layer may be younger, or the thread's list at its end.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use tracing_core::Metadata;

use crate::api::AutoProfilerLabel;
use crate::base::{ProfilerTime, ProfilingCategoryPair};
use crate::interop::open_spans::SpanKey;
use crate::interop::span_flow::SpanFlow;

/// So many a thread has; deeper ones have neither a label nor a time. More than a sample has labels.
const MOST_ENTERED: usize = 4096;

/// A span that the thread is in.
#[derive(Debug)]
struct EnteredSpan {
    key: SpanKey,
    label: Option<EnteredLabel>,
    recorded: Option<RecordedSpan>,
}

/// What else is known of one that a session records.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordedSpan {
    pub(super) flow: SpanFlow,
    /// Since when the thread is in it; `None` where nobody wants to know.
    pub(super) since: Option<ProfilerTime>,
}

/// The span that the thread has made last, which is most often the next that it enters.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewestSpan {
    pub(super) key: SpanKey,
    pub(super) metadata: &'static Metadata<'static>,
    pub(super) flow: Option<SpanFlow>,
}

/// A label as it is pushed.
#[derive(Clone, Copy, Debug)]
pub(super) struct SpanLabel {
    pub(super) name: &'static str,
    pub(super) category: ProfilingCategoryPair,
    pub(super) stack_address: usize,
}

/// One that is pushed.
#[derive(Debug)]
struct EnteredLabel {
    what: SpanLabel,
    guard: Option<AutoProfilerLabel>,
}

impl EnteredLabel {
    #[inline]
    fn push(what: SpanLabel) -> Self {
        let SpanLabel {
            name,
            category,
            stack_address,
        } = what;
        Self {
            what,
            guard: Some(AutoProfilerLabel::with_stack_address(
                name,
                category,
                stack_address,
            )),
        }
    }
}

thread_local! {
    static ENTERED: RefCell<Vec<EnteredSpan>> = const { RefCell::new(Vec::new()) };
    static NEWEST: Cell<Option<NewestSpan>> = const { Cell::new(None) };
}

#[inline]
pub(super) fn set_newest(span: NewestSpan) {
    NEWEST.set(Some(span));
}

/// What is known of this span if it is the thread's newest.
#[inline]
pub(super) fn newest(key: SpanKey) -> Option<NewestSpan> {
    NEWEST.get().filter(|span| span.key == key)
}

/// Does nothing at the thread's end, and in an allocator of the host's that is called from here and enters spans.
#[inline]
fn with_entered<T>(body: impl FnOnce(&mut Vec<EnteredSpan>) -> Option<T>) -> Option<T> {
    ENTERED
        .try_with(|entered| body(&mut *entered.try_borrow_mut().ok()?))
        .ok()
        .flatten()
}

/// The thread enters a span.
#[inline]
pub(super) fn enter(key: SpanKey, label: Option<SpanLabel>, recorded: Option<RecordedSpan>) {
    with_entered(|entered| {
        if entered.len() < MOST_ENTERED {
            entered.push(EnteredSpan {
                key,
                label: label.map(EnteredLabel::push),
                recorded,
            });
        }
        Some(())
    });
}

/// The thread leaves a span. For how long it was in it, if that is to be known, and it is not in it still, having entered it more than
/// once.
#[inline]
pub(super) fn leave(key: SpanKey) -> Option<Duration> {
    let since = with_entered(|entered| {
        let place = entered.iter().rposition(|span| span.key == key)?;
        let span = if place + 1 == entered.len() {
            entered.pop()?
        } else {
            remove_from_below(entered, place)
        };
        // The outermost has all the time.
        span.recorded?
            .since
            .filter(|_| !entered.iter().any(|span| span.key == key))
    });
    since.map(|since| ProfilerTime::now().duration_since(since))
}

/// The innermost span that the thread is in, as far as this layer knows it; if it is recorded.
#[inline]
pub(super) fn current(layer: u32) -> Option<SpanFlow> {
    with_entered(|entered| {
        entered
            .iter()
            .rev()
            .find(|span| span.key.layer == layer)?
            .recorded
            .map(|recorded| recorded.flow)
    })
}

/// A label goes with all those above it, so these are pushed anew, to where they were. What others pushed between is lost.
#[cold]
fn remove_from_below(entered: &mut Vec<EnteredSpan>, place: usize) -> EnteredSpan {
    for span in entered[place..].iter_mut().rev() {
        if let Some(label) = &mut span.label {
            label.guard = None;
        }
    }
    let removed = entered.remove(place);
    for label in entered[place..]
        .iter_mut()
        .filter_map(|span| span.label.as_mut())
    {
        *label = EnteredLabel::push(label.what);
    }
    removed
}
