//! Jobs that the calling thread shares with helper threads.
//!
//! A helper may begin late, or never: the calling thread may be in a library's constructor and hold
//! the loader's lock, which a new thread may need. So the calling thread never waits for a helper to
//! begin. It does jobs itself until none is left, and then waits only for the jobs that helpers have
//! taken.
//!
//! The mutex is the standard library's, for the reason that `channel.rs` gives. It belongs to one
//! call, so no code that interrupts the call can wait for it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::platform::identity::{has_usual_scheduling, lower_priority};
use crate::platform::thread::own_descriptors::{
    Work, has_memory, may_begin_thread, use_own_descriptors,
};
use crate::platform::thread::profiler_thread::spawn_profiler_thread;

/// What is added to the calling thread's nice value for its helpers. The application's threads then
/// get three times the processor time of a helper. With the largest value, a helper that shares a
/// processor with a busy thread would need seconds for what takes milliseconds, and the calling
/// thread waits for it.
const HELPER_NICE: i32 = 5;

/// Number of helpers that were given up and have not begun yet. A new one would not begin either.
static NOT_BEGUN: AtomicUsize = AtomicUsize::new(0);

/// The jobs of one call, and their answers.
struct Shared<J, A> {
    state: Mutex<State<J, A>>,
    has_finished: Condvar,
}

struct State<J, A> {
    /// Jobs that no thread has taken, the next one last.
    jobs: Vec<J>,
    /// Number of jobs that helpers are doing.
    running: usize,
    answers: Vec<std::thread::Result<A>>,
}

impl<J, A> Shared<J, A> {
    fn lock(&self) -> MutexGuard<'_, State<J, A>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does jobs until none is left. Runs on a helper.
    fn help(&self, work: &impl Fn(J) -> A) {
        loop {
            let mut state = self.lock();
            let Some(job) = state.jobs.pop() else { return };
            state.running += 1;
            drop(state);
            let answer = catch_unwind(AssertUnwindSafe(|| work(job)));
            let mut state = self.lock();
            state.running -= 1;
            state.answers.push(answer);
            drop(state);
            self.has_finished.notify_all();
        }
    }

    /// Takes the next job, on the calling thread.
    fn take(&self) -> Option<J> {
        self.lock().jobs.pop()
    }

    /// Waits until helpers have finished the jobs that they have taken. Returns their answers.
    fn wait_for_helpers(&self) -> Vec<std::thread::Result<A>> {
        let is_running = |state: &mut State<J, A>| state.running > 0;
        let waited = self.has_finished.wait_while(self.lock(), is_running);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut state.answers)
    }
}

/// Does `work` for each job, on the calling thread and on up to `max_helpers` new threads of lower
/// priority. Returns the answers in no particular order.
///
/// `work` neither runs code of the application nor calls the loader, whose lock the calling thread
/// may hold. A helper has a descriptor table of its own, unless the kernel refuses one. There are no
/// helpers in a sandbox, on a thread of another scheduling class than the usual one, which a helper
/// would inherit, and where an earlier thread did not begin. Cost: about 40 µs for each helper.
///
/// # Panics
/// Resumes a panic of `work`.
pub(crate) fn share_jobs<J: Send + 'static, A: Send + 'static>(
    mut jobs: Vec<J>,
    max_helpers: usize,
    work: impl Fn(J) -> A + Send + Sync + 'static,
) -> Vec<A> {
    let helpers = max_helpers.min(jobs.len().saturating_sub(1));
    if helpers == 0 || !may_have_helpers() {
        return jobs.into_iter().map(work).collect();
    }
    jobs.reverse();
    let state = State {
        jobs,
        running: 0,
        answers: Vec::new(),
    };
    let shared = Arc::new(Shared {
        state: Mutex::new(state),
        has_finished: Condvar::new(),
    });
    let work = Arc::new(work);
    let threads: Vec<_> = (0..helpers)
        .map_while(|_| {
            let (shared, work) = (Arc::clone(&shared), Arc::clone(&work));
            let (help, of_helper) = Work::new(&NOT_BEGUN, move || shared.help(&*work));
            let run = move || {
                let has_memory = has_memory();
                if has_memory {
                    use_own_descriptors();
                    lower_priority(HELPER_NICE);
                }
                // The steps so far may wait for the loader.
                if let Some(help) = of_helper.take()
                    && has_memory
                {
                    help();
                }
            };
            let thread = spawn_profiler_thread(c"ProfilerNames", run);
            Some((thread.ok()?, help))
        })
        .collect();
    let mut answers = Vec::new();
    while let Some(job) = shared.take() {
        answers.push(work(job));
    }
    let by_helpers = shared.wait_for_helpers();
    for (thread, help) in threads {
        if help.take_back().is_none() {
            thread.join();
        }
    }
    for answer in by_helpers {
        answers.push(answer.unwrap_or_else(|panic| resume_unwind(panic)));
    }
    answers
}

