//! Estimates the calls of a thread from its samples, as DevTools does for its flame chart.
//!
//! Each sample begins as a call of its innermost function, without duration. These calls and the
//! host's markers are merged by time. Then each sample's stack is compared with the current one.
//!
//! A sample says which functions ran at one moment. A call is assumed to go on while sample after
//! sample shows it at the same position of the stack, and to end at the first sample that does not.
//! The markers of the host correct this:
//!
//! - A [`Role::Task`] truncates the stack when it begins and when it ends. So no call crosses the
//!   bounds of a task.
//! - A [`Role::FunctionCall`] locks the calls that are on the stack when it begins: they cannot end
//!   before it. Samples are compared from there on. Calls that begin in it end with it.
//!
//! A task within a function call truncates the stack only as far as it is not locked. So calls and
//! host markers always nest.
//!
//! Memory is bounded by the depth of the stack: a call goes to the visitor soon after its end.

use std::iter::Peekable;

use crate::export::write::formats::marker_spans::{MarkerSpan, Role};
use crate::export::write::formats::profile_nodes::ProfileNodes;
use crate::export::write::formats::ticks::{MicroClock, Tick};
use crate::model::{CallNodes, FunctionId, NodeId};

/// A call of a function, in µs.
#[doc(alias = "SyntheticProfileCall")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ProfileCall {
    /// The function with its callers.
    pub(crate) node: NodeId,
    pub(crate) function: FunctionId,
    /// Number of the calls around this one.
    pub(crate) depth: usize,
    pub(crate) start_us: i64,
    pub(crate) end_us: i64,
}

/// A call, or an interval of the host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CallOrSpan {
    Call(ProfileCall),
    Span(MarkerSpan),
}

/// Visits the calls of a thread, and the intervals of its host.
///
/// `host` are intervals that nest, sorted by start. Calls come in the order of their ends; of calls
/// that end in the same µs, a caller comes before the functions that it calls. An interval comes
/// before the calls in it. Calls that are open after the last tick end at `end_ns`.
pub(crate) fn visit_calls(
    nodes: &mut ProfileNodes<'_>,
    ticks: impl Iterator<Item = Tick>,
    host: &[MarkerSpan],
    (clock, end_ns): (MicroClock, i64),
    visit: impl FnMut(CallOrSpan),
) {
    let mut merged = Merged {
        ticks: ticks.peekable(),
        host: host.iter().peekable(),
        open: Vec::new(),
    };
    let mut estimate = Estimate {
        stack: Vec::new(),
        locked: Vec::new(),
        ended: Vec::new(),
        path: Vec::new(),
        last_top: None,
        visit,
    };
    let mut now_us = i64::MIN;
    while let Some(event) = merged.next_event() {
        now_us = now_us.max(clock.us(event.time_ns()));
        match event {
            Event::SpanStart(span) => estimate.begin_span(span, now_us),
            Event::SpanEnd(_) => estimate.end_span(now_us),
            Event::Sample(tick) => {
                let top = nodes.node_of(tick.activity);
                estimate.take_sample(&nodes.calls, top, now_us);
            }
        }
    }
    estimate.truncate(0, now_us.max(clock.us(end_ns)));
    estimate.give_ended();
}

/// What happens next on a thread.
#[derive(Clone, Copy)]
enum Event<'a> {
    SpanStart(&'a MarkerSpan),
    SpanEnd(&'a MarkerSpan),
    Sample(Tick),
}

impl Event<'_> {
    fn time_ns(&self) -> i64 {
        match self {
            Self::SpanStart(span) => span.start_ns,
            Self::SpanEnd(span) => span.end_ns,
            Self::Sample(tick) => tick.time_ns,
        }
    }
}

/// Merges ticks and intervals by time.
struct Merged<'a, T: Iterator<Item = Tick>, S: Iterator<Item = &'a MarkerSpan>> {
    ticks: Peekable<T>,
    host: Peekable<S>,
    /// The intervals that have begun, the innermost last.
    open: Vec<&'a MarkerSpan>,
}

