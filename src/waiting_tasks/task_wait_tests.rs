//! Tests of [`TaskWait`](super::TaskWait).

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::*;
use crate::util::as_profiler_work;
use crate::waiting_tasks::chain::MAX_POLLS;
use crate::waiting_tasks::recorded_waits::{
    account_all_waits, begin_waits, end_waits, swap_wait_rows, wait_losses,
};

/// A session that records waits. One test at a time has one.
struct TestSession(#[expect(dead_code, reason = "held")] MutexGuard<'static, ()>);

/// Keeps the sessions of other tests from beginning.
fn without_session() -> MutexGuard<'static, ()> {
    static TESTS: Mutex<()> = Mutex::new(());
    TESTS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TestSession {
    fn begin() -> Self {
        Self::begin_with(without_session())
    }

    fn begin_with(only: MutexGuard<'static, ()>) -> Self {
        begin_waits();
        set_time(0);
        Self(only)
    }

    fn waiting(&self) -> Vec<String> {
        with_waits(session(), |waits| waits.waiting_stacks()).expect("a session")
    }

    /// Returns the stacks and what their futures have waited, in µs.
    fn waited(&self) -> Vec<(String, u64)> {
        assert!(account_all_waits(now()));
        let mut rows = Vec::new();
        swap_wait_rows(&mut rows);
        let mut waited: Vec<(String, u64)> = Vec::new();
        for row in rows {
            let text = with_waits(session(), |waits| waits.stacks.text(row.stack));
            let text = text.expect("runs");
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
    let begun = wait.begin_poll(Some((label, "")), 0);
    let value = body();
    if let Some(begun) = begun {
        wait.end_poll(begun, is_pending, "");
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
    // A join polls only the woken futures.
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
    struct AbandonedAtEnd<'a>(&'a mut TaskWait, BegunPoll);
    impl Drop for AbandonedAtEnd<'_> {
        fn drop(&mut self) {
            self.0.abandon_poll(self.1);
        }
    }
    let session = TestSession::begin();
    let [mut outer, mut inner] = [TaskWait::new(), TaskWait::new()];
    poll(&mut outer, "outer", true, || {
        let begun = inner.begin_poll(Some(("inner", "")), 0).expect("recorded");
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let _abandoned = AbandonedAtEnd(&mut inner, begun);
            std::panic::resume_unwind(Box::new(()));
        }));
        assert!(caught.is_err());
    });
    assert_eq!(session.waiting(), owned(&["outer"]));
    drop(outer);
    assert_eq!(innermost().number, 0);
}

