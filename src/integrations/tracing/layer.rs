//! A layer of `tracing_subscriber` that adds spans and events to the profile.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use tracing_core::span::{Attributes, Id, Record};
use tracing_core::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{Extensions, LookupSpan};

use crate::api::{
    MarkerSession, ProfilerContext, add_marker, profiler_is_active,
    records_markers_of_current_thread, records_waits,
};
use crate::integrations::application_text::is_formatting;
use crate::integrations::tracing::entered_spans::{
    NewestSpan, RecordedSpan, SpanLabel, current, enter, leave, newest, set_newest,
};
use crate::integrations::tracing::field_values::FieldValues;
use crate::integrations::tracing::markers::{TracingEvent, TracingSpan};
use crate::integrations::tracing::open_spans::{
    OPEN_SPANS, OpenSpan, SPAN_WAITS, SpanFlow, SpanKey, abandon_wait, enter_wait, exit_wait,
};
use crate::integrations::tracing::span_context::{ContextOf, context_of, keep_ids, note_ids};
use crate::markers::{MarkerOptions, MarkerStack};
use crate::types::{ProfilerTime, ProfilingCategoryPair};

/// Initial estimate of the stack space between the function that enters a span and this layer, in
/// bytes.
///
/// The estimate is high on purpose: a label that is too far out covers a few more functions, but
/// one that is too far in splits the function that enters the span.
const INITIAL_CALLER_DISTANCE: usize = if cfg!(debug_assertions) { 1024 } else { 512 };

/// A layer that adds the program's spans and events to the profile.
///
/// ```
/// use tracing::field::Empty;
/// use tracing_subscriber::prelude::*;
///
/// let category = gekkota::gecko_profiler_category!(Network);
/// let layer = gekkota::ProfilerLayer::new().with_category(category);
/// tracing_subscriber::registry().with(layer).init();
///
/// gekkota::register_thread("worker");
/// let request = tracing::info_span!("request", path = "/index.html", status = Empty).entered();
/// tracing::info!(bytes = 1024, "read");
/// request.record("status", 200);
/// ```
///
/// | in the application | in the profile |
/// |---|---|
/// | a thread is in a span | a label with the span's name, in samples of that thread |
/// | a span has ended | an interval with the span's name, from its start to its end, of the type `TracingSpan` |
/// | an event | an instant with the name of the event's target, of the viewer's type `Log`: a line of its log |
///
/// As with any layer, the application selects spans and events by `with_filter`. The first span or
/// event during a session registers a thread that has not registered, and the spans before it are
/// lost: see [`register_thread`](crate::api::register_thread). Async runtimes have hooks to
/// register their threads from the beginning, such as `on_thread_start` in Tokio, which takes a
/// [`start_hook`](crate::thread::start_hook); see the example `tokio_tracing`.
///
/// # Labels
/// Labels are pushed even while the profiler is inactive, so they also appear in samples of a
/// session that starts later than the span.
///
/// A label is placed directly above the function that entered the span. The layer learns this place
/// from the thread's stack, at the first span that is a local variable of the function that enters
/// it. Until then a label may be placed a few functions too far out.
///
/// The span of a future has a label while the future is polled, and none while it waits. If spans
/// are exited out of order, the others keep their labels, but labels and script frames that the
/// application pushed in between are lost. If a thread is in more than 4,096 spans, the innermost
/// have no label.
///
/// # Contexts
/// A span with a field `trace_id` or `span_id` gives the threads in it a [context](crate::context):
/// each of their samples has these ids. The spans inside of it inherit them. A value is a text of
/// hexadecimal digits, such as one recorded by `%`, or a number. It may be recorded later, for the
/// threads that enter the span then. A program that exports its spans by OpenTelemetry uses
/// [`with_context_of`](Self::with_context_of) instead, and needs no such fields.
///
/// # Waits
/// With the feature [`WAITING_TASKS`](crate::Features::WAITING_TASKS), a span that the thread has
/// exited waits until it is entered again or closed, unless a span inside of it waits. So the
/// future of an instrumented `async fn` waits between its polls. A span that does not belong to a
/// future also counts as waiting while it is kept open and no thread is in it. So does a future
/// that has ended while other handles keep its span open. A span that several threads are in waits
/// when the last of them has exited it. Cost, with the feature alone: a lookup in a table like that
/// of recorded spans, and a lock that all threads share, for each entry and exit.
///
/// # Intervals
/// A span becomes an interval if one session records markers both of the thread that creates the
/// span and of the thread that closes it by dropping the last handle. The interval is on the track
/// of the thread that closes it. A span that starts before its session or ends after it has no
/// interval.
///
/// The tooltip has a row for each field, and the viewer's search covers the fields. Numbers,
/// booleans and strings keep their type; other values are formatted by `Debug`. Text is truncated
/// to 512 bytes, at a character boundary. A value recorded later replaces the earlier one.
///
/// The layer appends a `_` to a field's name if it uses the name itself: `target`, `location`,
/// `busy`, `idle`, `span`, `parent`, `follows` and `fields` of spans, and `level`, `location`,
/// `span` and `fields` of events.
///
/// Markers of some callsites may lack fields if more than 3,000 callsites have made markers. The
/// types `TracingSpan` and `Log` list the fields of all callsites that have made markers since the
/// process started.
///
/// `busy` is the sum of the times that threads spent in the span, and `idle` is the remaining time.
/// `span` and `parent` are flows: they link a span with its child spans and its events, on any
/// thread. `follows` is the flow of the span that this span was last declared to follow.
///
/// # Values
/// Values are formatted only if they are recorded: once, on the calling thread, and under no lock.
/// If a value creates spans or events while it is formatted for a marker, these are not recorded.
/// If a value panics, its text ends in “(panicked)”, and the rest of the marker is unaffected.
///
/// # Cost
/// On the README's machine, a span without fields takes 153 ns from creation to end with only the
/// registry. This layer adds no measurable time while the profiler is inactive, and otherwise 211
/// ns, 56 ns of which are for labels and [`busy_times`](Self::busy_times). In the steady state no
/// memory is allocated.
///
/// Recorded spans are kept in a table of 2,048 slots, each with a lock that is held for a few
/// stores. Threads contend only if they use the same span, or spans in the same slot. Like
/// `tracing`, the layer must not be used in signal handlers.
#[doc(alias = "tracing")]
#[derive(Debug)]
pub struct ProfilerLayer {
    number: u32,
    category: ProfilingCategoryPair,
    stack: MarkerStack,
    has_labels: bool,
    has_busy_times: bool,
    caller_distance: AtomicUsize,
    context_of: Option<ContextOf>,
    /// Whether a span had the fields of a context.
    has_contexts: AtomicBool,
}