impl<'a, T: Iterator<Item = Tick>, S: Iterator<Item = &'a MarkerSpan>> Merged<'a, T, S> {
    /// Returns the next event. At the same time, an end comes before a start, and a start before a
    /// sample.
    fn next_event(&mut self) -> Option<Event<'a>> {
        let events = [
            self.open.last().map(|span| Event::SpanEnd(span)),
            self.host.peek().map(|span| Event::SpanStart(span)),
            self.ticks.peek().map(|tick| Event::Sample(*tick)),
        ];
        let events = events.into_iter().flatten();
        let next = events.min_by_key(Event::time_ns)?;
        match next {
            Event::SpanEnd(_) => drop(self.open.pop()),
            Event::SpanStart(span) => {
                self.host.next();
                self.open.push(span);
            }
            Event::Sample(_) => drop(self.ticks.next()),
        }
        Some(next)
    }
}

/// The stack as it is estimated to be at a moment.
struct Estimate<V> {
    /// The open calls, the outermost first. The last event that showed a call is the end of the
    /// call so far, so an end is stored only when the call is obsolete.
    stack: Vec<ProfileCall>,
    /// For each open interval, the number of calls that were on the stack when it began.
    locked: Vec<usize>,
    /// Calls that ended at the same time.
    ended: Vec<ProfileCall>,
    /// The stack of the current sample, the outermost function first.
    path: Vec<NodeId>,
    /// The last sample's innermost function, if the stack has not changed since.
    last_top: Option<Option<NodeId>>,
    visit: V,
}

/// Maximum number of calls that wait for a caller which ends in the same µs. A profile reaches it
/// only if thousands of its samples have one time.
const MAX_WAITING: usize = 1 << 12;

impl<V: FnMut(CallOrSpan)> Estimate<V> {
    fn locked_depth(&self) -> usize {
        self.locked.last().copied().unwrap_or(0)
    }

    /// Compares the stack with that of a sample, position by position, and replaces what differs.
    fn take_sample(&mut self, calls: &CallNodes, top: Option<NodeId>, time_us: i64) {
        if self.last_top == Some(top) {
            return;
        }
        self.last_top = Some(top);
        self.path.clear();
        self.path.extend(calls.path(top));
        self.path.reverse();
        let locked = self.locked_depth();
        let pairs = self.stack.iter().zip(&self.path).skip(locked);
        let is_same =
            |(call, node): &(&ProfileCall, &NodeId)| call.function == calls.get(**node).function;
        let kept = locked + pairs.take_while(is_same).count();
        self.truncate(kept, time_us);
        for &node in self.path.iter().skip(kept) {
            self.stack.push(ProfileCall {
                node,
                function: calls.get(node).function,
                depth: self.stack.len(),
                start_us: time_us,
                end_us: time_us,
            });
        }
    }

    fn begin_span(&mut self, span: &MarkerSpan, time_us: i64) {
        if span.role == Role::Task {
            self.truncate(self.locked_depth(), time_us);
        }
        self.locked.push(self.stack.len());
        self.last_top = None;
        (self.visit)(CallOrSpan::Span(*span));
    }

    fn end_span(&mut self, time_us: i64) {
        let depth = self.locked.pop().unwrap_or(0);
        self.truncate(depth, time_us);
        self.last_top = None;
    }

    /// Ends all calls inside of the first `depth` ones.
    fn truncate(&mut self, depth: usize, time_us: i64) {
        let is_later = |call: &ProfileCall| call.end_us != time_us;
        if self.ended.first().is_some_and(is_later) || self.ended.len() > MAX_WAITING {
            self.give_ended();
        }
        let obsolete = self.stack.drain(depth.min(self.stack.len())..);
        self.ended.extend(obsolete.map(|call| ProfileCall {
            end_us: time_us,
            ..call
        }));
    }

    /// Gives the calls that ended to the visitor. Readers sort by start and duration, and take the
    /// first one of equal calls for the caller.
    fn give_ended(&mut self) {
        self.ended.sort_by_key(|call| call.depth);
        for call in self.ended.drain(..) {
            (self.visit)(CallOrSpan::Call(call));
        }
    }
}

#[cfg(test)]
#[path = "profile_calls_tests.rs"]
mod tests;
