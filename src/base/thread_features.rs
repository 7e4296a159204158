//! What is recorded of one thread.

/// What a session records of a thread: a set of CPU utilisation, stacks and markers.
///
/// A thread that the session's filters select has all three. Of the others the features [`Features::CPU_ALL_THREADS`],
/// [`Features::SAMPLING_ALL_THREADS`] and [`Features::MARKERS_ALL_THREADS`] record one each. Idea: Gecko's type of the same
/// name. A process's main thread stands in each profile, be it without anything.
///
/// [`Features::CPU_ALL_THREADS`]: crate::Features::CPU_ALL_THREADS
/// [`Features::SAMPLING_ALL_THREADS`]: crate::Features::SAMPLING_ALL_THREADS
/// [`Features::MARKERS_ALL_THREADS`]: crate::Features::MARKERS_ALL_THREADS
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ThreadProfilingFeatures(u8);

impl ThreadProfilingFeatures {
    /// Nothing of it.
    #[doc(alias = "NotProfiled")]
    pub const NOT_PROFILED: Self = Self(0);
    /// Its CPU time, sample by sample.
    #[doc(alias = "CPUUtilization")]
    pub const CPU_UTILIZATION: Self = Self(1);
    /// Its stacks.
    #[doc(alias = "Sampling")]
    pub const SAMPLING: Self = Self(2);
    /// Its markers.
    #[doc(alias = "Markers")]
    pub const MARKERS: Self = Self(4);
    /// All of that; for a question, any of it.
    #[doc(alias = "Any")]
    pub const ANY: Self = Self(7);

    /// Whether something is in both: what the questions about a thread ask.
    #[doc(alias = "DoFeaturesIntersect")]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// What is in either.
    #[doc(alias = "Combine")]
    pub const fn combined(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl std::ops::BitOr for ThreadProfilingFeatures {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        self.combined(other)
    }
}

#[cfg(has_profiler)]
mod of_session {
    use super::ThreadProfilingFeatures;
    use crate::base::Features;

    impl ThreadProfilingFeatures {
        /// What a session with these features records of a thread that its filters select, or do not.
        pub(crate) fn in_session(features: Features, is_selected: bool) -> Self {
            if is_selected {
                return Self::ANY;
            }
            let of_all = [
                (Features::CPU_ALL_THREADS, Self::CPU_UTILIZATION),
                (Features::SAMPLING_ALL_THREADS, Self::SAMPLING),
                (Features::MARKERS_ALL_THREADS, Self::MARKERS),
            ];
            let wanted = of_all
                .into_iter()
                .filter(|(of_all, _)| features.contains(*of_all));
            wanted.fold(Self::NOT_PROFILED, |all, (_, one)| all | one)
        }

        pub(crate) const fn to_bits(self) -> u8 {
            self.0
        }

        /// Of [`Self::to_bits`]; other bits are left out.
        pub(crate) const fn from_bits(bits: u8) -> Self {
            Self(bits & Self::ANY.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_intersect_in_what_both_have() {
        use ThreadProfilingFeatures as Of;
        assert!(
            Of::ANY.intersects(Of::MARKERS) && (Of::SAMPLING | Of::MARKERS).intersects(Of::ANY)
        );
        assert!(
            !Of::SAMPLING.intersects(Of::CPU_UTILIZATION) && !Of::NOT_PROFILED.intersects(Of::ANY)
        );
        assert_eq!(Of::CPU_UTILIZATION | Of::SAMPLING | Of::MARKERS, Of::ANY);
    }

    #[cfg(has_profiler)]
    #[test]
    fn threads_that_are_not_selected_have_what_is_recorded_of_all() {
        use crate::base::Features;
        use ThreadProfilingFeatures as Of;
        let of_all = [
            (Features::CPU_ALL_THREADS, Of::CPU_UTILIZATION),
            (Features::SAMPLING_ALL_THREADS, Of::SAMPLING),
            (Features::MARKERS_ALL_THREADS, Of::MARKERS),
        ];
        for combination in 0..8 {
            let chosen = || {
                (0..3)
                    .filter(|bit| combination >> bit & 1 != 0)
                    .map(|bit| of_all[bit])
            };
            let features = chosen().fold(Features::STACK_WALK, |all, (one, _)| all | one);
            let expected = chosen().fold(Of::NOT_PROFILED, |all, (_, one)| all | one);
            assert_eq!(Of::in_session(features, false), expected);
            assert_eq!(Of::in_session(features, true), Of::ANY);
            assert_eq!(Of::from_bits(expected.to_bits()), expected);
        }
    }
}
