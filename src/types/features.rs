//! Gecko's features, in one table of bits, names and descriptions.

use crate::types::error::UnknownFeature;

/// A set of features, which say what to record.
///
/// Bits 0 to 28 are those of Gecko's features. Gecko keeps its states in bits 29 to 31, so these
/// belong to no feature. Features that Gecko does not have begin at bit 32.
///
/// The set may contain features that this build or machine does not support. They are dropped at
/// start, as in Gecko.
#[doc(alias = "ProfilerFeature")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Features(u64);

struct Row {
    bit: u64,
    name: &'static str,
    default: bool,
    available: bool,
    description: &'static str,
}

macro_rules! features {
    ($($bit:literal $constant:ident $name:literal $default:ident $available:ident $doc:literal;)+) => {
        impl Features {
            $(
                #[doc = concat!("`", $name, "`: ", $doc)]
                pub const $constant: Self = Self(1 << $bit);
            )+
            /// All features, available or not.
            pub(crate) const ALL: Self = Self(0 $(| 1 << $bit)+);
        }

        const ROWS: &[Row] = &[
            $(Row {
                bit: 1 << $bit,
                name: $name,
                default: features!(@ $default),
                available: features!(@ $available),
                description: $doc,
            },)+
        ];
    };
    (@ yes) => { true };
    (@ no) => { false };
}

// bit constant name | in the default set | recorded by this build
features! {
    0 JAVA "java" yes no "Android's Java sampler; never available here.";
    1 JS "js" yes yes "frames of script functions.";
    2 MAIN_THREAD_IO "mainthreadio" no yes "file I/O markers of the main thread.";
    3 FILE_IO "fileio" no yes "file I/O markers of all profiled threads.";
    4 FILE_IO_ALL "fileioall" no yes "file I/O markers of all threads, on the main thread's track if the thread is not profiled.";
    5 NO_MARKER_STACKS "nomarkerstacks" no yes "markers capture no stacks.";
    6 SCREENSHOTS "screenshots" yes no "screenshots of a browser's windows.";
    7 SEQ_STYLE "seqstyle" no no "no parallel style computation.";
    8 STACK_WALK "stackwalk" yes yes "native stacks; otherwise labels and the innermost address only.";
    9 JS_ALLOCATIONS "jsallocations" no no "allocations of a JavaScript engine.";
    10 NO_STACK_SAMPLING "nostacksampling" no yes "no stacks, only counters and CPU times.";
    11 NATIVE_ALLOCATIONS "nativeallocations" no yes "stacks of some allocations; needs ProfilerAllocator.";
    12 IPC_MESSAGES "ipcmessages" no no "markers of messages between processes.";
    13 AUDIO_CALLBACK_TRACING "audiocallbacktracing" no no "markers of audio callbacks.";
    14 CPU "cpu" yes yes "CPU time of each thread, per sample.";
    15 NO_TIMER_RESOLUTION_CHANGE "notimerresolutionchange" no no "Windows only.";
    16 CPU_ALL_THREADS "cpuallthreads" no yes "CPU time of all threads.";
    17 SAMPLING_ALL_THREADS "samplingallthreads" no yes "stacks of all threads.";
    18 MARKERS_ALL_THREADS "markersallthreads" no yes "markers of all threads.";
    19 UNREGISTERED_THREADS "unregisteredthreads" no yes "CPU use of unregistered threads as markers of the main thread.";
    20 PROCESS_CPU "processcpu" yes yes "counters of the process's CPU time and memory.";
    21 POWER "power" no yes "counters of the energy that the machine uses.";
    22 CPU_FREQ "cpufreq" no yes "markers of the main thread for the frequency of each CPU core.";
    23 BANDWIDTH "bandwidth" no yes "a counter of the network bytes that the application reports.";
    24 MEMORY "memory" no yes "a counter of allocated memory; needs ProfilerAllocator.";
    25 TRACING "tracing" no no "every entry and exit of a script function.";
    26 SANDBOX "sandbox" no no "markers of sandbox violations.";
    27 FLOWS "flows" no yes "all flow markers.";
    28 JS_SOURCES "jssources" no no "sources of scripts.";
    32 NO_UNREGISTERED_SAMPLING "nounregisteredsampling" no yes "no samples of unregistered threads.";
    33 CONTEXT_SWITCHES "contextswitches" no yes "context switches of each thread, and its waits for a processor, as markers.";
    34 WAITING_TASKS "waitingtasks" no yes "where labeled futures wait, and how long, as a track of its own.";
}

impl Features {
    /// No feature.
    pub const NONE: Self = Self(0);

    /// Creates a set from bits. `profiler_start` rejects bits that belong to no feature.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns the bits, as `MOZ_PROFILER_STARTUP_FEATURES_BITFIELD` accepts them.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Returns whether the set contains all features of `other`.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the set without the features of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns Gecko's default features, including unavailable ones.
    #[doc(alias = "DefaultFeatures")]
    pub fn default_set() -> Self {
        Self::from_rows(|row| row.default)
    }

    /// Returns the features that this build can record. The features `power` and `cpufreq` also
    /// depend on the machine, which is asked when a session starts with them: a machine without
    /// energy counters, or a user who may not read them, gets a warning with the reason in the
    /// profile.
    #[doc(alias = "AvailableFeatures")]
    pub fn available() -> Self {
        if cfg!(has_profiler) {
            Self::from_rows(|row| row.available)
        } else {
            Self::NONE
        }
    }

    /// Returns the bits that belong to no feature.
    pub(crate) fn unknown_bits(self) -> u64 {
        self.0 & !Self::ALL.0
    }

