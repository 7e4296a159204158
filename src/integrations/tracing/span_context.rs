//! The context that a span gives to the samples of the threads in it.

use std::fmt;

use tracing_core::Subscriber;
use tracing_core::field::{Field, Visit};
use tracing_core::span::{Attributes, Id};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{Extensions, LookupSpan, SpanRef};

use crate::api::ProfilerContext;
use crate::integrations::application_text::{append_text, is_formatting};

/// Names of the fields with the ids.
pub(crate) const TRACE_ID: &str = "trace_id";
pub(crate) const SPAN_ID: &str = "span_id";
/// Maximum length of an id as a text, in bytes. A longer text is not an id.
const MAX_ID_BYTES: usize = 40;

/// A function of the application that finds the context in what other layers keep of a span.
pub(crate) type ContextOf = fn(&Extensions<'_>) -> Option<ProfilerContext>;

/// The ids in the fields of a span, among the span's extensions.
#[derive(Clone, Copy, Default)]
pub(crate) struct SpanIds {
    trace_id: Option<u128>,
    span_id: Option<u64>,
}

/// Keeps the ids in the fields of a new span. Returns whether it has any.
pub(crate) fn note_ids<S>(attributes: &Attributes<'_>, span: Option<SpanRef<'_, S>>) -> bool
where
    S: for<'a> LookupSpan<'a>,
{
    let fields = attributes.metadata().fields();
    let has_fields = fields.field(TRACE_ID).is_some() || fields.field(SPAN_ID).is_some();
    has_fields && keep_ids(span, |ids| attributes.record(ids))
}

/// Keeps the ids among the values that `record` gives. Returns whether there are any.
pub(crate) fn keep_ids<S>(span: Option<SpanRef<'_, S>>, record: impl FnOnce(&mut SpanIds)) -> bool
where
    S: for<'a> LookupSpan<'a>,
{
    let mut newer = SpanIds::default();
    // Runs code of the application, so the extensions are not locked during the call.
    record(&mut newer);
    let (true, Some(span)) = (newer.has_any(), span) else {
        return false;
    };
    let mut extensions = span.extensions_mut();
    let older = extensions.get_mut::<SpanIds>().copied().unwrap_or_default();
    extensions.replace(SpanIds {
        trace_id: newer.trace_id.or(older.trace_id),
        span_id: newer.span_id.or(older.span_id),
    });
    true
}

/// Returns the context of a span: what the spans around it say, the innermost last.
pub(crate) fn context_of<S>(
    id: &Id,
    context: &Context<'_, S>,
    of_application: Option<ContextOf>,
) -> Option<ProfilerContext>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let span = context.span(id)?;
    let mut found = None;
    for span in span.scope().from_root() {
        let extensions = span.extensions();
        if let Some(own) = of_application.and_then(|of_application| of_application(&extensions)) {
            found = Some(own);
        }
        if let Some(ids) = extensions.get::<SpanIds>() {
            found = Some(ids.add_to(found.unwrap_or_default()));
        }
    }
    found
}

impl SpanIds {
    fn has_any(&self) -> bool {
        self.trace_id.is_some() || self.span_id.is_some()
    }

    fn add_to(self, mut context: ProfilerContext) -> ProfilerContext {
        if let Some(trace_id) = self.trace_id {
            context = context.with_trace_id(trace_id);
        }
        if let Some(span_id) = self.span_id {
            context = context.with_span_id(span_id);
        }
        context
    }

    fn set(&mut self, field: &Field, id: Option<u128>) {
        match field.name() {
            TRACE_ID => self.trace_id = id,
            SPAN_ID => self.span_id = id.and_then(|id| u64::try_from(id).ok()),
            _ => {}
        }
    }
}

impl Visit for SpanIds {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, Some(value.into()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, u128::try_from(value).ok());
    }

    fn record_i128(&mut self, field: &Field, value: i128) {
        self.set(field, u128::try_from(value).ok());
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        self.set(field, Some(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        // An id may have the form of a UUID.
        let digits: String = value
            .chars()
            .filter(|character| *character != '-')
            .collect();
        self.set(field, u128::from_str_radix(&digits, 16).ok());
    }

    /// A value that is recorded by `Display`, as `%trace_id` is.
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if matches!(field.name(), TRACE_ID | SPAN_ID) && !is_formatting() {
            let mut text = Vec::new();
            append_text(&mut text, format_args!("{value:?}"), MAX_ID_BYTES);
            if let Ok(text) = std::str::from_utf8(&text) {
                self.record_str(field, text);
            }
        }
    }
}
