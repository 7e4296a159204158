//! The state of a wrapped future, and the chain of the thread's polls in progress.
//!
//! A poll replaces the thread's innermost poll by its own, and puts the one before back when it ends.
//! All of it is plain numbers in a `Cell` without a destructor. So a poll that panics, one in a
//! destructor of a thread-local, and one in a signal handler of the application leave the chain whole.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::labels::current_context;
use crate::platform::monotonic_now;
use crate::types::TimeStamp;
use crate::waiting_tasks::waits::{TaskName, session, with_waits};

/// Returns whether a session records waits. A caller that gets `false` need not call
/// [`TaskWait::begin_poll`]: one relaxed load.
#[inline(always)]
pub(crate) fn are_waits_recorded() -> bool {
    session() != 0
}

/// The innermost wrapped future that the thread polls.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct PollsInProgress {
    /// The session that records the poll; 0 for none.
    session: u32,
    stack: u32,
    /// Number of the poll, different from that of every other poll; 0 for none.
    poll: u64,
    /// Number of the wrapped futures directly inside that this poll has left pending.
    pending: u32,
}

thread_local! {
    static INNERMOST: Cell<PollsInProgress> = const {
        Cell::new(PollsInProgress { session: 0, stack: 0, poll: 0, pending: 0 })
    };
    static LAST_POLL: Cell<u64> = const { Cell::new(0) };
}

/// Returns a number for a poll.
fn next_poll() -> u64 {
    /// Number of polls that a thread numbers without asking for more numbers.
    const AT_ONCE: u64 = 1 << 32;
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut next = LAST_POLL.get() + 1;
    if next.is_multiple_of(AT_ONCE) || next == 1 {
        next = NEXT.fetch_add(AT_ONCE, Ordering::Relaxed) + 1;
    }
    LAST_POLL.set(next);
    next
}

#[cfg(test)]
thread_local! {
    static TEST_TIME: Cell<Option<TimeStamp>> = const { Cell::new(None) };
}

fn now() -> TimeStamp {
    #[cfg(test)]
    if let Some(time) = TEST_TIME.get() {
        return time;
    }
    monotonic_now()
}

/// What a wrapped future keeps from poll to poll.
#[derive(Debug, Default)]
pub(crate) struct TaskWait {
    /// The session that the other fields belong to; 0 for none.
    session: u32,
    /// The future's stack, and that of the future around it.
    stack: u32,
    below: u32,
    /// The place of the wait plus one; 0 if the future does not wait, or a future inside of it does.
    place: u32,
    /// The poll of the future around it that left it pending; 0 if it is not pending.
    pending_in: u64,
}

impl TaskWait {
    pub(crate) const fn new() -> Self {
        Self {
            session: 0,
            stack: 0,
            below: 0,
            place: 0,
            pending_in: 0,
        }
    }

    /// Begins a poll of the future: ends its wait, and makes it the thread's innermost one. Returns the
    /// one before, for [`Self::end_poll`]. Returns `None` if no session records waits, or inside the
    /// profiler's own work.
    pub(crate) fn begin_poll(&mut self, label: &str, dynamic: &str) -> Option<PollsInProgress> {
        let session = session();
        if session == 0 {
            return None;
        }
        self.end_wait();
        let before = INNERMOST.get();
        let below = match before.session == session {
            true => before.stack,
            false => 0,
        };
        if self.session != session || self.below != below || self.stack == 0 {
            let name = TaskName { label, dynamic };
            self.stack = with_waits(session, |waits| waits.stack(below, name))?;
            (self.session, self.below) = (session, below);
        }
        INNERMOST.set(PollsInProgress {
            session,
            stack: self.stack,
            poll: next_poll(),
            pending: 0,
        });
        Some(before)
    }

    /// Ends a poll. If the future is pending, and none of those inside of it is, its wait begins.
    pub(crate) fn end_poll(&mut self, before: PollsInProgress, is_pending: bool) {
        let own = INNERMOST.replace(before);
        if !is_pending || own.session != self.session || own.session != session() {
            return;
        }
        if before.session == own.session && before.poll != 0 {
            self.pending_in = before.poll;
            INNERMOST.set(PollsInProgress {
                pending: before.pending.saturating_add(1),
                ..before
            });
        }
        if own.pending == 0 {
            let stack = self.stack;
            let context = current_context();
            let begin = now();
            let place = with_waits(own.session, |waits| waits.begin(stack, begin, context));
            self.place = place.unwrap_or(0);
        }
    }

    /// Ends a poll that has panicked.
    pub(crate) fn abandon_poll(before: PollsInProgress) {
        INNERMOST.set(before);
    }

