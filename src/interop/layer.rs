//! A layer of `tracing_subscriber` that adds spans and events to the profile.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use tracing_core::span::{Attributes, Id, Record};
use tracing_core::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::api::{
    MarkerSession, add_marker, current_thread_is_being_profiled_for_markers, is_active,
};
use crate::base::{ProfilerTime, ProfilingCategoryPair};
use crate::interop::entered_spans::{
    NewestSpan, RecordedSpan, SpanLabel, current, enter, leave, newest, set_newest,
};
use crate::interop::event_marker::TracingEvent;
use crate::interop::field_values::FieldValues;
use crate::interop::host_text::is_formatting;
use crate::interop::open_spans::{self, OpenSpan, SpanKey, forget_layer, with_span};
use crate::interop::span_flow::SpanFlow;
use crate::interop::span_marker::TracingSpan;
use crate::markers::{MarkerOptions, MarkerStack};

/// How many bytes below the function that enters a span this layer is called, as long as nothing better is known. Rather too
/// many: a label that is too far out has more below it, and one that is too far in has it cut in two.
const FIRST_DISTANCE: usize = if cfg!(debug_assertions) { 1024 } else { 512 };

/// A layer that adds the program's spans and events to the profile.
///
/// ```
/// use tracing_subscriber::prelude::*;
///
/// let category = gekkota::gecko_profiler_category!(Network);
/// tracing_subscriber::registry().with(gekkota::ProfilerLayer::new().with_category(category)).init();
///
/// gekkota::register_thread("worker");
/// let request = tracing::info_span!("request", path = "/index.html", status = tracing::field::Empty).entered();
/// tracing::info!(bytes = 1024, "read");
/// request.record("status", 200);
/// ```
///
/// | what | is |
/// |---|---|
/// | a thread in a span | a label with the span's name, in the samples of that thread |
/// | a span that has ended | an interval of that name, from its beginning to its end, of the type `TracingSpan` |
/// | an event | an instant with the name of its target, of the viewer's type `Log`: a line of its log |
///
/// Which spans and events come is for the host to say, by `with_filter`, as with any layer. Nothing here replaces
/// [`register_thread`](crate::register_thread): labels and markers are those of threads that are registered. A runtime has hooks for
/// that, `on_thread_start` in Tokio; see the package `examples/tokio_tracing`.
///
/// # Labels
/// They are there whether the profiler is active or not, so also in samples of a session that began after the span was entered. A
/// label stands above the function that entered the span: where that is told by the thread's stack, which is after the first span
/// that was a variable of the function that entered it; until then it may stand a few functions too far out. The span of a future is a
/// label wherever it is polled, and nowhere while it waits. Spans that are left out of order keep theirs; a label or script frame of
/// the host's that was pushed between them is lost then. Beyond 4,096 spans that a thread is in, the newer ones have none.
///
/// # Intervals
/// A span is an interval if a session records markers of the thread that makes it, and the same session those of the thread that
/// closes it, by dropping the last handle: on that one's track it is shown. So of a span that began before its session, or that ends
/// after it, there is none.
///
/// Its fields are rows of its tooltip, and can be searched: numbers, booleans and texts as what they are, other values as
/// `Debug` has them, and texts up to 512 bytes, cut at a character. What is recorded later takes the place of what was before. A name
/// that the layer needs itself has a `_` behind it: `target`, `location`, `busy`, `idle`, `span`, `parent`, `follows`, `fields`;
/// of events `level`, `location`, `span`, `fields`. Beyond the first 3,000 places in the program that have made markers, there
/// may be some whose markers have no fields. The types `TracingSpan` and `Log` list the fields of all places that made markers since the
/// process began.
///
/// `busy` is how long threads were in the span, all together, and `idle` the rest. `span` and `parent` are flows, which link a span with
/// those in it and with its events, on any thread; `follows` is the last that it was said to follow.
///
/// # Values
/// Where nothing is recorded no value is formatted. Else it is done once, on the calling thread, under no lock. What a value says while
/// it is formatted for a marker, by spans and events of its own, is not recorded; one that panics ends in “(panicked)”, and spoils
/// nothing else.
///
/// # Cost
/// On the machine of the README a span without fields takes 153 ns in the registry alone, from its making to its end. With this layer it
/// takes nothing measurable more while no profiler is active, else 211 ns more, of which labels and
/// [`busy_times`](Self::busy_times) are 56. No memory is allocated in the steady state. Recorded spans lie in a table of 2,048
/// slots, each with a lock that is held for a few stores; threads meet there that use the same span, or spans that fall into the
/// same slot. Not for signal handlers, as `tracing` is not.
#[doc(alias = "tracing")]
#[derive(Debug)]
pub struct ProfilerLayer {
    number: u32,
    category: ProfilingCategoryPair,
    stack: MarkerStack,
    has_labels: bool,
    has_busy_times: bool,
    distance: AtomicUsize,
}

impl ProfilerLayer {
    /// With labels, in the category “Other”, and events without stacks.
    pub fn new() -> Self {
        static LAST_NUMBER: AtomicU32 = AtomicU32::new(0);
        Self {
            number: LAST_NUMBER.fetch_add(1, Ordering::Relaxed) + 1,
            category: ProfilingCategoryPair::Other(None),
            stack: MarkerStack::NoStack,
            has_labels: true,
            has_busy_times: true,
            distance: AtomicUsize::new(FIRST_DISTANCE),
        }
    }

