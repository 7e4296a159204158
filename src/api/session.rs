//! A session as a guard.

use crate::api::backend;
use crate::api::profile::Profile;
use crate::types::{StartError, StartParams, StreamError};

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
#[derive(Debug)]
#[must_use = "the profiler stops when this is dropped"]
pub struct ProfilerSession {
    generation: backend::Generation,
    /// The profile that [`finish`](Self::finish) took.
    finished: Option<Box<backend::FrozenProfile>>,
}

impl ProfilerSession {
    /// Starts a session, as [`profiler_start`](crate::api::life_cycle::profiler_start) does.
    ///
    /// # Errors
    /// Those of [`profiler_start`](crate::api::life_cycle::profiler_start).
    pub fn start(params: StartParams) -> Result<Self, StartError> {
        backend::start(&params).map(|generation| Self {
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
