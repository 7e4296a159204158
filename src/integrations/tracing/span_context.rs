//! The context that a span gives to the samples of the threads in it.

use std::fmt;

use tracing_core::field::{Field, Visit};
use tracing_core::span::Attributes;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{Extensions, LookupSpan, SpanRef};

use crate::api::ProfilerContext;

/// Names of the fields with the ids.
const TRACE_ID: &str = "trace_id";
const SPAN_ID: &str = "span_id";

/// A function of the application that finds the context in what other layers keep of a span.
pub(crate) type ContextOf = fn(&Extensions<'_>) -> Option<ProfilerContext>;

/// The context of a span, among the span's extensions.
struct SpanContext(ProfilerContext);

/// Keeps the context of a new span if it has fields with ids. Returns whether it has.
pub(crate) fn note_ids<S>(attributes: &Attributes<'_>, span: Option<SpanRef<'_, S>>) -> bool
where
    S: for<'a> LookupSpan<'a>,
{
    let fields = attributes.metadata().fields();
    let has_ids = fields.field(TRACE_ID).is_some() || fields.field(SPAN_ID).is_some();
    let (true, Some(span)) = (has_ids, span) else {
        return false;
    };
    let mut ids = Ids::default();
    attributes.record(&mut ids);
    let mut context = inherited(&span, None).unwrap_or_default();
    if let Some(trace_id) = ids.trace_id {
        context = context.with_trace_id(trace_id);
    }
    if let Some(span_id) = ids.span_id {
        context = context.with_span_id(span_id);
    }
    span.extensions_mut().replace(SpanContext(context));
    true
}

/// Returns the context of a span: its own, or that of the nearest span around it which has one.
pub(crate) fn context_of<S>(
    id: &tracing_core::span::Id,
    context: &Context<'_, S>,
    of_application: Option<ContextOf>,
) -> Option<ProfilerContext>
where
    S: tracing_core::Subscriber + for<'a> LookupSpan<'a>,
{
    inherited(&context.span(id)?, of_application)
}

fn inherited<S>(span: &SpanRef<'_, S>, of_application: Option<ContextOf>) -> Option<ProfilerContext>
where
    S: for<'a> LookupSpan<'a>,
{
    span.scope().find_map(|span| {
        let extensions = span.extensions();
        match extensions.get::<SpanContext>() {
            Some(SpanContext(context)) => Some(*context),
            None => of_application?(&extensions),
        }
    })
}

/// The ids among the fields of a span.
#[derive(Default)]
struct Ids {
    trace_id: Option<u128>,
    span_id: Option<u64>,
}

impl Ids {
    fn set(&mut self, field: &Field, id: Option<u128>) {
        match field.name() {
            TRACE_ID => self.trace_id = id,
            SPAN_ID => self.span_id = id.and_then(|id| u64::try_from(id).ok()),
            _ => {}
        }
    }
}

impl Visit for Ids {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, Some(value.into()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, u128::try_from(value).ok());
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        self.set(field, Some(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, u128::from_str_radix(value, 16).ok());
    }

    /// A value that is recorded by `Display`, as `%trace_id` is.
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if matches!(field.name(), TRACE_ID | SPAN_ID) {
            self.record_str(field, &format!("{value:?}"));
        }
    }
}
