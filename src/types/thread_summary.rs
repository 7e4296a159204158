//! The time that each thread spent in each function, as a program reads it.

use std::time::Duration;

/// A summary of one thread's samples in a profile.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ThreadSummary {
    /// The name under which the thread was registered; `GeckoMain` for the main thread.
    pub name: String,
    /// Number of the thread's samples in the profile, including the samples left out while it
    /// waited.
    pub samples: usize,
    /// Time that the samples represent: their number times the interval.
    pub sampled: Duration,
    /// CPU time of the thread in the samples; zero without the feature `cpu`.
    pub cpu: Duration,
    /// Time in which the thread could have run and had no processor. `None` without the feature
    /// `contextswitches`, if the thread has no such marker, or if the kernel does not report it.
    pub waited_for_processor: Option<Duration>,
    /// How often the thread left its processor to wait for something. `None` without the feature
    /// `contextswitches`, or if the thread has no such marker.
    pub voluntary_switches: Option<u64>,
    /// How often the kernel took the processor from the thread; `None` likewise.
    pub involuntary_switches: Option<u64>,
    /// Number of samples whose stack could not be unwound to its root.
    pub truncated_samples: usize,
    /// The functions in the thread's stacks, by self time, the greatest first.
    pub functions: Vec<HotFunction>,
    /// The script functions in the thread's stacks, by self time, the greatest first.
    ///
    /// The self time of a script function is the CPU time while it was the innermost script frame.
    /// So it includes the work of the interpreter for this function. A sample whose innermost
    /// script frames did not fit into the copy of the stack counts towards the self time of no
    /// function.
    pub script_functions: Vec<HotFunction>,
}

/// The time that a thread spent in one function.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct HotFunction {
    /// The function's name, or its address if the name is unknown; `(ran between samples)` for CPU
    /// time at a moment when no sample found the thread running.
    ///
    /// Script functions are named as in the viewer, with the location where they begin:
    /// `name (file:line:column)`.
    pub name: String,
    /// File name of the library or executable that contains the function, if the function's name is
    /// known. `None` for a script function.
    pub library: Option<String>,
    /// CPU time while the function was the innermost one, including functions inlined into it.
    /// Without the feature `cpu`, one interval per sample.
    pub self_time: Duration,
    /// CPU time while the function was anywhere in the stack, counted once per sample.
    pub total_time: Duration,
    /// Number of samples in which the function, or a function inlined into it, was the innermost
    /// one.
    pub self_samples: usize,
    /// Number of samples in which the function was anywhere in the stack.
    pub total_samples: usize,
}