    /// Ends the future's wait, if it waits.
    fn end_wait(&mut self) {
        let pending_in = std::mem::take(&mut self.pending_in);
        if pending_in != 0 {
            let mut around = INNERMOST.get();
            // Polled twice, or dropped, in one poll of the future around it.
            if around.poll == pending_in && around.session == self.session {
                around.pending = around.pending.saturating_sub(1);
                INNERMOST.set(around);
            }
        }
        let place = std::mem::take(&mut self.place);
        if place != 0 && self.session == session() {
            let end = now();
            with_waits(self.session, |waits| waits.end(place, end));
        }
    }
}

impl Drop for TaskWait {
    #[inline]
    fn drop(&mut self) {
        if self.place != 0 || self.pending_in != 0 {
            self.end_wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use super::*;
    use crate::util::as_profiler_work;
    use crate::waiting_tasks::waits::{Waits, account_all, begin_waits, end_waits, swap_wait_rows};

    /// A session that records waits. One test at a time has one.
    struct TestSession(#[expect(dead_code, reason = "held")] MutexGuard<'static, ()>);

    impl TestSession {
        fn begin() -> Self {
            static TESTS: Mutex<()> = Mutex::new(());
            let only = TESTS.lock().unwrap_or_else(PoisonError::into_inner);
            begin_waits();
            set_time(0);
            Self(only)
        }

        fn waiting(&self) -> Vec<String> {
            with_waits(session(), |waits| waits.waiting_stacks()).expect("a session")
        }

        /// Returns the stacks and what their futures have waited, in µs.
        fn waited(&self) -> Vec<(String, u64)> {
            account_all(now());
            let mut rows = Vec::new();
            swap_wait_rows(&mut rows);
            let text = |waits: &mut Waits, stack| waits.text(stack);
            let mut waited: Vec<(String, u64)> = Vec::new();
            for row in rows {
                let text = with_waits(session(), |waits| text(waits, row.stack)).expect("runs");
                let us = row.weight_ns / 1_000;
                match waited.iter_mut().find(|(known, _)| *known == text) {
                    Some((_, sum)) => *sum += us,
                    None => waited.push((text, us)),
                }
            }
            waited.retain(|(_, us)| *us > 0);
            waited.sort();
            waited
        }
    }

    impl Drop for TestSession {
        fn drop(&mut self) {
            end_waits();
        }
    }

    fn set_time(us: u64) {
        TEST_TIME.set(Some(TimeStamp(us * 1_000)));
    }

    fn poll<T>(wait: &mut TaskWait, label: &str, is_pending: bool, body: impl FnOnce() -> T) -> T {
        let before = wait.begin_poll(label, "");
        let value = body();
        if let Some(before) = before {
            wait.end_poll(before, is_pending);
        }
        value
    }

    fn owned(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn waited(expected: &[(&str, u64)]) -> Vec<(String, u64)> {
        let pair = |(text, us): &(&str, u64)| ((*text).to_owned(), *us);
        expected.iter().map(pair).collect()
    }

    #[test]
    fn innermost_pending_future_waits() {
        let session = TestSession::begin();
        let [mut outer, mut inner] = [TaskWait::new(), TaskWait::new()];
        poll(&mut outer, "outer", true, || {
            assert_eq!(session.waiting(), owned(&[]));
            poll(&mut inner, "inner", true, || ());
        });
        assert_eq!(session.waiting(), owned(&["outer → inner"]));
        set_time(80_000);
        // The inner future is ready, and the outer one then waits by itself.
        poll(&mut outer, "outer", true, || {
            poll(&mut inner, "inner", false, || ());
            drop(std::mem::take(&mut inner));
        });
        assert_eq!(session.waiting(), owned(&["outer"]));
        set_time(100_000);
        poll(&mut outer, "outer", false, || ());
        assert_eq!(session.waiting(), owned(&[]));
        let expected = waited(&[("outer", 20_000), ("outer → inner", 80_000)]);
        assert_eq!(session.waited(), expected);
    }

    #[test]
    fn each_pending_future_of_a_join_waits() {
        let session = TestSession::begin();
        let mut both = TaskWait::new();
        let [mut one, mut other] = [TaskWait::new(), TaskWait::new()];
        poll(&mut both, "both", true, || {
            poll(&mut one, "one", true, || ());
            poll(&mut other, "other", true, || ());
        });
        assert_eq!(session.waiting(), owned(&["both → one", "both → other"]));
        set_time(10);
        // A join polls only those that were woken.
        poll(&mut both, "both", true, || {
            poll(&mut one, "one", false, || ());
        });
        set_time(30);
        poll(&mut both, "both", false, || {
            poll(&mut other, "other", false, || ());
        });
        // While the join polled one future only, nothing inside was pending in that poll.
        assert_eq!(
            session.waited(),
            waited(&[("both", 20), ("both → one", 10), ("both → other", 30)])
        );
    }

    #[test]
    fn future_dropped_or_polled_twice_in_one_poll_is_not_pending_there() {
        let session = TestSession::begin();
        let mut outer = TaskWait::new();
        let mut select = TaskWait::new();
        poll(&mut outer, "outer", true, || {
            poll(&mut select, "loser", true, || ());
            drop(std::mem::take(&mut select));
        });
        assert_eq!(session.waiting(), owned(&["outer"]));
        poll(&mut outer, "outer", true, || {
            poll(&mut select, "twice", true, || ());
            poll(&mut select, "twice", false, || ());
        });
        assert_eq!(session.waiting(), owned(&["outer"]));
        poll(&mut outer, "outer", true, || {
            poll(&mut select, "twice", true, || ());
            poll(&mut select, "twice", true, || ());
        });
        assert_eq!(session.waiting(), owned(&["outer → twice"]));
    }

    #[test]
    fn dropped_future_ends_its_wait() {
        let session = TestSession::begin();
        let mut wait = TaskWait::new();
        poll(&mut wait, "dropped", true, || ());
        set_time(5);
        drop(wait);
        set_time(50);
        assert_eq!(session.waiting(), owned(&[]));
        assert_eq!(session.waited(), waited(&[("dropped", 5)]));
    }

    #[test]
    fn future_moves_between_threads() {
        let session = TestSession::begin();
        let mut wait = TaskWait::new();
        poll(&mut wait, "moving", true, || ());
        let wait = std::thread::spawn(move || {
            set_time(7);
            poll(&mut wait, "moving", true, || ());
            wait
        });
        let mut wait = wait.join().expect("no panic");
        set_time(9);
        poll(&mut wait, "moving", false, || ());
        assert_eq!(session.waited(), waited(&[("moving", 9)]));
    }

    #[test]
    fn panic_leaves_the_chain_whole() {
        let session = TestSession::begin();
        let [mut outer, mut inner] = [TaskWait::new(), TaskWait::new()];
        poll(&mut outer, "outer", true, || {
            let before = inner.begin_poll("inner", "").expect("recorded");
            let caught = catch_unwind(AssertUnwindSafe(|| {
                let _restored = RestoredAtEnd(before);
                std::panic::resume_unwind(Box::new(()));
            }));
            assert!(caught.is_err());
        });
        assert_eq!(session.waiting(), owned(&["outer"]));
        drop(outer);
        assert_eq!(INNERMOST.get().poll, 0);
    }

    struct RestoredAtEnd(PollsInProgress);

    impl Drop for RestoredAtEnd {
        fn drop(&mut self) {
            TaskWait::abandon_poll(self.0);
        }
    }

    #[test]
    fn session_that_begins_or_ends_between_polls_or_within_one() {
        let mut early = TaskWait::new();
        poll(&mut early, "early", true, || ());
        let session = TestSession::begin();
        poll(&mut early, "early", true, || ());
        assert_eq!(session.waiting(), owned(&["early"]));
        let mut within = TaskWait::new();
        poll(&mut within, "within", true, || {
            end_waits();
            begin_waits();
            poll(&mut early, "early", true, || ());
        });
        // The poll that began in the ended session is no part of the next one.
        assert_eq!(session.waiting(), owned(&["early"]));
        drop(within);
        end_waits();
        poll(&mut early, "early", true, || ());
        begin_waits();
        drop(early);
        assert_eq!(session.waiting(), owned(&[]));
        assert_eq!(session.waited(), waited(&[]));
    }

    #[test]
    fn future_polled_in_a_destructor_during_a_poll_is_inside_of_it() {
        struct PollsAtDrop(TaskWait);
        impl Drop for PollsAtDrop {
            fn drop(&mut self) {
                poll(&mut self.0, "at drop", true, || ());
            }
        }
        let session = TestSession::begin();
        let mut outer = TaskWait::new();
        poll(&mut outer, "outer", true, || {
            drop(PollsAtDrop(TaskWait::new()));
        });
        assert_eq!(session.waiting(), owned(&["outer"]));
    }

    #[test]
    fn future_polled_inside_the_profilers_own_work_is_not_recorded() {
        let session = TestSession::begin();
        let [mut outer, mut inner] = [TaskWait::new(), TaskWait::new()];
        poll(&mut outer, "outer", true, || {
            as_profiler_work(|| poll(&mut inner, "inner", true, || ()));
        });
        assert_eq!(session.waiting(), owned(&["outer"]));
        as_profiler_work(|| drop(outer));
    }

    #[test]
    fn polls_have_different_numbers() {
        let one = next_poll();
        let other = std::thread::spawn(next_poll).join().expect("no panic");
        assert!(one != other && next_poll() != other && one != 0);
    }
}
