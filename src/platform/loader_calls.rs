//! Keeps count of the profiler's own calls to the loader, for threads that fork or that wait for a
//! thread in such a call.
//!
//! This is not a lock: any number of threads may call the loader at a time. A thread of the
//! application may hold the loader's lock, in its own callback of `dl_iterate_phdr`, and call the
//! profiler. If the profiler had a lock around its calls, that thread would wait for a thread that
//! waits for it.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Bit of [`LoaderCalls::calls`] that is set while the process forks.
const FORKING: u32 = 1 << 31;
/// Time between two checks of a waiting thread.
const POLL_INTERVAL: Duration = Duration::from_micros(50);
/// Maximum time that a fork waits for calls that do not get the loader's lock. Such calls wait for
/// a thread of the application, which may be the one that forks.
const MAX_FORK_WAIT: Duration = Duration::from_secs(1);

/// The calls in progress.
#[derive(Debug)]
pub(crate) struct LoaderCalls {
    /// Number of calls in progress, and [`FORKING`].
    calls: AtomicU32,
    /// Number of calls in progress that have the loader's lock.
    with_lock: AtomicU32,
    /// Number of calls so far that got the loader's lock.
    entered: AtomicU32,
    seats: [Seat; MAX_WATCHED],
}

/// Maximum number of threads that are watched at a time: the sampler, and those of earlier sessions
/// that still wait for the loader.
const MAX_WATCHED: usize = 64;

/// What other threads see of the calls of a watched thread.
#[derive(Debug)]
struct Seat {
    is_taken: AtomicBool,
    /// Odd while a call waits for the loader's lock. Changes when a call begins to wait, and when
    /// it ends that.
    changes: AtomicU32,
}

thread_local! {
    /// The seat of the calling thread, if it is watched. Not a type with a destructor: the C
    /// library waits for the loader when it registers one.
    static OWN_SEAT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// A thread whose calls other threads watch.
#[derive(Debug)]
pub(crate) struct WatchedThread<'a> {
    calls: &'a LoaderCalls,
    /// `None` if all seats are taken.
    seat: Option<usize>,
}

/// A call in progress.
#[derive(Debug)]
pub(crate) struct LoaderCall<'a> {
    calls: &'a LoaderCalls,
    /// The seat of the calling thread, while the call waits.
    waits: Cell<Option<&'a Seat>>,
    /// Whether the call has the loader's lock.
    has_lock: Cell<bool>,
}

impl LoaderCalls {
    pub(crate) const fn new() -> Self {
        Self {
            calls: AtomicU32::new(0),
            with_lock: AtomicU32::new(0),
            entered: AtomicU32::new(0),
            seats: [const {
                Seat {
                    is_taken: AtomicBool::new(false),
                    changes: AtomicU32::new(0),
                }
            }; MAX_WATCHED],
        }
    }

    /// Prepares to watch a thread, which then calls [`WatchedThread::begin`].
    pub(crate) fn watch(&self) -> WatchedThread<'_> {
        let take = |seat: &Seat| !seat.is_taken.swap(true, Ordering::AcqRel);
        WatchedThread {
            calls: self,
            seat: self.seats.iter().position(take),
        }
    }

    /// Begins a call. Waits while the process forks.
    pub(crate) fn begin(&self) -> LoaderCall<'_> {
        loop {
            let calls = self.calls.load(Ordering::Relaxed);
            let begins = |calls| {
                self.calls
                    .compare_exchange_weak(calls, calls + 1, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            };
            if calls & FORKING != 0 {
                sleep(POLL_INTERVAL);
            } else if begins(calls) {
                let seat = OWN_SEAT.get().and_then(|seat| self.seats.get(seat));
                seat.inspect(|seat| seat.change());
                return LoaderCall {
                    calls: self,
                    waits: Cell::new(seat),
                    has_lock: Cell::new(false),
                };
            }
        }
    }

    /// Waits until no call is in progress, and delays further calls. Gives up waiting for calls
    /// that have not got the loader's lock for [`MAX_FORK_WAIT`].
    pub(crate) fn close_for_fork(&self) {
        let mut stuck = (None, Instant::now());
        while self
            .calls
            .compare_exchange(0, FORKING, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            let is_stuck = self.is_stuck(&mut stuck.0);
            if !is_stuck {
                stuck.1 = Instant::now();
            } else if stuck.1.elapsed() > MAX_FORK_WAIT {
                self.calls.fetch_or(FORKING, Ordering::Acquire);
                return;
            }
            sleep(POLL_INTERVAL);
        }
    }

    /// Allows calls again after [`Self::close_for_fork`].
    pub(crate) fn open(&self) {
        self.calls.fetch_and(!FORKING, Ordering::Release);
    }

    /// Forgets all calls. Called in the child of a fork, in which their threads do not exist.
    pub(crate) fn reset(&self) {
        self.with_lock.store(0, Ordering::Relaxed);
        self.calls.store(0, Ordering::Release);
    }

    /// Returns whether a call waits for the loader's lock, and no call got the lock since the
    /// previous check. `seen` holds the state of that check.
    fn is_stuck(&self, seen: &mut Option<u32>) -> bool {
        let entered = self.entered.load(Ordering::Acquire);
        let calls = self.calls.load(Ordering::Acquire) & !FORKING;
        let is_waiting = calls > 0 && self.with_lock.load(Ordering::Acquire) == 0;
        let now = is_waiting.then_some(entered);
        let before = std::mem::replace(seen, now);
        now.is_some() && now == before
    }
}

