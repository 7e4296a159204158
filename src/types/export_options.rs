//! What a writer writes of a profile, and how it counts.

use std::collections::HashMap;
use std::sync::Arc;

use crate::types::format::Format;
use crate::util::ProgressCounter;

/// What a sample counts for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SampleWeight {
    /// Each sample counts for one interval, whether the thread ran or waited.
    #[default]
    Samples,
    /// A sample counts for its part of the thread's CPU time, which the samples share in which the
    /// thread ran. In a profile without CPU times, it counts for one interval.
    Cpu,
}

/// Where a text is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Look {
    /// In a file or by a program: without colors, and with names as long as they are.
    #[default]
    Plain,
    /// In a terminal that has this many columns.
    Terminal { columns: usize, has_colors: bool },
}

/// Options of the writers.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExportOptions {
    /// Name or id of the thread to write. `None` for all threads. A format for one thread then gets
    /// the thread that used the most CPU time, or that has the most samples.
    pub(crate) thread: Option<String>,
    pub(crate) weight: SampleWeight,
    /// Whether the outermost frames that belong to the runtime of Rust or of Tokio are left out:
    /// see `run_loops.rs`.
    pub(crate) folds_runtime: bool,
    /// Whether the output is compressed by the caller, so that a format that is always compressed
    /// is written without its own compression.
    pub(crate) is_compressed_later: bool,
    /// Whether pprof gets the samples of threads only, and not those of allocations.
    pub(crate) is_without_allocations: bool,
    /// Name of the value that readers of pprof show first. `None` for the last one.
    pub(crate) first_value: Option<&'static str>,
    /// The look of a text; other formats have none.
    pub(crate) look: Look,
    /// Maximum size of the source files in the output, in bytes.
    pub(crate) max_source_bytes: usize,
    /// The texts of source files in addition to those in the profile, by the numbers of the files'
    /// names in the model.
    pub(crate) sources: HashMap<u32, String>,
    /// Counts the rows that a writer has begun to read.
    pub(crate) progress: Option<Arc<ProgressCounter>>,
}

impl ExportOptions {
    /// Returns the options with which a format is written by default. The summary is there to show
    /// the program's work, so it counts CPU time and leaves out the runtime's frames.
    pub(crate) fn usual_for(format: Format) -> Self {
        match format {
            Format::Text => Self {
                weight: SampleWeight::Cpu,
                folds_runtime: true,
                ..Self::default()
            },
            _ => Self::default(),
        }
    }
}
