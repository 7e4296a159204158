//! Spans with ids give the threads in them a context.

use gekkota::ProfilerLayer;
use gekkota::context::ProfilerContext;
use tracing::Subscriber;
use tracing::span::{Attributes, Id};
use tracing_subscriber::layer::Context;
use tracing_subscriber::prelude::*;
use tracing_subscriber::registry::LookupSpan;

fn current() -> (u128, u64) {
    let context = ProfilerContext::current();
    (context.trace_id(), context.span_id())
}

#[test]
fn span_with_ids_gives_its_context_to_the_spans_inside_of_it() {
    let subscriber = tracing_subscriber::registry().with(ProfilerLayer::new());
    tracing::subscriber::with_default(subscriber, || {
        let without = tracing::info_span!("without").entered();
        assert_eq!(current(), (0, 0));
        let request = tracing::info_span!("request", trace_id = "4bf92f3577b34da6", span_id = 7u64);
        let (outer, inner, other) = request.in_scope(|| {
            assert_eq!(current(), (0x4bf9_2f35_77b3_4da6, 7));
            let inner = tracing::info_span!("inner");
            let other = tracing::info_span!("other", span_id = %"2a");
            (request.clone(), inner, other)
        });
        assert_eq!(current(), (0, 0));
        // As a runtime polls the future of an inner span: without the outer one.
        inner.in_scope(|| assert_eq!(current(), (0x4bf9_2f35_77b3_4da6, 7)));
        other.in_scope(|| assert_eq!(current(), (0x4bf9_2f35_77b3_4da6, 0x2a)));
        let later = tracing::info_span!("later", trace_id = tracing::field::Empty);
        later.in_scope(|| assert_eq!(current(), (0, 0)));
        later.record("trace_id", "c0ffee");
        later.in_scope(|| assert_eq!(current(), (0xc0ffee, 0)));
        let bad = tracing::info_span!("bad", trace_id = "no id");
        bad.in_scope(|| assert_eq!(current(), (0, 0)));
        // Spans that are left in the wrong order.
        let first = outer.entered();
        let second = other.entered();
        drop(first);
        assert_eq!(current(), (0x4bf9_2f35_77b3_4da6, 0x2a));
        drop(second);
        assert_eq!(current(), (0, 0));
        drop(without);
    });
}

/// What another layer keeps of a span.
struct OtherData(u128);

struct OtherLayer;

impl<S: Subscriber + for<'a> LookupSpan<'a>> tracing_subscriber::Layer<S> for OtherLayer {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if attributes.metadata().name() == "traced" {
            let span = context.span(id).expect("a new span");
            span.extensions_mut().insert(OtherData(99));
        }
    }
}

#[test]
fn function_of_the_application_finds_the_context_in_what_another_layer_keeps() {
    let layer = ProfilerLayer::new()
        .labels(false)
        .with_context_of(|extensions| {
            let trace_id = extensions.get::<OtherData>()?.0;
            Some(ProfilerContext::new().with_trace_id(trace_id))
        });
    let subscriber = tracing_subscriber::registry().with(layer).with(OtherLayer);
    tracing::subscriber::with_default(subscriber, || {
        let traced = tracing::info_span!("traced");
        let inner = tracing::info_span!(parent: &traced, "inner");
        inner.in_scope(|| assert_eq!(current(), (99, 0)));
        assert_eq!(current(), (0, 0));
        let with_span = tracing::info_span!(parent: &inner, "with span", span_id = 3u64);
        with_span.in_scope(|| assert_eq!(current(), (99, 3)));
        traced.in_scope(|| assert_eq!(current(), (99, 0)));
    });
}