impl ProfilerLayer {
    /// Creates a layer with labels, in the category “Other”, whose events have no stacks.
    pub fn new() -> Self {
        static LAST_NUMBER: AtomicU32 = AtomicU32::new(0);
        Self {
            number: LAST_NUMBER.fetch_add(1, Ordering::Relaxed) + 1,
            category: ProfilingCategoryPair::Other(None),
            stack: MarkerStack::NoStack,
            has_labels: true,
            has_busy_times: true,
            caller_distance: AtomicUsize::new(INITIAL_CALLER_DISTANCE),
            context_of: None,
            has_contexts: AtomicBool::new(false),
        }
    }

    /// Sets the category of labels and markers.
    #[must_use]
    pub fn with_category(mut self, category: ProfilingCategoryPair) -> Self {
        self.category = category;
        self
    }

    /// Sets the stack of events. [`MarkerStack::Full`] shows the code that emitted the event; its
    /// innermost functions are those of `tracing` and this layer.
    #[must_use]
    pub fn with_stacks(mut self, stack: MarkerStack) -> Self {
        self.stack = stack;
        self
    }

    /// Sets whether a span is a label while a thread is in it; true by default.
    #[must_use]
    pub fn labels(mut self, has_labels: bool) -> Self {
        self.has_labels = has_labels;
        self
    }

    /// Sets whether the layer measures the time that threads spend in a span, for the fields `busy`
    /// and `idle`; true by default.
    ///
    /// These times are useful for futures; a thread usually stays in any other span until its end.
    /// Without them, a span takes two fewer reads of the clock.
    #[must_use]
    pub fn busy_times(mut self, has_busy_times: bool) -> Self {
        self.has_busy_times = has_busy_times;
        self
    }