#[test]
fn session_that_begins_or_ends_between_polls_or_within_one() {
    let only = without_session();
    let mut early = TaskWait::new();
    poll(&mut early, "early", true, || ());
    let session = TestSession::begin_with(only);
    poll(&mut early, "early", true, || ());
    assert_eq!(session.waiting(), owned(&["early"]));
    let mut within = TaskWait::new();
    poll(&mut within, "within", true, || {
        end_waits();
        begin_waits();
        poll(&mut early, "early", true, || ());
    });
    // The poll that began in the ended session does not belong to the next session.
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
fn future_that_ends_inside_the_profilers_own_work_waits_no_more() {
    let session = TestSession::begin();
    let [mut dropped, mut polled] = [TaskWait::new(), TaskWait::new()];
    poll(&mut dropped, "dropped", true, || ());
    poll(&mut polled, "polled", true, || ());
    as_profiler_work(|| {
        drop(dropped);
        poll(&mut polled, "polled", false, || ());
    });
    set_time(9_000_000);
    assert_eq!(session.waiting(), owned(&[]));
    assert_eq!(session.waited(), waited(&[]));
    let losses = with_waits(super::session(), |waits| waits.losses().waits);
    assert_eq!(losses, Some(2));
}

#[test]
fn ends_beyond_the_remembered_ones_are_counted() {
    let session = TestSession::begin();
    let mut waiting = Vec::new();
    for _ in 0..70 {
        let mut wait = TaskWait::new();
        poll(&mut wait, "many", true, || ());
        waiting.push(wait);
    }
    as_profiler_work(|| drop(waiting));
    assert_eq!(session.waiting().len(), 6);
    assert_eq!(wait_losses().waits, 70);
}

#[test]
fn future_dropped_in_the_poll_of_a_sibling_is_not_pending() {
    let session = TestSession::begin();
    let mut outer = TaskWait::new();
    let [mut one, mut other] = [TaskWait::new(), TaskWait::new()];
    poll(&mut outer, "outer", true, || {
        poll(&mut one, "one", true, || ());
        poll(&mut other, "other", false, || {
            drop(std::mem::take(&mut one));
        });
    });
    assert_eq!(session.waiting(), owned(&["outer"]));
}

#[test]
fn future_in_a_destructor_of_a_thread_local_is_recorded() {
    struct PollsAtExit(TaskWait);
    impl Drop for PollsAtExit {
        fn drop(&mut self) {
            poll(&mut self.0, "at exit", true, || ());
            set_time(5);
        }
    }
    thread_local! {
        static AT_EXIT: Cell<Option<PollsAtExit>> = const { Cell::new(None) };
    }
    let session = TestSession::begin();
    let thread = std::thread::spawn(|| {
        set_time(1);
        AT_EXIT.set(Some(PollsAtExit(TaskWait::new())));
        poll(&mut TaskWait::new(), "before", false, || ());
    });
    thread.join().expect("no panic");
    assert_eq!(session.waiting(), owned(&[]));
    set_time(9);
    assert_eq!(session.waited(), waited(&[("at exit", 4)]));
}

/// Enters and exits a span's future.
fn enter(wait: &mut TaskWait, label: &str, span: u64) -> Option<BegunPoll> {
    wait.begin_poll(Some((label, "")), span)
}

fn exit(wait: &mut TaskWait, begun: Option<BegunPoll>) {
    if let Some(begun) = begun {
        wait.exit_span(begun, ContextWords::NONE);
    }
}

#[test]
fn span_waits_when_the_last_thread_has_exited_it() {
    let session = TestSession::begin();
    let mut span = TaskWait::new();
    let here = enter(&mut span, "span", 1);
    let (mut span, there) = std::thread::spawn(move || {
        set_time(0);
        let there = enter(&mut span, "span", 1);
        (span, there)
    })
    .join()
    .expect("no panic");
    exit(&mut span, here);
    assert_eq!(session.waiting(), owned(&[]));
    let mut span = std::thread::spawn(move || {
        set_time(0);
        exit(&mut span, there);
        span
    })
    .join()
    .expect("no panic");
    // A thread that does not have the entry in its chain, as after the exit of that thread, only
    // ends it.
    assert_eq!(session.waiting(), owned(&[]));
    let again = enter(&mut span, "span", 1);
    exit(&mut span, again);
    assert_eq!(session.waiting(), owned(&["span"]));
    drop(span);
    assert_eq!(session.waiting(), owned(&[]));
}

#[test]
fn span_entered_again_inside_of_itself_is_one_frame() {
    let session = TestSession::begin();
    let mut span = TaskWait::new();
    let outer = enter(&mut span, "span", 1);
    let inner = enter(&mut span, "span", 1);
    assert!(inner.is_none());
    exit(&mut span, inner);
    assert_eq!(session.waiting(), owned(&[]));
    exit(&mut span, outer);
    assert_eq!(session.waiting(), owned(&["span"]));
}

#[test]
fn spans_exited_out_of_order_leave_the_chain_empty() {
    let session = TestSession::begin();
    let [mut one, mut other, mut future] = std::array::from_fn(|_| TaskWait::new());
    let entered_one = enter(&mut one, "one", 1);
    let entered_other = enter(&mut other, "other", 2);
    exit(&mut one, entered_one);
    exit(&mut other, entered_other);
    assert_eq!(session.waiting(), owned(&["one", "one → other"]));
    poll(&mut future, "future", true, || ());
    assert_eq!(session.waiting(), owned(&["future", "one", "one → other"]));
}

#[test]
fn span_kept_entered_across_an_await_ends_with_the_future_around_it() {
    let session = TestSession::begin();
    let [mut outer, mut span, mut inner] = std::array::from_fn(|_| TaskWait::new());
    let mut entered = None;
    poll(&mut outer, "outer", true, || {
        entered = enter(&mut span, "span", 1);
        poll(&mut inner, "inner", true, || ());
    });
    assert_eq!(session.waiting(), owned(&["outer → span → inner"]));
    let mut other = TaskWait::new();
    poll(&mut other, "other", true, || ());
    exit(&mut span, entered);
    assert_eq!(session.waiting(), owned(&["other", "outer → span → inner"]));
}

#[test]
fn future_deeper_than_the_chain_counts_as_the_one_around_it() {
    fn nested(depth: usize) {
        if depth > 0 {
            poll(&mut TaskWait::new(), "deeper", true, || nested(depth - 1));
        }
    }
    let session = TestSession::begin();
    nested(3 * MAX_POLLS);
    assert_eq!(session.waiting(), owned(&[]));
    assert_eq!(innermost().number, 0);
}
