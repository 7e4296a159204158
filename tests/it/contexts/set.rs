//! What the calling thread's context is, with and without a session.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use gekkota::context::{AutoProfilerContext, ProfilerContext, in_context};
use gekkota::profiler_context;

use crate::common::moving_task::wait;

fn of_trace(trace_id: u128) -> ProfilerContext {
    ProfilerContext::new().with_trace_id(trace_id)
}

fn current_trace() -> u128 {
    ProfilerContext::current().trace_id()
}

#[test]
fn guards_restore_the_context_around_them() {
    assert!(ProfilerContext::current().is_empty());
    let id = 0x0123_4567_89ab_cdef_fedc_ba98_7654_3210;
    {
        let outer = of_trace(id).with_span_id(9).with_label("route", "/a");
        let _outer = outer.enter();
        assert_eq!(ProfilerContext::current(), outer);
        assert_eq!((outer.trace_id(), outer.span_id()), (id, 9));
        {
            let _inner = of_trace(2).enter();
            assert_eq!(current_trace(), 2);
            let _none = ProfilerContext::new().enter();
            assert!(ProfilerContext::current().is_empty());
        }
        assert_eq!(ProfilerContext::current(), outer);
    }
    assert!(ProfilerContext::current().is_empty());
    let guards: [AutoProfilerContext; 2] = [of_trace(3).enter(), of_trace(4).enter()];
    // In the wrong order: the thread leaves to the context that was current before the second one.
    let [first, second] = guards;
    drop(first);
    drop(second);
    assert_eq!(current_trace(), 3);
    drop(ProfilerContext::new().enter());
}

#[test]
fn macro_adds_to_the_context_around_it() {
    profiler_context!(trace_id = 5, "tenant" = "x");
    let outer = ProfilerContext::current();
    assert_eq!(outer, of_trace(5).with_label("tenant", "x"));
    {
        let tenant = String::from("y");
        profiler_context!(span_id = 6, "tenant" = &tenant, "route" = "/b",);
        let expected = of_trace(5)
            .with_span_id(6)
            .with_label("tenant", "y")
            .with_label("route", "/b");
        assert_eq!(ProfilerContext::current(), expected);
    }
    assert_eq!(ProfilerContext::current(), outer);
}

#[test]
fn context_has_at_most_four_labels() {
    let four = ["a", "b", "c", "d"]
        .iter()
        .fold(ProfilerContext::new(), |context, key| {
            context.with_label(key, "value")
        });
    assert_eq!(four.with_label("e", "value"), four);
    let replaced = four.with_label("c", "other");
    assert_ne!(replaced, four);
    assert_eq!(replaced.with_label("c", "value"), four);
}

#[test]
fn future_is_in_its_context_only_while_it_is_polled() {
    let inner = async {
        let before = current_trace();
        wait().await;
        (before, current_trace())
    };
    let mut future = pin!(in_context(of_trace(7), inner));
    let mut poll = || {
        let answer = future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(current_trace(), 0);
        answer
    };
    assert!(poll().is_pending());
    assert_eq!(poll(), Poll::Ready((7, 7)));
}
