//! What state-change callbacks and after-sampling callbacks are told.

/// What is happening to the profiler, as a state-change callback is told.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
#[repr(u8)]
pub enum ProfilingState {
    /// The callback was just added, and the profiler is active.
    AlreadyActive = 0,
    /// The callback was just removed. It is told nothing after this, but for what another thread was telling it already.
    RemovingCallback = 1,
    /// The profiler has started, or has started anew.
    Started = 2,
    /// The profiler is about to pause. Markers that are added now are recorded still.
    Pausing = 3,
    /// The profiler goes on after a pause.
    Resumed = 4,
    /// A profile is about to be taken. Markers that are added now are in it.
    GeneratingProfile = 5,
    /// The profiler is about to stop. What was recorded can still be had. Not told when it starts anew; but if that fails
    /// after the stop, it is told then.
    Stopping = 6,
    /// `profiler_shutdown` was called; the profiler is about to give everything back.
    ShuttingDown = 7,
}

impl ProfilingState {
    const ALL: [Self; 8] = [
        Self::AlreadyActive,
        Self::RemovingCallback,
        Self::Started,
        Self::Pausing,
        Self::Resumed,
        Self::GeneratingProfile,
        Self::Stopping,
        Self::ShuttingDown,
    ];
}

/// A set of [`ProfilingState`]s: `ProfilingState::Started | ProfilingState::Stopping`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[doc(alias = "ProfilingStateSet")]
pub struct ProfilingStates(u8);

impl ProfilingStates {
    /// No state.
    pub const NONE: Self = Self(0);
    /// Every state.
    #[doc(alias = "AllProfilingStates")]
    pub const ALL: Self = Self(u8::MAX);

    /// Whether this state is in here.
    pub const fn contains(self, state: ProfilingState) -> bool {
        self.0 & 1 << state as u8 != 0
    }
}

impl From<ProfilingState> for ProfilingStates {
    fn from(state: ProfilingState) -> Self {
        Self(1 << state as u8)
    }
}

impl<S: Into<ProfilingStates>> std::ops::BitOr<S> for ProfilingStates {
    type Output = Self;
    fn bitor(self, other: S) -> Self {
        Self(self.0 | other.into().0)
    }
}

impl<S: Into<ProfilingStates>> std::ops::BitOr<S> for ProfilingState {
    type Output = ProfilingStates;
    fn bitor(self, other: S) -> ProfilingStates {
        ProfilingStates::from(self) | other
    }
}

impl std::fmt::Debug for ProfilingStates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set()
            .entries(
                ProfilingState::ALL
                    .iter()
                    .filter(|&&state| self.contains(state)),
            )
            .finish()
    }
}

/// How the sampling went that an after-sampling callback waited for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum SamplingState {
    /// The profiler was stopped or started anew before there was a complete loop, or its sampler failed.
    JustStopped,
    /// The profiler is paused, or its sampling is: nobody was sampled.
    SamplingPaused,
    /// Counters and CPU times were sampled; the feature `nostacksampling` forbids stacks.
    NoStackSamplingCompleted,
    /// Every profiled thread was looked at, and what they answered is in the buffer.
    SamplingCompleted,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_hold_what_was_put_in() {
        let set = ProfilingState::Started | ProfilingState::Stopping | ProfilingState::ShuttingDown;
        let held: Vec<_> = ProfilingState::ALL
            .into_iter()
            .filter(|&state| set.contains(state))
            .collect();
        assert_eq!(
            held,
            [
                ProfilingState::Started,
                ProfilingState::Stopping,
                ProfilingState::ShuttingDown
            ]
        );
        assert_eq!(format!("{set:?}"), "{Started, Stopping, ShuttingDown}");
        assert!(
            ProfilingState::ALL
                .into_iter()
                .all(|state| ProfilingStates::ALL.contains(state))
        );
        assert!(
            !ProfilingState::ALL
                .into_iter()
                .any(|state| ProfilingStates::NONE.contains(state))
        );
    }
}
