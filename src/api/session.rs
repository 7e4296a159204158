//! A session as a guard.

use std::panic::Location;

use crate::api::backend;
use crate::api::profile::Profile;
use crate::types::{Generation, StartError, StartParams, StreamError, WhileOtherRuns};

/// A running session. Dropping it stops the profiler, unless another call has started a new session
/// since.
///
/// A session that is dropped without [`finish`](Self::finish) loses its data, with one exception.
/// If the application called [`profiler_init`](crate::api::life_cycle::profiler_init) with
/// `MOZ_PROFILER_SHUTDOWN` or `MOZ_PROFILER_REPORT` set, the profile of the last `ProfilerSession`
/// that ended is kept. [`profiler_shutdown`](crate::api::life_cycle::profiler_shutdown) saves or
/// reports the kept profile if no session runs at that time. Until then the profile occupies the
/// memory of its data.
///
/// Declare the session after [`AutoProfilerInit`](crate::api::life_cycle::AutoProfilerInit), so
/// that the session is dropped first.
///
/// ```no_run
/// # fn work() {}
/// let session = gekkota::ProfilerSession::start(gekkota::StartParams::default())?;
/// work();
/// session.finish()?.save("work.profile.json")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # If another session runs
///
/// A process has one session at a time. What a start does while another session runs depends on the
/// other session:
///
/// | the running session was started by | [`start`](Self::start) | [`start_in_turn`](Self::start_in_turn) |
/// |---|---|---|
/// | another `ProfilerSession` | returns [`StartError::SessionRuns`], which names the file and the line of the other call | waits until that session has ended |
/// | [`profiler_start`], a variable, or a control signal | replaces it, as [`profiler_start`] does | likewise |
///
/// [`profiler_start`] replaces every running session, as in Gecko. A `ProfilerSession` whose
/// session was replaced has no profile: its [`finish`](Self::finish) fails.
///
/// # Tests and benchmarks
///
/// The tests of one binary run on several threads of one process. A test that needs a session of
/// its own takes its turn. A session records all threads of the process, including those of tests
/// that run at the same time. Give the test's threads names of their own, and let the session
/// record only these:
///
/// ```
/// use gekkota::{ProfilerSession, StartParams, ThreadGuard};
///
/// # fn parse(text: &str) -> usize { text.len() }
/// // In a program, this is a function with `#[test]`.
/// fn parse_calls_the_lexer() {
///     let _registered = ThreadGuard::register("parser test");
///     let params = StartParams::default().filters(["parser test"]);
///     let session = ProfilerSession::start_in_turn(params).expect("a profiler");
///     parse(&"1 + ".repeat(1_000));
///     // Keep the profile of a failed test, or look at it here.
///     let profile = session.finish().expect("nothing else calls profiler_start here");
///     assert!(profile.summarize().len() <= 1);
/// }
/// # if gekkota::Features::available() != gekkota::Features::NONE {
/// # parse_calls_the_lexer();
/// # parse_calls_the_lexer();
/// # }
/// ```
///
/// The number of samples and their shares differ from run to run, so a test should not depend on
/// them. In a benchmark, start the session before the measured loop and finish it after the loop:
/// to start, to stop and to write a profile takes milliseconds. Compare two versions of a program
/// with [`Profile::diff`], which knows chance from change. The example `criterion_profiler` records
/// a profile of each Criterion benchmark.
///
/// [`profiler_start`]: crate::api::life_cycle::profiler_start
#[derive(Debug)]
#[must_use = "the profiler stops when this is dropped"]
pub struct ProfilerSession {
    generation: Generation,
    /// The profile that [`finish`](Self::finish) took.
    finished: Option<Box<backend::FrozenProfile>>,
}

impl ProfilerSession {
    /// Starts a session, as [`profiler_start`](crate::api::life_cycle::profiler_start) does, unless
    /// the session of another `ProfilerSession` runs.
    ///
    /// # Errors
    /// Those of [`profiler_start`](crate::api::life_cycle::profiler_start), and
    /// [`StartError::SessionRuns`].
    #[track_caller]
    pub fn start(params: StartParams) -> Result<Self, StartError> {
        Self::start_at(params, Location::caller(), WhileOtherRuns::Fail)
    }

    /// Starts a session as [`start`](Self::start) does, after waiting until no session of another
    /// `ProfilerSession` runs.
    ///
    /// Several waiting calls go on in no particular order. The wait has no limit: a guard that is
    /// leaked, by [`std::mem::forget`] for example, ends its turn only when another call stops the
    /// profiler. A panic that drops a guard ends the guard's turn. The child of a fork has no
    /// session, so a call there does not wait for a guard of the parent.
    ///
    /// # Errors
    /// Those of [`profiler_start`](crate::api::life_cycle::profiler_start). If the calling thread
    /// itself started the running session, [`StartError::SessionRuns`], because the wait would
    /// never end.
    #[track_caller]
    pub fn start_in_turn(params: StartParams) -> Result<Self, StartError> {
        Self::start_at(params, Location::caller(), WhileOtherRuns::Wait)
    }

    fn start_at(
        params: StartParams,
        place: &'static Location<'static>,
        while_other_runs: WhileOtherRuns,
    ) -> Result<Self, StartError> {
        let generation = backend::start_guarded(&params, place, while_other_runs)?;
        Ok(Self {
            generation,
            finished: None,
        })
    }

    /// Takes the profile so far. The session continues.
    ///
    /// Cost: copies lists, and shares the buffer's memory. The costly work happens when the profile
    /// is written.
    ///
    /// # Errors
    /// [`StreamError::Inactive`] if another call has stopped or restarted the profiler.
    pub fn snapshot(&self) -> Result<Profile, StreamError> {
        backend::freeze(Some(self.generation))
            .map(Profile::of_session)
            .ok_or(StreamError::Inactive)
    }

    /// Takes the whole profile, and ends the session.
    ///
    /// # Errors
    /// [`StreamError::Inactive`] if another call has stopped or restarted the profiler.
    pub fn finish(mut self) -> Result<Profile, StreamError> {
        let profile = self.snapshot();
        let taken = profile.as_ref().ok().and_then(Profile::as_session);
        self.finished = taken.cloned().map(Box::new);
        profile
    }
}

impl Drop for ProfilerSession {
    fn drop(&mut self) {
        backend::end_guarded_session(self.generation, self.finished.take().map(|taken| *taken));
    }
}
