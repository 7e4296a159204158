//! The spans that sessions record, from their start to their end.

use std::time::Duration;

use tracing_core::Metadata;

use crate::api::MarkerSession;
use crate::integrations::tracing::field_values::FieldValues;
use crate::integrations::tracing::span_flow::SpanFlow;
use crate::integrations::tracing::span_table::{OfSpan, SpanKey, SpanTable};
use crate::types::ProfilerTime;

/// A span that a session records.
#[derive(Debug)]
pub(crate) struct OpenSpan {
    pub(crate) key: SpanKey,
    pub(crate) session: MarkerSession,
    pub(crate) start: ProfilerTime,
    pub(crate) metadata: &'static Metadata<'static>,
    pub(crate) flow: SpanFlow,
    pub(crate) parent: Option<SpanFlow>,
    pub(crate) follows: Option<SpanFlow>,
    /// The id of the trace in which a thread has exited the span; 0 for none.
    pub(crate) trace_id: u128,
    /// Sum of the times that threads spent in the span; `None` if busy times are not measured.
    pub(crate) busy: Option<Duration>,
    pub(crate) values: FieldValues,
}

impl OfSpan for OpenSpan {
    #[inline]
    fn key(&self) -> SpanKey {
        self.key
    }
}

pub(crate) static OPEN_SPANS: SpanTable<OpenSpan> = SpanTable::new();

#[cfg(test)]
mod tests {
    use super::*;
    use crate::integrations::tracing::span_table::SLOTS;

    fn open(layer: u32, id: u64) -> SpanKey {
        let key = SpanKey { layer, id };
        OPEN_SPANS.insert(OpenSpan {
            key,
            session: MarkerSession::for_test(),
            start: ProfilerTime::now(),
            metadata: tracing::subscriber::with_default(tracing_subscriber::registry(), || {
                tracing::info_span!("span").metadata().expect("enabled")
            }),
            flow: SpanFlow::new(),
            parent: None,
            follows: None,
            trace_id: 0,
            busy: None,
            values: FieldValues::new(),
        });
        key
    }

    #[test]
    fn span_is_found_until_its_end_or_the_end_of_its_layer() {
        const LAYER: u32 = u32::MAX;
        // Three times the number of slots, so that spans collide.
        let keys: Vec<_> = (1..=3 * SLOTS as u64).map(|id| open(LAYER, id)).collect();
        let of_other_layer = open(LAYER - 1, 1);
        let flows: Vec<_> = keys
            .iter()
            .map(|key| OPEN_SPANS.with(*key, |span| span.flow).expect("open"))
            .collect();
        for (key, flow) in keys.iter().zip(&flows).step_by(2) {
            assert_eq!(
                OPEN_SPANS.remove(*key).map(|span| (span.key, span.flow)),
                Some((*key, *flow))
            );
            assert!(OPEN_SPANS.remove(*key).is_none() && OPEN_SPANS.with(*key, |_| ()).is_none());
        }
        assert!(OPEN_SPANS.with(keys[1], |span| span.flow) == Some(flows[1]));
        OPEN_SPANS.forget_layer(LAYER);
        assert!(
            keys.iter()
                .all(|key| OPEN_SPANS.with(*key, |_| ()).is_none())
        );
        assert!(OPEN_SPANS.remove(of_other_layer).is_some());
    }

    #[test]
    fn nested_use_of_a_slot_finds_no_span() {
        let key = open(u32::MAX - 2, 1);
        OPEN_SPANS.with(key, |_| {
            assert!(
                OPEN_SPANS.with(key, |_| ()).is_none(),
                "nested use, as by the application's allocator"
            )
        });
        let panics = || OPEN_SPANS.with(key, |_| panic!("on purpose"));
        assert!(std::panic::catch_unwind(panics).is_err());
        assert!(OPEN_SPANS.remove(key).is_some());
    }
}
