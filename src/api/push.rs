//! Pushing profiles to a store.

use std::sync::Arc;
use std::time::Duration;

use crate::api::backend;
use crate::types::{PushCounts, PushError, PushSettings, StartParams};

/// Pushes a profile of the program to a store, one after the other, until the value is stopped or
/// dropped.
///
/// Each profile begins where the one before ends: each sample is in one profile. The profiles have
/// the number of samples, the wall time and the CPU time. They are in Google's pprof format, or in
/// that of the constructor of the settings. Pyroscope shows them as `wall:samples`, `wall:wall` and
/// `wall:cpu`.
///
/// **The session.** A session that runs is used as it is. Without one, this starts a session with 100
/// samples a second, at most 1 % of a processor and a buffer of 32 MiB, unless [`PushSettings::hz`]
/// or [`Pusher::set_session`] says otherwise. It ends with the pusher. When the application stops
/// its session, the samples so far are pushed, and the next session is used, or one of the pusher's
/// own, from when the last profile of the one before is written. A
/// [`ProfilerSession`](crate::ProfilerSession) can begin only while no other session runs. If the
/// application replaces a session by [`profiler_start`](crate::profiler_start), the samples since the
/// last profile are lost.
///
/// **What is sent.** Names of functions, threads and files, and labels of samples: those of their
/// [context](crate::context), and the fields of the markers and spans that surround them, with their
/// texts. So put nothing into these that must not leave the program.
///
/// **The store is away.** Profiles wait in a queue, in memory or in a folder
/// ([`PushSettings::queue_folder`]). The oldest are dropped when it is full. The next attempt comes
/// after 1 second, and then after twice the time, up to a minute, or after the seconds of
/// `Retry-After`, up to a minute. Up to a quarter is added at random. A profile that the store
/// refuses (4xx other than 408 and 429, or a redirection) is dropped, and a line on standard error
/// says so.
///
/// **What is guaranteed.** A profile is sent again only if no answer to it has arrived. If the store
/// or the connection fails after the store has kept a profile and before its answer, or the program
/// is killed between the answer and the next step, the store gets the profile twice. Each attempt
/// for one profile has the same header `Idempotency-Key`, by which a store can tell. The program's
/// kill loses what is not in the queue's folder yet: the time since the last profile.
///
/// **Its end.** [`Pusher::stop`], a drop, and [`profiler_shutdown`](crate::profiler_shutdown) push
/// the remaining data and take less than a second. A profile whose functions have no names by then
/// is lost if the program ends at once. The child of a fork pushes nothing until it calls this.
///
/// May be called from any thread. Cost: four threads that sleep most of the time, the session, and
/// the writing of each profile. The first profile takes longer: it reads the debug information of
/// the functions in it. What was read stays in memory for ten minutes, and is then read again.
/// Idea: the agents of Pyroscope.
///
/// ```no_run
/// use gekkota::push::{PushSettings, profiler_push};
///
/// let settings = PushSettings::pyroscope("http://pyroscope:4040")
///     .label("region", "eu-1")
///     .queue_folder("/var/lib/shop/profiles");
/// let pusher = profiler_push(settings)?;
/// // … the program …
/// println!("{:?}", pusher.stop());
/// # Ok::<(), gekkota::push::PushError>(())
/// ```
///
/// # Errors
/// - [`PushError::BadUrl`] and [`PushError::BadValue`]: a setting is not accepted.
/// - [`PushError::Queue`]: the folder cannot be used.
/// - [`PushError::AlreadyPushing`]: a process has one pusher at a time.
/// - [`PushError::Reentrant`]: the caller is code that the profiler runs, such as the application's
///   allocator.
/// - [`PushError::Start`]: no session runs, and none could be started.
/// - [`PushError::System`]: the operating system refused a thread.
/// - [`PushError::Unsupported`]: this build contains no profiler.
pub fn profiler_push(settings: PushSettings) -> Result<Pusher, PushError> {
    backend::push(&settings).map(Pusher)
}

/// Pushes profiles until it is stopped or dropped. See [`profiler_push`].
#[derive(Debug)]
#[must_use = "dropping it ends the pushing"]
pub struct Pusher(Arc<backend::RunningPush>);

impl Pusher {
    /// Returns what has become of the profiles so far. May be called from any thread.
    pub fn counts(&self) -> PushCounts {
        self.0.counts()
    }

    /// Sets the time between two profiles, from 0.1 seconds to 1 hour. May be called from any
    /// thread.
    ///
    /// # Errors
    /// [`PushError::BadValue`] for another time.
    pub fn set_interval(&self, interval: Duration) -> Result<(), PushError> {
        self.0.set_interval(interval)
    }

    /// Sets the parameters of the sessions that the pusher starts, such as the rate and the
    /// features. Their control signals are ignored. Unless they say otherwise, the capacity is 128
    /// MiB, and not the pusher's 32 MiB.
    ///
    /// If the current session is the pusher's, the samples so far are pushed, and a session with
    /// these parameters begins at once, or as soon as no other client uses the current one. No
    /// thread is sampled for some milliseconds between the two. If the application uses the
    /// session, too, the session continues unchanged, and the parameters apply to the pusher's next
    /// session.
    ///
    /// May be called from any thread. Another thread does the work.
    ///
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// use gekkota::StartParams;
    /// # fn during_an_incident(pusher: &gekkota::push::Pusher) -> Result<(), gekkota::push::PushError> {
    /// let fast = StartParams::default()
    ///     .interval(Duration::from_millis(1))
    ///     .capacity_bytes(32 << 20);
    /// pusher.set_session(fast)
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`PushError::Start`]: a parameter is not accepted.
    pub fn set_session(&self, params: StartParams) -> Result<(), PushError> {
        self.0.set_session(params)
    }

    /// Pushes the last profile, and returns what has become of all. Takes less than a second: what
    /// cannot be sent until then waits in the folder for the next process, or is dropped if there
    /// is none.
    pub fn stop(self) -> PushCounts {
        self.0.stop();
        self.0.counts()
    }
}

impl Drop for Pusher {
    fn drop(&mut self) {
        self.0.stop();
    }
}
