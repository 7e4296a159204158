//! The flow that links the markers of a span with those of its child spans and of its events.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::markers::FlowId;

/// The number by which markers refer to a span. `tracing` reuses its ids after a span's end, but
/// these numbers are unique.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SpanFlow(u64);

impl SpanFlow {
    /// Returns a new number. Each thread reserves blocks of numbers, so that threads rarely
    /// contend.
    #[inline]
    pub(crate) fn new() -> Self {
        const BLOCK: u64 = 1024;
        // Starts at 1, because 0 means no flow.
        static NEXT_BLOCK: AtomicU64 = AtomicU64::new(1);
        thread_local! {
            static NEXT: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
        }
        let (mut next, mut end) = NEXT.get();
        if next == end {
            next = NEXT_BLOCK.fetch_add(BLOCK, Ordering::Relaxed);
            end = next + BLOCK;
        }
        NEXT.set((next + 1, end));
        Self(next)
    }

    /// Returns the number by which a payload refers to a flow; 0 for `None`.
    #[inline]
    pub(crate) fn number_of(flow: Option<Self>) -> u64 {
        flow.map_or(0, |flow| flow.0)
    }

    pub(crate) fn from_number(number: u64) -> Option<Self> {
        (number != 0).then_some(Self(number))
    }

    /// Returns the id for the profile. It differs from ids that the application derives from
    /// addresses, and from those of spans in other processes.
    pub(crate) fn id(self) -> FlowId {
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
    fn flows_from_several_threads_are_unique() {
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
    fn id_is_not_an_address() {
        let flow = SpanFlow(5).id();
        assert_ne!(flow, SpanFlow(6).id());
        assert!(flow.to_hex()[0] >= b'8');
    }
}
