//! The kinds of data that a session records for one thread.

/// A set of the kinds of data that a session records for a thread: CPU utilization, stacks and
/// markers.
///
/// A session records all three for threads that its filters select. For all other threads, the
/// features [`Features::CPU_ALL_THREADS`], [`Features::SAMPLING_ALL_THREADS`] and
/// [`Features::MARKERS_ALL_THREADS`] select one kind each. A profile always lists the main thread,
/// even without data. Idea: Gecko's type of the same name.
///
/// [`Features::CPU_ALL_THREADS`]: crate::types::features::Features::CPU_ALL_THREADS
/// [`Features::SAMPLING_ALL_THREADS`]: crate::types::features::Features::SAMPLING_ALL_THREADS
/// [`Features::MARKERS_ALL_THREADS`]: crate::types::features::Features::MARKERS_ALL_THREADS
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct ThreadProfilingFeatures(u8);

impl ThreadProfilingFeatures {
    /// Nothing.
    #[doc(alias = "NotProfiled")]
    pub const NOT_PROFILED: Self = Self(0);
    /// The thread's CPU time, per sample.
    #[doc(alias = "CPUUtilization")]
    pub const CPU_UTILIZATION: Self = Self(1);
    /// The thread's stacks.
    #[doc(alias = "Sampling")]
    pub const SAMPLING: Self = Self(2);
    /// The thread's markers.
    #[doc(alias = "Markers")]
    pub const MARKERS: Self = Self(4);
    /// All kinds; in a query, any of them.
    #[doc(alias = "Any")]
    pub const ANY: Self = Self(7);

    /// Returns whether the sets have a kind in common. The queries about threads use this test.
    #[doc(alias = "DoFeaturesIntersect")]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns the union of the sets.
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

mod session {
    use super::ThreadProfilingFeatures;
    use crate::types::features::Features;

    impl ThreadProfilingFeatures {
        /// Returns what a session with these features records for a thread that its filters do or
        /// do not select.
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

        /// Restores a set from the result of [`Self::to_bits`]. Ignores other bits.
        pub(crate) const fn from_bits(bits: u8) -> Self {
            Self(bits & Self::ANY.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intersects_needs_a_common_kind() {
        use ThreadProfilingFeatures as Of;
        assert!(
            Of::ANY.intersects(Of::MARKERS) && (Of::SAMPLING | Of::MARKERS).intersects(Of::ANY)
        );
        assert!(
            !Of::SAMPLING.intersects(Of::CPU_UTILIZATION) && !Of::NOT_PROFILED.intersects(Of::ANY)
        );
        assert_eq!(Of::CPU_UTILIZATION | Of::SAMPLING | Of::MARKERS, Of::ANY);
    }

    #[test]
    fn unselected_threads_record_what_all_threads_features_ask_for() {
        use crate::types::features::Features;
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
