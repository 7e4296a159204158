//! Calls that wait until the samplers of all children have run once.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};

/// What a waiting thread of the application reads.
#[derive(Debug, Default)]
pub(super) struct SamplingWait {
    /// Whether the hub has asked the children.
    is_asked: AtomicBool,
    /// Number of children without an answer, and of children whose samplers have run.
    pending: AtomicU32,
    sampled: AtomicU32,
}

impl SamplingWait {
    pub(super) fn is_over(&self) -> bool {
        self.is_asked.load(Ordering::Acquire) && self.pending.load(Ordering::Acquire) == 0
    }

    /// Returns how many children have sampled.
    pub(super) fn sampled(&self) -> usize {
        self.sampled.load(Ordering::Acquire) as usize
    }
}

/// The calls that wait, each with the children that have not answered.
#[derive(Debug, Default)]
pub(super) struct SamplingWaits(Vec<OneWait>);

#[derive(Debug)]
struct OneWait {
    /// Numbers of the connection and of the order.
    member: u64,
    order: u64,
    wait: Weak<SamplingWait>,
}

impl SamplingWaits {
    /// Adds a call, and the orders to the children by the numbers of their connections.
    pub(super) fn begin(&mut self, wait: &Arc<SamplingWait>, orders: Vec<(u64, u64)>) {
        // Removes the calls that no thread waits for any more.
        self.0.retain(|one| one.wait.strong_count() > 0);
        wait.pending.store(orders.len() as u32, Ordering::Release);
        self.0
            .extend(orders.into_iter().map(|(member, order)| OneWait {
                member,
                order,
                wait: Arc::downgrade(wait),
            }));
        wait.is_asked.store(true, Ordering::Release);
    }

    /// Notes the answer to an order.
    pub(super) fn note(&mut self, member: u64, order: u64, has_sampled: bool) {
        self.remove(
            |one| one.member == member && one.order == order,
            has_sampled,
        );
    }

    /// Forgets a child that has ended.
    pub(super) fn forget(&mut self, member: u64) {
        self.remove(|one| one.member == member, false);
    }

    fn remove(&mut self, is_answered: impl Fn(&OneWait) -> bool, has_sampled: bool) {
        for one in self.0.extract_if(.., |one| is_answered(one)) {
            if let Some(wait) = one.wait.upgrade() {
                wait.sampled.fetch_add(has_sampled.into(), Ordering::AcqRel);
                wait.pending.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn wait_is_over_once_each_child_has_answered_or_ended() {
        let mut waits = SamplingWaits::default();
        let wait = Arc::new(SamplingWait::default());
        assert!(!wait.is_over(), "the hub has not asked");
        waits.begin(&wait, vec![(1, 10), (2, 11), (3, 12)]);
        waits.note(1, 10, true);
        waits.note(2, 99, true);
        assert!(!wait.is_over());
        waits.note(2, 11, false);
        waits.forget(3);
        assert!(wait.is_over());
        assert_eq!(wait.sampled(), 1);
        // A call that gives up is forgotten by the next one.
        waits.begin(&Arc::new(SamplingWait::default()), vec![(1, 13)]);
        let other = Arc::new(SamplingWait::default());
        waits.begin(&other, Vec::new());
        assert!(other.is_over() && waits.0.is_empty());
    }
}
