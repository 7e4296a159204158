//! Where the futures of spans wait. A span that no thread is in, and that is open, waits.
//!
//! The state is taken out of the span's extensions while it changes, so that no code runs under their
//! lock.

use tracing_core::Subscriber;
use tracing_core::span::Id;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::{LookupSpan, SpanRef};

use crate::api::{EnteredWait, TaskWait};

/// The state of a span, among its extensions.
struct SpanWait(TaskWait);

/// Ends the wait of a span that the thread enters.
pub(crate) fn enter_wait<S>(id: &Id, name: &str, context: &Context<'_, S>) -> Option<EnteredWait>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let span = context.span(id)?;
    let mut wait = take(&span).unwrap_or_default();
    let entered = wait.enter(name);
    span.extensions_mut().replace(SpanWait(wait));
    entered
}

/// Begins the wait of a span that the thread exits.
pub(crate) fn exit_wait<S>(id: &Id, entered: EnteredWait, context: &Context<'_, S>)
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let span = context.span(id);
    let mut wait = span.as_ref().and_then(take).unwrap_or_default();
    wait.exit(entered);
    if let Some(span) = span {
        span.extensions_mut().replace(SpanWait(wait));
    }
}

/// Ends the wait of a span that is closed.
pub(crate) fn close_wait<S>(id: &Id, context: &Context<'_, S>)
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    drop(context.span(id).as_ref().and_then(take));
}

fn take<S>(span: &SpanRef<'_, S>) -> Option<TaskWait>
where
    S: for<'a> LookupSpan<'a>,
{
    let mut extensions = span.extensions_mut();
    let SpanWait(wait) = extensions.get_mut()?;
    Some(std::mem::take(wait))
}