    /// Labels and markers are of this category.
    #[must_use]
    pub fn with_category(mut self, category: ProfilingCategoryPair) -> Self {
        self.category = category;
        self
    }

    /// Events have this stack: [`MarkerStack::Full`] tells who said it. It ends with functions of `tracing` and this layer.
    #[must_use]
    pub fn with_stacks(mut self, stack: MarkerStack) -> Self {
        self.stack = stack;
        self
    }

    /// Whether spans are labels while a thread is in them.
    #[must_use]
    pub fn labels(mut self, has_labels: bool) -> Self {
        self.has_labels = has_labels;
        self
    }

    /// Whether it is measured how long threads are in a span: the fields `busy`, and `idle` for the rest. That says something of
    /// futures; other spans are left by the time they end. Without it a span costs the clock two looks less.
    #[must_use]
    pub fn busy_times(mut self, has_busy_times: bool) -> Self {
        self.has_busy_times = has_busy_times;
        self
    }

    fn key(&self, id: &Id) -> SpanKey {
        SpanKey {
            layer: self.number,
            id: id.into_u64(),
        }
    }

    /// A span begins that the session records.
    #[inline]
    fn open(&self, key: SpanKey, session: MarkerSession, attributes: &Attributes<'_>) -> SpanFlow {
        let start = ProfilerTime::now();
        let mut values = FieldValues::new();
        attributes.record(&mut values);
        let flow = SpanFlow::new();
        open_spans::insert(OpenSpan {
            key,
            session,
            start,
            metadata: attributes.metadata(),
            flow,
            parent: self.flow_around(attributes.parent(), attributes.is_contextual()),
            follows: None,
            busy: self.has_busy_times.then_some(Duration::ZERO),
            values,
        });
        flow
    }

    /// The flow of a span, if it is recorded.
    #[inline]
    fn flow_of(&self, id: &Id) -> Option<SpanFlow> {
        with_span(self.key(id), |span| span.flow)
    }

    /// The flow of what a span or an event is in: the span that it names, or the thread's.
    #[inline]
    fn flow_around(&self, parent: Option<&Id>, is_contextual: bool) -> Option<SpanFlow> {
        match parent {
            Some(parent) => self.flow_of(parent),
            None if is_contextual => current(self.number),
            None => None,
        }
    }

    /// An address in the frame of the function that enters the span, or a little above.
    ///
    /// The layer is called from below it, through functions of `tracing` which have returned before the function goes on; so where
    /// the layer itself stands, others will be. How far below it is the same each time, but nobody tells. Where the span is a
    /// variable of the function that enters it, as it is by `#[instrument]` and `let _entered = span.enter()`, its id lies in that
    /// function's frame: so the least distance to an id above is the one looked for. Ids of other spans are further away.
    #[inline]
    fn place_of_caller(&self, id: &Id) -> usize {
        let here = 0u8;
        let here = (&raw const here).addr();
        let distance = self.distance.load(Ordering::Relaxed);
        let to_id = std::ptr::from_ref(id).addr().wrapping_sub(here);
        if to_id < distance {
            self.distance.store(to_id, Ordering::Relaxed);
            return here + to_id;
        }
        here + distance
    }
}

impl Default for ProfilerLayer {
    fn default() -> Self {
        Self::new()
    }
}

/// Nobody tells of the spans that are open still.
impl Drop for ProfilerLayer {
    fn drop(&mut self) {
        forget_layer(self.number);
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for ProfilerLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, _: Context<'_, S>) {
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

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        let key = self.key(id);
        if !is_active() || is_formatting() || self.flow_of(id).is_none() {
            return;
        }
        let mut newer = FieldValues::new();
        values.record(&mut newer);
        with_span(key, |span| span.values.replace(&newer));
    }

    fn on_follows_from(&self, id: &Id, follows: &Id, _: Context<'_, S>) {
        if is_active()
            && let Some(follows) = self.flow_of(follows)
        {
            with_span(self.key(id), |span| span.follows = Some(follows));
        }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if !current_thread_is_being_profiled_for_markers() || is_formatting() {
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
            None => match with_span(key, |span| (span.metadata, span.flow)) {
                Some((metadata, flow)) => (Some(metadata), Some(flow)),
                None if self.has_labels => (context.metadata(id), None),
                None => return,
            },
        };
        let recorded = flow.filter(|_| is_active()).map(|flow| {
            let since = self.has_busy_times.then(ProfilerTime::now);
            RecordedSpan { flow, since }
        });
        let label = metadata
            .filter(|_| self.has_labels)
            .map(|metadata| SpanLabel {
                name: metadata.name(),
                category: self.category,
                stack_address: self.place_of_caller(id),
            });
        if label.is_some() || recorded.is_some() {
            enter(key, label, recorded);
        }
    }

    fn on_exit(&self, id: &Id, _: Context<'_, S>) {
        let key = self.key(id);
        if let Some(busy) = leave(key) {
            with_span(key, |span| {
                span.busy = span.busy.map(|before| before + busy)
            });
        }
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        if let Some(span) = open_spans::remove(self.key(&id)) {
            let (session, start, name) = (span.session, span.start, span.metadata.name());
            session.add_interval_until_now(name, self.category, start, |end| {
                TracingSpan::new(span, end)
            });
        }
    }
}
