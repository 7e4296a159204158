//! The difference of two profiles, and what it depends on.

use crate::export::options::{ExportOptions, SampleWeight};

/// What is compared, and what counts as a regression.
#[derive(Clone, Debug)]
pub(crate) struct DiffOptions {
    /// The threads and the weight of samples.
    pub(crate) export: ExportOptions,
    /// Name of the marker of a unit of work. If it is given, times per unit are compared, and not
    /// shares. An interval counts at its end.
    pub(crate) unit_of_work: Option<String>,
    /// Probability that two profiles without a change show one.
    pub(crate) false_alarms: f64,
    /// Standard deviation of a function's cost from run to run, as a share of its cost.
    pub(crate) run_to_run: f64,
    /// A regression counts if it surely exceeds this: a share of 1, or ns per unit of work.
    pub(crate) threshold: f64,
    /// Maximum number of rows in each table of the text.
    pub(crate) max_rows: usize,
}

impl Default for DiffOptions {
    fn default() -> Self {
        Self {
            export: ExportOptions {
                weight: SampleWeight::Cpu,
                ..ExportOptions::default()
            },
            unit_of_work: None,
            false_alarms: 0.01,
            run_to_run: 0.02,
            threshold: 0.0,
            max_rows: 20,
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
    /// The share changed, but only because that of another function did.
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
}

/// The change of one function: shares of 1, or ns per unit of work.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct DiffRow {
    pub(crate) name: String,
    pub(crate) library: Option<String>,
    pub(crate) before: f64,
    pub(crate) after: f64,
    /// Half the width of the band around 0. A change outside of the band is not chance.
    pub(crate) band: f64,
    pub(crate) verdict: Verdict,
    /// By how much the function surely grew, relative to what did not change; not above 0 unless
    /// the verdict is `Slower` or `Grew`.
    pub(crate) sure_growth: f64,
}

/// The difference of two profiles.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Diff {
    /// By self time. The likely culprit first, then the other sure changes, then the others.
    pub(crate) own: Vec<DiffRow>,
    /// By total time.
    pub(crate) total: Vec<DiffRow>,
    /// Number of samples in each profile.
    pub(crate) samples: (u64, u64),
    /// Units of work in each profile, if times per unit are compared.
    pub(crate) work: Option<(f64, f64)>,
    pub(super) options: DiffOptionsShown,
}

/// The options that the text repeats.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct DiffOptionsShown {
    pub(super) false_alarms: f64,
    pub(super) threshold: f64,
    pub(super) max_rows: usize,
}

impl Diff {
    /// Returns whether a function surely became slower by more than the threshold, by its self
    /// time.
    pub(crate) fn is_regression(&self) -> bool {
        let exceeds = |row: &DiffRow| row.sure_growth > self.options.threshold;
        self.own
            .iter()
            .any(|row| row.verdict == Verdict::Slower && exceeds(row))
    }
}
