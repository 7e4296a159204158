//! Arguments of state-change callbacks and after-sampling callbacks.

/// A change of the profiler's state, passed to state-change callbacks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
#[repr(u8)]
pub enum ProfilingState {
    /// The callback was just added, and the profiler is active.
    AlreadyActive = 0,
    /// The callback was just removed. No call begins after this one; a call on another thread may
    /// still be in progress.
    RemovingCallback = 1,
    /// The profiler has started or restarted.
    Started = 2,
    /// The profiler is about to pause. Markers added now are still recorded.
    Pausing = 3,
    /// The profiler has resumed after a pause.
    Resumed = 4,
    /// A profile is about to be taken. It will contain markers added now.
    GeneratingProfile = 5,
    /// The profiler is about to stop. Its data can still be read.
    ///
    /// A restart reports this state only if it fails after it has ended the old session. The report
    /// then comes after that end.
    Stopping = 6,
    /// `profiler_shutdown` was called; the profiler is about to release all its resources.
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

/// What to do while the session of another `ProfilerSession` runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WhileOtherRuns {
    Fail,
    Wait,
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

    /// Returns whether the set contains `state`.
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

/// Outcome of the sampling that an after-sampling callback waited for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum SamplingState {
    /// The profiler was stopped or restarted before a sampling loop was complete, or its sampler
    /// failed.
    JustStopped,
    /// The profiler or its sampling is paused: no thread was sampled.
    SamplingPaused,
    /// Counters and CPU times were sampled, but no stacks, because of the feature
    /// `nostacksampling`.
    NoStackSamplingCompleted,
    /// Every profiled thread was sampled, and the samples are in the buffer.
    SamplingCompleted,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_contains_exactly_its_states() {
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
