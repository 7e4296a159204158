//! What links the markers of a span: its own, those of the spans in it, and those of its events.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::markers::FlowId;

/// A span as markers refer to it. The ids of `tracing` are used again after a span's end, these are not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SpanFlow(u64);

impl SpanFlow {
    /// A new one. Each thread takes so many at a time that they do not meet for it.
    #[inline]
    pub(super) fn new() -> Self {
        const AT_A_TIME: u64 = 1024;
        // 0 is none.
        static TAKEN: AtomicU64 = AtomicU64::new(1);
        thread_local! {
            static NEXT: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
        }
        let (mut next, mut end) = NEXT.get();
        if next == end {
            next = TAKEN.fetch_add(AT_A_TIME, Ordering::Relaxed);
            end = next + AT_A_TIME;
        }
        NEXT.set((next + 1, end));
        Self(next)
    }

    /// For a payload; 0 for none.
    #[inline]
    pub(super) fn number_of(flow: Option<Self>) -> u64 {
        flow.map_or(0, |flow| flow.0)
    }

    pub(super) fn from_number(number: u64) -> Option<Self> {
        (number != 0).then_some(Self(number))
    }

    /// In the profile: apart from flows that the host names by addresses, and from spans of other processes.
    pub(super) fn id(self) -> FlowId {
        const MARK: u64 = 1 << 63;
        const NUMBER_BITS: u32 = 40;
        let process = (u64::from(std::process::id()) << NUMBER_BITS) & !MARK;
        FlowId::from(MARK | process | (self.0 & ((1 << NUMBER_BITS) - 1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_span_has_a_flow_of_its_own_whichever_thread_makes_it() {
        let make = || (0..3000).map(|_| SpanFlow::new().0).collect::<Vec<_>>();
        let mut all = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(make)).collect();
            threads
                .into_iter()
                .flat_map(|thread| thread.join().expect("numbers"))
                .collect::<Vec<_>>()
        });
        all.sort_unstable();
        all.dedup();
        assert_eq!((all.len(), all.contains(&0)), (4 * 3000, false));
    }

    #[test]
    fn a_flow_is_no_address() {
        let flow = SpanFlow(5).id();
        assert_ne!(flow, SpanFlow(6).id());
        assert!(flow.to_hex()[0] >= b'8');
    }
}
