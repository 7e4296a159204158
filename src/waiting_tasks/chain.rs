//! The polls of wrapped futures that the calling thread has in progress, outermost first.
//!
//! All of it is plain numbers in `Cell`s without a destructor. So a poll in a destructor of a
//! thread-local works, and one in a signal handler of the application leaves the chain as it was. A
//! poll is found by its number, so a span that is exited out of order, late or never leads to
//! nothing worse than a wrong frame.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering, compiler_fence};

/// Maximum number of polls of a chain. A deeper future counts as the one around it.
pub(super) const MAX_POLLS: usize = 64;

/// A poll in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct Poll {
    /// The session that records the poll; 0 for none.
    pub(super) session: u32,
    pub(super) stack: u32,
    /// Different from that of every other poll; 0 for none.
    pub(super) number: u64,
    /// Number of the wrapped futures directly inside that this poll has left pending.
    pub(super) pending: u32,
    /// Id of the span whose future is polled; 0 for a future without a span.
    pub(super) span: u64,
}

impl Poll {
    const NONE: Self = Self {
        session: 0,
        stack: 0,
        number: 0,
        pending: 0,
        span: 0,
    };
}

struct Chain {
    length: Cell<usize>,
    polls: [Cell<Poll>; MAX_POLLS],
}

thread_local! {
    static CHAIN: Chain = const {
        Chain {
            length: Cell::new(0),
            polls: [const { Cell::new(Poll::NONE) }; MAX_POLLS],
        }
    };
    static LAST_NUMBER: Cell<u64> = const { Cell::new(0) };
}

impl Chain {
    fn in_progress(&self) -> &[Cell<Poll>] {
        self.polls.get(..self.length.get()).unwrap_or_default()
    }

    fn position(&self, number: u64) -> Option<usize> {
        let is_it = |poll: &Cell<Poll>| poll.get().number == number;
        self.in_progress().iter().rposition(is_it)
    }
}

/// Returns a number for a poll.
pub(super) fn next_number() -> u64 {
    /// Number of polls that a thread numbers without asking for more numbers.
    const AT_ONCE: u64 = 1 << 32;
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut next = LAST_NUMBER.get() + 1;
    if next.is_multiple_of(AT_ONCE) || next == 1 {
        next = NEXT.fetch_add(AT_ONCE, Ordering::Relaxed) + 1;
    }
    LAST_NUMBER.set(next);
    next
}

/// Returns the innermost poll.
pub(super) fn innermost() -> Poll {
    CHAIN.with(|chain| chain.in_progress().last().map_or(Poll::NONE, Cell::get))
}

/// Adds the innermost poll. Returns whether there is space for it.
pub(super) fn push(poll: Poll) -> bool {
    CHAIN.with(|chain| {
        let length = chain.length.get();
        let Some(slot) = chain.polls.get(length) else {
            return false;
        };
        // In this order, a signal handler that polls in between does not use the slot.
        chain.length.set(length + 1);
        compiler_fence(Ordering::Release);
        slot.set(poll);
        true
    })
}

/// A poll that has ended, and the number of the poll around it; 0 for an outermost poll.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndedPoll {
    pub(super) poll: Poll,
    pub(super) around: u64,
}

/// Removes a poll. With a future's poll, those inside of it end, too. A span's poll is removed
/// alone: the thread may exit the spans inside of it later.
pub(super) fn remove(number: u64) -> Option<EndedPoll> {
    CHAIN.with(|chain| {
        let position = chain.position(number)?;
        let polls = chain.in_progress();
        let poll = polls[position].get();
        let around = polls[..position].last();
        let around = around.map_or(0, |around| around.get().number);
        if poll.span == 0 {
            // If a span inside is not exited yet, its poll has what was left pending.
            let inside = polls[position..].iter().map(|poll| poll.get().pending);
            let pending = inside.max().unwrap_or(0);
            polls[position..]
                .iter()
                .for_each(|poll| poll.set(Poll::NONE));
            chain.length.set(position);
            let poll = Poll { pending, ..poll };
            return Some(EndedPoll { poll, around });
        }
        for (poll, next) in polls[position..].iter().zip(&polls[position + 1..]) {
            poll.set(next.get());
        }
        let last = polls.len() - 1;
        polls[last].set(Poll::NONE);
        chain.length.set(last);
        Some(EndedPoll { poll, around })
    })
}

/// Counts a future that the poll with this number leaves pending. Returns whether there is such a
/// poll of this session.
pub(super) fn add_pending(number: u64, session: u32) -> bool {
    let more = |poll: Poll| (poll.session == session).then(|| poll.pending.saturating_add(1));
    change_pending(number, more).is_some()
}

/// Takes back a count of [`add_pending`], if that poll is still in progress: the future was polled
/// again, or dropped, before it ended.
pub(super) fn remove_pending(number: u64) {
    change_pending(number, |poll| Some(poll.pending.saturating_sub(1)));
}

fn change_pending(number: u64, change: impl FnOnce(Poll) -> Option<u32>) -> Option<()> {
    CHAIN.with(|chain| {
        let slot = &chain.polls[chain.position(number)?];
        let poll = slot.get();
        let pending = change(poll)?;
        slot.set(Poll { pending, ..poll });
        Some(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(number: u64) -> Poll {
        Poll {
            session: 1,
            number,
            span: number % 2,
            ..Poll::NONE
        }
    }

    #[test]
    fn polls_have_different_numbers() {
        let one = next_number();
        let other = std::thread::spawn(next_number).join().expect("no panic");
        assert!(one != other && next_number() != other && one != 0);
    }

    #[test]
    fn future_is_removed_with_those_inside_of_it_and_a_span_alone() {
        assert!([2, 4, 5, 7].map(poll).into_iter().all(push));
        assert_eq!(remove(5).map(|ended| ended.around), Some(4));
        assert_eq!(innermost().number, 7);
        assert!(remove(5).is_none());
        assert!(add_pending(7, 1) && !add_pending(7, 2) && !add_pending(5, 1));
        assert_eq!(remove(4).map(|ended| ended.poll.pending), Some(1));
        assert_eq!(innermost().number, 2);
        remove_pending(7);
        assert_eq!(remove(2).map(|ended| ended.around), Some(0));
        assert_eq!(innermost().number, 0);
    }

    #[test]
    fn full_chain_refuses_a_poll() {
        assert!((2..MAX_POLLS as u64 + 2).map(poll).all(push));
        assert!(!push(poll(100)));
        remove(2);
        assert!(push(poll(100)));
        remove(100);
    }
}