fn may_have_helpers() -> bool {
    may_begin_thread() && has_usual_scheduling() && NOT_BEGUN.load(Ordering::Relaxed) == 0
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Barrier;

    use super::*;
    use crate::platform::procfs::own_nice;
    use crate::platform::thread::own_descriptors::has_own_descriptors;

    fn current_thread() -> libc::pid_t {
        nix::unistd::gettid().as_raw()
    }

    /// Waits until no earlier call's helper is about to begin, and checks that there can be helpers:
    /// the tests would wait for one for ever.
    fn wait_for_earlier_helpers() {
        while NOT_BEGUN.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
        assert!(may_have_helpers(), "a sandbox, or another scheduling class");
    }

    #[test]
    fn helper_begins_or_is_given_up() {
        static GIVEN_UP: AtomicUsize = AtomicUsize::new(0);
        let given_up = || GIVEN_UP.load(Ordering::Relaxed);
        let (help, one_begins) = Work::new(&GIVEN_UP, ());
        assert!(one_begins.take().is_some() && help.take_back().is_none());
        let (help, other_is_given_up) = Work::new(&GIVEN_UP, ());
        assert!(help.take_back().is_some() && given_up() == 1);
        assert!(other_is_given_up.take().is_none() && given_up() == 0);
    }

    #[test]
    fn helpers_share_the_jobs_at_lower_priority() {
        wait_for_earlier_helpers();
        // Each job waits for the other one, so neither thread can do both.
        let both = Barrier::new(2);
        let work = move |job: u32| {
            both.wait();
            (job, current_thread(), own_nice(), has_own_descriptors())
        };
        let mut answers = share_jobs(vec![1, 2], 1, work);
        answers.sort_unstable();
        let [one, two] = answers.as_slice() else {
            panic!("{answers:?}")
        };
        assert_eq!((one.0, two.0), (1, 2));
        let is_caller = |thread| thread == current_thread();
        let (caller, helper) = if is_caller(one.1) {
            (one, two)
        } else {
            (two, one)
        };
        assert!(is_caller(caller.1) && !is_caller(helper.1), "{answers:?}");
        assert_eq!(caller.2, own_nice());
        let lower = own_nice().map(|nice| (nice + HELPER_NICE).min(19));
        assert_eq!(helper.2, lower);
        assert!(helper.3 && !caller.3, "{answers:?}");
    }

    #[test]
    fn every_job_is_done_once_with_any_number_of_helpers() {
        for helpers in [0, 1, 3, 200] {
            let answers = share_jobs((0..100).collect(), helpers, |job: u32| job * 2);
            assert_eq!(answers.len(), 100, "{helpers}");
            let answers: HashSet<u32> = answers.into_iter().collect();
            assert_eq!(answers, (0..100).map(|job| job * 2).collect(), "{helpers}");
        }
        assert!(share_jobs(Vec::<u32>::new(), 2, |job| job).is_empty());
    }

    #[test]
    fn panic_of_a_helper_reaches_the_caller() {
        wait_for_earlier_helpers();
        let both = Barrier::new(2);
        let caller = current_thread();
        let work = move |_: u32| {
            both.wait();
            assert_eq!(current_thread(), caller, "on purpose");
        };
        let result = catch_unwind(AssertUnwindSafe(|| share_jobs(vec![1, 2], 1, work)));
        assert!(result.is_err());
    }
}
