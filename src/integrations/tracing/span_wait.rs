//! Where the futures of spans wait. A span that is open, and that no thread is in, waits.

use crate::api::{EnteredWait, ProfilerContext, TaskWait};
use crate::integrations::tracing::span_table::{OfSpan, SpanKey, SpanTable};

/// The state of a span that a thread has entered during a session that records waits.
#[derive(Debug)]
pub(crate) struct SpanWait {
    key: SpanKey,
    wait: TaskWait,
}

impl OfSpan for SpanWait {
    fn key(&self) -> SpanKey {
        self.key
    }
}

pub(crate) static SPAN_WAITS: SpanTable<SpanWait> = SpanTable::new();

/// Ends the wait of a span that the thread enters.
pub(crate) fn enter_wait(key: SpanKey, name: &str) -> Option<EnteredWait> {
    let enter = |wait: &mut TaskWait| wait.enter(name, key.id);
    if let Some(entered) = SPAN_WAITS.with(key, |span| enter(&mut span.wait)) {
        return entered;
    }
    let wait = TaskWait::new();
    SPAN_WAITS.insert(SpanWait { key, wait });
    SPAN_WAITS.with(key, |span| enter(&mut span.wait)).flatten()
}

/// Begins the wait of a span that the thread exits. `context` is that of the span.
pub(crate) fn exit_wait(key: SpanKey, entered: EnteredWait, context: ProfilerContext) {
    let exit = |span: &mut SpanWait| span.wait.exit(entered, context.words());
    if SPAN_WAITS.with(key, exit).is_none() {
        TaskWait::new().abandon(entered);
    }
}

/// Ends an entry whose exit will not be noticed.
pub(crate) fn abandon_wait(key: SpanKey, entered: EnteredWait) {
    let abandon = |span: &mut SpanWait| span.wait.abandon(entered);
    if SPAN_WAITS.with(key, abandon).is_none() {
        TaskWait::new().abandon(entered);
    }
}
