//! Estimates the calls of a thread from its samples and from the markers of its host, as DevTools
//! does for its flame chart.
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

use crate::export::write::formats::v8_profile::{MicroClock, ProfileNodes, Tick};
use crate::export::write::intervals_and_flows::{MarkerInterval, marker_intervals};
use crate::model::{CallNodes, FunctionId, Marker, NodeId, ProfileModel, Thread};
use crate::util::NumberMap;

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
    Span(MarkerInterval),
}

/// Visits the calls of a thread, and the intervals of its host.
///
/// `host` are intervals that nest, sorted by start. Calls come in the order of their ends; of calls
/// that end in the same µs, a caller comes before the functions that it calls. An interval comes
/// before the calls in it. Calls that are open after the last tick end at `end_ns`.
pub(crate) fn visit_calls(
    nodes: &mut ProfileNodes<'_>,
    ticks: impl Iterator<Item = Tick>,
    host: &[HostSpan],
    (clock, end_ns): (MicroClock, i64),
    visit: impl FnMut(CallOrSpan),
) {
    let mut merged = Merged {
        ticks: ticks.peekable(),
        host,
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
    while let Some((time_ns, event)) = merged.next_event() {
        now_us = now_us.max(clock.us(time_ns));
        match event {
            Event::SpanStart(span) => estimate.begin_span(*span, now_us),
            Event::SpanEnd => estimate.end_span(now_us),
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
    SpanStart(&'a HostSpan),
    SpanEnd,
    Sample(Tick),
}

/// Merges ticks and intervals by time.
struct Merged<'a, T: Iterator<Item = Tick>> {
    ticks: Peekable<T>,
    host: &'a [HostSpan],
    /// The ends of the intervals that have begun, the innermost last.
    open: Vec<i64>,
}

impl<'a, T: Iterator<Item = Tick>> Merged<'a, T> {
    /// Returns the next event and its time. At the same time, an end comes before a start, and a
    /// start before a sample.
    fn next_event(&mut self) -> Option<(i64, Event<'a>)> {
        let span = self.host.first();
        let tick = self.ticks.peek();
        let events = [
            self.open.last().map(|end_ns| (*end_ns, Event::SpanEnd)),
            span.map(|span| (span.0.start_ns, Event::SpanStart(span))),
            tick.map(|tick| (tick.time_ns, Event::Sample(*tick))),
        ];
        let events = events.into_iter().flatten();
        let next = events.min_by_key(|(time_ns, _)| *time_ns)?;
        match next.1 {
            Event::SpanEnd => drop(self.open.pop()),
            Event::SpanStart((interval, _)) => {
                self.host = &self.host[1..];
                self.open.push(interval.end_ns);
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

    fn begin_span(&mut self, (interval, role): HostSpan, time_us: i64) {
        if role == Role::Task {
            self.truncate(self.locked_depth(), time_us);
        }
        self.locked.push(self.stack.len());
        self.last_top = None;
        (self.visit)(CallOrSpan::Span(interval));
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

/// The part that an interval plays when calls are estimated from samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// A task of the thread's event loop. Each call lies in one task.
    Task,
    /// The host calls a function: until it returns, its callers do not change.
    FunctionCall,
}

/// Names of markers, or of their types, that play the part of a task. They are Chrome's names.
const TASKS: &[&str] = &["Task", "RunTask", "RunMicrotasks"];
/// Names of markers, or of their types, that play the part of a function call.
const FUNCTION_CALLS: &[&str] = &["FunctionCall", "EvaluateScript", "EventDispatch"];

/// An interval with the part that it plays.
pub(crate) type HostSpan = (MarkerInterval, Role);

/// The intervals of a thread. Each list is sorted by start, and a longer interval comes first.
#[derive(Debug, Default)]
pub(crate) struct MarkerSpans {
    /// The intervals with a role. They nest.
    pub(crate) host: Vec<HostSpan>,
    /// Other intervals that nest.
    pub(crate) nested: Vec<MarkerInterval>,
    /// Intervals that begin in another one and end after it.
    pub(crate) crossing: Vec<MarkerInterval>,
}

impl MarkerSpans {
    /// Returns the intervals of a thread whose samples and markers lie between these times. An
    /// interval whose start or end is missing begins or ends there.
    pub(crate) fn of(profile: &ProfileModel, thread: &Thread, range: (i64, i64)) -> Self {
        let (mut lists, mut roles) = (Self::default(), Roles::default());
        let (mut host_ends, mut nested_ends) = (Vec::new(), Vec::new());
        for interval in marker_intervals(thread, range) {
            let role = roles.of(profile, &thread.markers.get(interval.first));
            match role.filter(|_| nests(&mut host_ends, &interval)) {
                Some(role) => lists.host.push((interval, role)),
                None if nests(&mut nested_ends, &interval) => lists.nested.push(interval),
                None => lists.crossing.push(interval),
            }
        }
        lists
    }
}

/// Adds the end of the next interval to those of the intervals around it, if it nests in them.
fn nests(ends: &mut Vec<i64>, interval: &MarkerInterval) -> bool {
    while ends.pop_if(|end| *end <= interval.start_ns).is_some() {}
    let fits = ends.last().is_none_or(|end| interval.end_ns <= *end);
    if fits {
        ends.push(interval.end_ns);
    }
    fits
}

/// The role of each name that was looked up. Each name is compared once.
#[derive(Default)]
struct Roles(NumberMap<Option<Role>>);

impl Roles {
    fn of(&mut self, profile: &ProfileModel, marker: &Marker<'_>) -> Option<Role> {
        let type_name = marker.payload.map(|payload| payload.type_name);
        let names = [Some(marker.name), type_name].into_iter().flatten();
        let mut roles = names.filter_map(|name| {
            *self.0.entry(name.0.into()).or_insert_with(|| {
                let name = profile.text(name);
                let is_call = FUNCTION_CALLS.contains(&name);
                let call = is_call.then_some(Role::FunctionCall);
                TASKS.contains(&name).then_some(Role::Task).or(call)
            })
        });
        roles.next()
    }
}

#[cfg(test)]
#[path = "profile_calls_tests.rs"]
mod tests;
