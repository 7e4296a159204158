//! The difference of two profiles, and what it depends on.

use std::cmp::Ordering;

use crate::export::options::ExportOptions;
use crate::types::Format;

/// What is compared.
#[derive(Clone, Debug)]
pub(crate) struct DiffOptions {
    /// The threads, the weight of samples, and whether the frames of the runtime are left out.
    pub(crate) export: ExportOptions,
    /// Name of the marker of a unit of work. If it is given, times per unit are compared, and not
    /// times a second. An interval counts at its end.
    pub(crate) unit_of_work: Option<String>,
    /// Standard deviation of a function's cost from run to run, as a share of its cost.
    pub(crate) run_to_run: f64,
}

impl Default for DiffOptions {
    fn default() -> Self {
        Self {
            export: ExportOptions::usual_for(Format::Text),
            unit_of_work: None,
            run_to_run: 0.02,
        }
    }
}

/// Whether a function changed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Verdict {
    /// The self time surely grew.
    Slower,
    /// The self time surely fell.
    Faster,
    /// The time a second changed, but the share of the functions that did not change is the same:
    /// the program did more or less work a second.
    Moved,
    /// The total time surely grew. The reason may be in another function.
    Grew,
    /// The total time surely fell.
    Fell,
    /// The difference, if any, may be chance.
    Unclear,
}

impl Verdict {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Slower => "slower",
            Self::Faster => "faster",
            Self::Moved => "moved",
            Self::Grew => "grew",
            Self::Fell => "fell",
            Self::Unclear => "unclear",
        }
    }

    pub(super) fn is_sure(self) -> bool {
        !matches!(self, Self::Moved | Self::Unclear)
    }
}

/// A value in two profiles.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Values {
    pub(crate) before: f64,
    pub(crate) after: f64,
    /// Half the width of the band around 0. A change outside of the band is not chance.
    pub(crate) band: f64,
}

impl Values {
    pub(super) fn change(&self) -> f64 {
        self.after - self.before
    }

    /// Returns whether the change lies outside of its band.
    pub(super) fn is_sure(&self) -> bool {
        self.change().abs() > self.band
    }
}

/// The change of one function, in ns a second or per unit of work.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct DiffRow {
    pub(crate) name: String,
    pub(crate) library: Option<String>,
    pub(crate) values: Values,
    pub(crate) verdict: Verdict,
}

/// The difference of two profiles.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Diff {
    /// The time of all threads, in ns: CPU time if both profiles have it, otherwise that of samples.
    pub(crate) time: Values,
    pub(crate) is_cpu: bool,
    /// Wall time without pauses, in ns.
    pub(crate) wall: Values,
    /// Number of samples.
    pub(crate) samples: Values,
    /// The time of all threads in ns a second, or per unit of work.
    pub(crate) time_per_base: Values,
    /// Name of the marker of a unit of work, and the units before and after. `None` if times a second
    /// are compared.
    pub(crate) work: Option<(String, [f64; 2])>,
    /// By self time: the sure changes, the greatest first, and then the others.
    pub(crate) own: Vec<DiffRow>,
    /// By total time.
    pub(crate) total: Vec<DiffRow>,
    /// The self time of the functions that surely changed, together.
    pub(crate) changed: Values,
}

impl Diff {
    /// Returns whether the functions take more time or less: those whose self time surely changed, all
    /// together; without one, those whose total time did, if all of them did in the same direction. So
    /// code that moved to another function is not a change.
    pub(super) fn direction(&self) -> Ordering {
        let has = |verdict| self.total.iter().any(|row| row.verdict == verdict);
        let (grew, fell) = match self.own.iter().any(|row| row.verdict.is_sure()) {
            true => {
                let (is_sure, grew) = (self.changed.is_sure(), self.changed.change() > 0.0);
                (is_sure && grew, is_sure && !grew)
            }
            false => (has(Verdict::Grew), has(Verdict::Fell)),
        };
        grew.cmp(&fell)
    }

    pub(crate) fn is_regression(&self) -> bool {
        self.direction().is_gt()
    }
}