    /// Sets the function that finds a span's context in what other layers keep of the span.
    ///
    /// The layer of the crate `tracing-opentelemetry` keeps the ids of the trace and the span
    /// there:
    ///
    /// ```ignore
    /// let layer = gekkota::ProfilerLayer::new().with_context_of(|extensions| {
    ///     let data = extensions.get::<tracing_opentelemetry::OtelData>()?;
    ///     let trace_id = u128::from_be_bytes(data.trace_id()?.to_bytes());
    ///     let span_id = u64::from_be_bytes(data.span_id()?.to_bytes());
    ///     Some(gekkota::context::ProfilerContext::new().with_trace_id(trace_id).with_span_id(span_id))
    /// });
    /// ```
    ///
    /// The layer calls the function whenever a thread enters a span: for that span and for each
    /// span around it, the outermost first. The last context counts. Ids in the fields of a span
    /// come on top. The function must not enter spans.
    ///
    /// Cost: a look into the registry for each of these spans.
    #[must_use]
    pub fn with_context_of(
        mut self,
        context_of: fn(&Extensions<'_>) -> Option<ProfilerContext>,
    ) -> Self {
        self.context_of = Some(context_of);
        self
    }

    fn key(&self, id: &Id) -> SpanKey {
        SpanKey {
            layer: self.number,
            id: id.into_u64(),
        }
    }

    /// Records the start of a span.
    #[inline]
    fn open(&self, key: SpanKey, session: MarkerSession, attributes: &Attributes<'_>) -> SpanFlow {
        let start = ProfilerTime::now();
        let mut values = FieldValues::new();
        attributes.record(&mut values);
        let flow = SpanFlow::new();
        let span = OpenSpan {
            session,
            start,
            metadata: attributes.metadata(),
            flow,
            parent: self.flow_around(attributes.parent(), attributes.is_contextual()),
            follows: None,
            trace_id: 0,
            busy: self.has_busy_times.then_some(Duration::ZERO),
            values,
        };
        OPEN_SPANS.insert(key, span);
        flow
    }

    /// Returns the context that a span gives to the threads in it.
    #[inline]
    fn context_in<S>(&self, id: &Id, context: &Context<'_, S>) -> Option<ProfilerContext>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let has_contexts = self.context_of.is_some() || self.has_contexts.load(Ordering::Relaxed);
        has_contexts
            .then(|| context_of(id, context, self.context_of))
            .flatten()
    }

    /// Returns the flow of a span, if the span is recorded.
    #[inline]
    fn flow_of(&self, id: &Id) -> Option<SpanFlow> {
        OPEN_SPANS.with(self.key(id), |span| span.flow)
    }

    /// Returns the flow of the span that contains a span or an event: the explicit parent, or the
    /// thread's current span.
    #[inline]
    fn flow_around(&self, parent: Option<&Id>, is_contextual: bool) -> Option<SpanFlow> {
        match parent {
            Some(parent) => self.flow_of(parent),
            None if is_contextual => current(self.number),
            None => None,
        }
    }

    /// Returns an address in the stack frame of the function that enters the span, or slightly
    /// above that frame.
    ///
    /// The layer runs below that frame, called through functions of `tracing`. They return before
    /// the function continues, so other frames will use this part of the stack. The distance from
    /// the layer to the frame is constant but unknown.
    ///
    /// With `#[instrument]` and with `let _entered = span.enter()`, the span is a local variable of
    /// the function that enters it, so the span's id lies in that frame. The ids of other spans are
    /// further away. So the smallest distance from the layer to an id above it is the distance to
    /// the frame.
    #[inline]
    fn caller_stack_address(&self, id: &Id) -> usize {
        let here = 0u8;
        let here = (&raw const here).addr();
        let caller_distance = self.caller_distance.load(Ordering::Relaxed);
        let to_id = std::ptr::from_ref(id).addr().wrapping_sub(here);
        if to_id < caller_distance {
            self.caller_distance.store(to_id, Ordering::Relaxed);
            return here + to_id;
        }
        here + caller_distance
    }
}

impl Default for ProfilerLayer {
    fn default() -> Self {
        Self::new()
    }
}

/// Removes the layer's open spans, because the layer is not notified of their end.
impl Drop for ProfilerLayer {
    fn drop(&mut self) {
        OPEN_SPANS.forget_layer(self.number);
        SPAN_WAITS.forget_layer(self.number);
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for ProfilerLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if note_ids(attributes, context.span(id)) {
            self.has_contexts.store(true, Ordering::Relaxed);
        }
        let (key, metadata) = (self.key(id), attributes.metadata());
        let flow = match MarkerSession::of_this_thread() {
            Some(session) if !is_formatting() => Some(self.open(key, session, attributes)),
            _ => None,
        };
        set_newest(NewestSpan {
            key,
            metadata,
            flow,
        });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if keep_ids(context.span(id), |ids| values.record(ids)) {
            self.has_contexts.store(true, Ordering::Relaxed);
        }
        let key = self.key(id);
        if !profiler_is_active() || is_formatting() || self.flow_of(id).is_none() {
            return;
        }
        let mut newer = FieldValues::new();
        values.record(&mut newer);
        OPEN_SPANS.with(key, |span| span.values.replace(&newer));
    }

