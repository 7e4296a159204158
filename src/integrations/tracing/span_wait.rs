//! Where the futures of spans wait. A span that is open, and that no thread is in, waits.

use crate::api::{EnteredWait, ProfilerContext, TaskWait};
use crate::integrations::tracing::span_table::{OfSpan, SpanKey, SpanTable};

/// The state of a span that a thread has entered during a session that records waits.
#[derive(Debug)]
struct SpanWait {
    key: SpanKey,
    wait: TaskWait,
}

impl OfSpan for SpanWait {
    fn key(&self) -> SpanKey {
        self.key
    }
}

static TABLE: SpanTable<SpanWait> = SpanTable::new();

/// Ends the wait of a span that the thread enters.
pub(crate) fn enter_wait(key: SpanKey, name: &str) -> Option<EnteredWait> {
    let enter = |wait: &mut TaskWait| wait.enter(name, key.id);
    if let Some(entered) = TABLE.with(key, |span| enter(&mut span.wait)) {
        return entered;
    }
    let wait = TaskWait::new();
    TABLE.insert(SpanWait { key, wait });
    TABLE.with(key, |span| enter(&mut span.wait)).flatten()
}

/// Begins the wait of a span that the thread exits. `context` is that of the span.
pub(crate) fn exit_wait(key: SpanKey, entered: EnteredWait, context: ProfilerContext) {
    let is_open = TABLE
        .with(key, |span| span.wait.exit(entered, context.words()))
        .is_some();
    if !is_open {
        TaskWait::new().abandon(entered);
    }
}

/// Ends an entry whose exit will not be noticed.
pub(crate) fn abandon_wait(key: SpanKey, entered: EnteredWait) {
    let is_open = TABLE.with(key, |span| span.wait.abandon(entered)).is_some();
    if !is_open {
        TaskWait::new().abandon(entered);
    }
}

/// Ends the wait of a span that is closed.
pub(crate) fn close_wait(key: SpanKey) {
    _ = TABLE.remove(key);
}

/// Ends the waits of a dropped layer's spans.
pub(crate) fn forget_waits(layer: u32) {
    TABLE.forget_layer(layer);
}