impl Seat {
    fn change(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }
}

impl WatchedThread<'_> {
    /// Makes the calling thread the watched one, until it ends.
    pub(crate) fn begin(&self) {
        OWN_SEAT.set(self.seat);
    }

    /// Returns whether the thread waits for the loader's lock, in the same call as at the previous
    /// check. `seen` holds the state of that check. If too many threads are watched, the calls of
    /// all threads count.
    pub(crate) fn is_stuck(&self, seen: &mut Option<u32>) -> bool {
        let Some(seat) = self.seat.and_then(|seat| self.calls.seats.get(seat)) else {
            return self.calls.is_stuck(seen);
        };
        let now = seat.changes.load(Ordering::Acquire);
        let before = seen.replace(now);
        now % 2 == 1 && before == Some(now)
    }
}

impl Drop for WatchedThread<'_> {
    fn drop(&mut self) {
        if let Some(seat) = self.seat.and_then(|seat| self.calls.seats.get(seat)) {
            seat.is_taken.store(false, Ordering::Release);
        }
    }
}

impl LoaderCall<'_> {
    /// Records that the call has got the loader's lock, which it keeps until it ends.
    pub(crate) fn got_lock(&self) {
        if !self.has_lock.replace(true) {
            self.end_wait();
            self.calls.with_lock.fetch_add(1, Ordering::Release);
            self.calls.entered.fetch_add(1, Ordering::Release);
        }
    }

    fn end_wait(&self) {
        self.waits.take().inspect(|seat| seat.change());
    }
}

impl Drop for LoaderCall<'_> {
    fn drop(&mut self) {
        if self.has_lock.get() {
            self.calls.with_lock.fetch_sub(1, Ordering::Release);
        }
        self.end_wait();
        self.calls.calls.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_is_stuck_while_it_waits_and_no_other_gets_the_lock() {
        let calls = LoaderCalls::new();
        let mut seen = None;
        assert!(
            !calls.is_stuck(&mut seen) && !calls.is_stuck(&mut seen),
            "no call"
        );
        let waiting = calls.begin();
        assert!(!calls.is_stuck(&mut seen), "the first check");
        assert!(calls.is_stuck(&mut seen));
        calls.begin().got_lock();
        assert!(!calls.is_stuck(&mut seen), "another call got the lock");
        assert!(calls.is_stuck(&mut seen));
        waiting.got_lock();
        assert!(!calls.is_stuck(&mut seen) && !calls.is_stuck(&mut seen));
    }

    #[test]
    fn watched_thread_is_stuck_only_while_its_own_call_waits() {
        let calls = LoaderCalls::new();
        let watched = calls.watch();
        let mut seen = None;
        let mut is_stuck = || {
            watched.is_stuck(&mut seen);
            watched.is_stuck(&mut seen)
        };
        let of_another_thread = calls.begin();
        assert!(!is_stuck(), "another thread waits");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                watched.begin();
                std::mem::forget(calls.begin());
            });
            waits.join().expect("no panic");
        });
        assert!(is_stuck());
        of_another_thread.got_lock();
        assert!(is_stuck(), "another thread has got the lock");
        std::thread::scope(|scope| {
            let goes_on = scope.spawn(|| {
                watched.begin();
                // Ends the wait of the call above.
                calls.seats[0].change();
                calls.begin().got_lock();
            });
            goes_on.join().expect("no panic");
        });
        assert!(!is_stuck());
    }

    #[test]
    fn thread_beyond_the_last_seat_is_watched_with_all_threads() {
        let calls = LoaderCalls::new();
        let seated: Vec<_> = (0..MAX_WATCHED).map(|_| calls.watch()).collect();
        let watched = calls.watch();
        let _waiting = calls.begin();
        let mut seen = None;
        assert!(!watched.is_stuck(&mut seen) && watched.is_stuck(&mut seen));
        drop(seated);
        assert_eq!(calls.watch().seat, Some(0));
    }

    #[test]
    fn fork_gives_up_waiting_for_a_stuck_call() {
        let calls = LoaderCalls::new();
        let waiting = calls.begin();
        calls.close_for_fork();
        std::mem::forget(waiting);
        calls.reset();
        drop(calls.begin());
        calls.close_for_fork();
        calls.open();
        drop(calls.begin());
    }
}