    fn on_follows_from(&self, id: &Id, follows: &Id, _: Context<'_, S>) {
        if profiler_is_active()
            && let Some(follows) = self.flow_of(follows)
        {
            OPEN_SPANS.with(self.key(id), |span| span.follows = Some(follows));
        }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if !records_markers_of_current_thread() || is_formatting() {
            return;
        }
        let span = self.flow_around(event.parent(), event.is_contextual());
        let options = MarkerOptions::from(self.stack);
        add_marker(
            event.metadata().target(),
            self.category,
            options,
            TracingEvent::new(event, span),
        );
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        let key = self.key(id);
        let (metadata, flow) = match newest(key) {
            Some(newest) => (Some(newest.metadata), newest.flow),
            None => match OPEN_SPANS.with(key, |span| (span.metadata, span.flow)) {
                Some((metadata, flow)) => (Some(metadata), Some(flow)),
                None if self.has_labels => (context.metadata(id), None),
                None => (None, None),
            },
        };
        let recorded = flow.filter(|_| profiler_is_active()).map(|flow| {
            let since = self.has_busy_times.then(ProfilerTime::now);
            RecordedSpan { flow, since }
        });
        let label = metadata
            .filter(|_| self.has_labels)
            .map(|metadata| SpanLabel {
                name: metadata.name(),
                category: self.category,
                stack_address: self.caller_stack_address(id),
            });
        let span_context = self.context_in(id, &context);
        let wait = match records_waits() && !is_formatting() {
            true => metadata
                .or_else(|| context.metadata(id))
                .and_then(|metadata| enter_wait(key, metadata.name())),
            false => None,
        };
        if label.is_some() || recorded.is_some() || span_context.is_some() || wait.is_some() {
            let is_kept = enter(key, label, recorded, span_context, wait);
            if let (false, Some(entered)) = (is_kept, wait) {
                abandon_wait(key, entered);
            }
        }
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        let key = self.key(id);
        let left = leave(key);
        let busy = (left.since).map(|since| ProfilerTime::now().duration_since(since));
        if left.wait.is_none() && left.flow.is_none() {
            return;
        }
        // The ids may have been recorded in the span.
        let in_span = self.context_in(id, &context);
        let in_span = in_span.unwrap_or_else(ProfilerContext::current);
        if let Some(entered) = left.wait {
            let flow = left.flow.filter(|_| in_span.trace_id() == 0);
            let of_flow = |flow: SpanFlow| ProfilerContext::new().with_span_id(flow.id().number());
            let of_flow = flow.filter(|_| in_span.span_id() == 0).map(of_flow);
            exit_wait(key, entered, of_flow.unwrap_or(in_span));
        }
        if left.flow.is_some() {
            OPEN_SPANS.with(key, |span| {
                span.busy = span.busy.map(|sum| sum + busy.unwrap_or_default());
                span.trace_id = in_span.trace_id();
            });
        }
    }

    // The registry closes a span's parents in recursive calls around this one, thousands perhaps, so
    // its locals must not be in their frames.
    #[inline(never)]
    fn on_close(&self, id: Id, _: Context<'_, S>) {
        let key = self.key(&id);
        _ = SPAN_WAITS.remove(key);
        if let Some(span) = OPEN_SPANS.remove(key) {
            let (session, start, name) = (span.session, span.start, span.metadata.name());
            session.add_interval_until_now(name, self.category, start, |end| {
                TracingSpan::new(span, end)
            });
        }
    }
}