    /// Returns the available features of the set, and the features that those imply.
    #[doc(alias = "AdjustFeatures")]
    pub(crate) fn adjusted(self) -> Self {
        self.adjusted_to(Self::available())
    }

    /// Returns the features of the set that this build does not have and that the caller chose. A
    /// set with all of Gecko's default features was made from these, so it chooses only the others.
    /// Features that a start by environment variables adds do not count as chosen.
    pub(crate) fn chosen_unavailable(self) -> Self {
        let unavailable = self.without(Self::available());
        let default = Self::default_set();
        match self.contains(default) {
            true => unavailable.without(default | Self::IPC_MESSAGES),
            false => unavailable,
        }
    }

    fn adjusted_to(self, available: Self) -> Self {
        const IMPLIED: [(Features, Features); 3] = [
            (Features::FILE_IO_ALL, Features::FILE_IO),
            (Features::FILE_IO, Features::MAIN_THREAD_IO),
            (Features::CPU_ALL_THREADS, Features::CPU),
        ];
        let add = |all: Self, (with, implied)| {
            if all.contains(with) {
                all | implied
            } else {
                all
            }
        };
        IMPLIED.into_iter().fold(Self(self.0 & available.0), add)
    }

    /// Returns the feature with this name.
    ///
    /// # Errors
    /// [`UnknownFeature`], which lists the names that exist.
    pub fn from_name(name: &str) -> Result<Self, UnknownFeature> {
        match ROWS.iter().find(|row| row.name == name) {
            Some(row) => Ok(Self(row.bit)),
            None => Err(UnknownFeature::new(name, ROWS.iter().map(|row| row.name))),
        }
    }

    /// Returns the names of the features in the set, in the order of their bits.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        ROWS.iter()
            .filter(move |row| self.0 & row.bit != 0)
            .map(|row| row.name)
    }

    /// Returns every feature with its name and description.
    pub(crate) fn described() -> impl Iterator<Item = (Self, &'static str, &'static str)> {
        ROWS.iter()
            .map(|row| (Self(row.bit), row.name, row.description))
    }

    fn from_rows(wanted: impl Fn(&Row) -> bool) -> Self {
        Self(
            ROWS.iter()
                .filter(|row| wanted(row))
                .fold(0, |bits, row| bits | row.bit),
        )
    }
}

/// A feature that was asked for and records nothing here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct UnavailableFeature {
    pub(crate) feature: Features,
    /// Why, for the user.
    pub(crate) reason: String,
}

impl UnavailableFeature {
    /// Returns the features of the set, all of which this build does not have.
    pub(crate) fn not_in_this_build(features: Features) -> Vec<Self> {
        let rows = ROWS.iter().filter(|row| features.0 & row.bit != 0);
        rows.map(|row| Self {
            feature: Features(row.bit),
            reason: "this build of the profiler does not record it".to_owned(),
        })
        .collect()
    }

    /// Returns the name of the feature.
    pub(crate) fn name(&self) -> &'static str {
        self.feature.names().next().unwrap_or_default()
    }
}

impl Default for Features {
    fn default() -> Self {
        Self::default_set()
    }
}

impl std::ops::BitOr for Features {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl std::ops::BitOrAssign for Features {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl std::fmt::Debug for Features {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjusted_drops_unavailable_features_and_adds_implied_ones() {
        let all = Features::from_rows(|_| true);
        let io = Features::FILE_IO_ALL | Features::FILE_IO | Features::MAIN_THREAD_IO;
        assert_eq!(Features::FILE_IO_ALL.adjusted_to(all), io);
        assert_eq!(
            Features::FILE_IO.adjusted_to(all),
            Features::FILE_IO | Features::MAIN_THREAD_IO
        );
        let cpu = Features::CPU_ALL_THREADS | Features::CPU;
        assert_eq!(Features::CPU_ALL_THREADS.adjusted_to(all), cpu);
        assert_eq!(
            (cpu | Features::JAVA).adjusted_to(Features::CPU),
            Features::CPU
        );
        assert_eq!(cpu.adjusted_to(all).adjusted_to(all), cpu);
    }

    #[cfg(has_profiler)]
    #[test]
    fn chosen_unavailable_leaves_out_defaults() {
        let startup = Features::default_set() | Features::FILE_IO_ALL | Features::IPC_MESSAGES;
        assert_eq!(startup.chosen_unavailable(), Features::NONE);
        assert_eq!(Features::CPU.chosen_unavailable(), Features::NONE);
        let audio = Features::from_name("audiocallbacktracing").expect("a name");
        assert_eq!((startup | audio).chosen_unavailable(), audio);
        let java = Features::CPU | Features::JAVA;
        assert_eq!(java.chosen_unavailable(), Features::JAVA);
    }

    #[test]
    fn features_can_be_added_and_removed() {
        let mut features = Features::CPU | Features::JS;
        features |= Features::POWER;
        assert_eq!(
            features.without(Features::JS | Features::MEMORY),
            Features::CPU | Features::POWER
        );
    }

    #[test]
    fn names_and_bits_match_gecko() {
        assert_eq!(
            Features::from_name("processcpu"),
            Ok(Features::from_bits(1 << 20))
        );
        assert_eq!(
            Features::default_set().names().collect::<Vec<_>>(),
            [
                "java",
                "js",
                "screenshots",
                "stackwalk",
                "cpu",
                "processcpu"
            ]
        );
        let error = Features::from_name("stackwak").unwrap_err().to_string();
        assert!(
            error.contains("\"stackwak\"") && error.contains("stackwalk"),
            "{error}"
        );
    }
}
