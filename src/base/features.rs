//! Gecko's features: one table of bits, names and descriptions.

use crate::base::UnknownFeature;

/// What to record: a set of Gecko's features, by Gecko's bits.
///
/// A feature that this build or machine does not have may be asked for; it is dropped at start, as in Gecko.
#[doc(alias = "ProfilerFeature")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Features(u32);

struct Row {
    bit: u32,
    name: &'static str,
    default: bool,
    available: bool,
    #[cfg(has_profiler)]
    description: &'static str,
}

macro_rules! features {
    ($($bit:literal $constant:ident $name:literal $default:ident $available:ident $doc:literal;)+) => {
        impl Features {
            $(
                #[doc = concat!("`", $name, "`: ", $doc)]
                pub const $constant: Self = Self(1 << $bit);
            )+
        }

        const ROWS: &[Row] = &[
            $(Row {
                bit: 1 << $bit,
                name: $name,
                default: features!(@ $default),
                available: features!(@ $available),
                #[cfg(has_profiler)]
                description: $doc,
            },)+
        ];
    };
    (@ yes) => { true };
    (@ no) => { false };
}

// bit constant name | in the default set | recorded by this build
features! {
    0 JAVA "java" yes no "Android's Java sampler; a name that is known, and unavailable.";
    1 JS "js" yes no "frames of a JavaScript engine.";
    2 MAIN_THREAD_IO "mainthreadio" no no "file I/O markers of the main thread.";
    3 FILE_IO "fileio" no no "file I/O markers of all profiled threads.";
    4 FILE_IO_ALL "fileioall" no no "file I/O markers of all threads.";
    5 NO_MARKER_STACKS "nomarkerstacks" no yes "markers capture no stacks.";
    6 SCREENSHOTS "screenshots" yes no "screenshots of a browser's windows.";
    7 SEQ_STYLE "seqstyle" no no "no parallel style computation.";
    8 STACK_WALK "stackwalk" yes yes "native stacks; without it a sample has its labels and its innermost address.";
    9 JS_ALLOCATIONS "jsallocations" no no "allocations of a JavaScript engine.";
    10 NO_STACK_SAMPLING "nostacksampling" no yes "no stacks at all; counters and CPU times still.";
    11 NATIVE_ALLOCATIONS "nativeallocations" no no "stacks of some allocations.";
    12 IPC_MESSAGES "ipcmessages" no no "markers of messages between processes.";
    13 AUDIO_CALLBACK_TRACING "audiocallbacktracing" no no "markers of audio call-backs.";
    14 CPU "cpu" yes yes "CPU time of each thread, sample by sample.";
    15 NO_TIMER_RESOLUTION_CHANGE "notimerresolutionchange" no no "Windows only.";
    16 CPU_ALL_THREADS "cpuallthreads" no yes "CPU time of all registered threads.";
    17 SAMPLING_ALL_THREADS "samplingallthreads" no yes "stacks of all registered threads.";
    18 MARKERS_ALL_THREADS "markersallthreads" no yes "markers of all registered threads.";
    19 UNREGISTERED_THREADS "unregisteredthreads" no no "threads that nobody registered.";
    20 PROCESS_CPU "processcpu" yes yes "a counter of the process's CPU time.";
    21 POWER "power" no no "energy counters.";
    22 CPU_FREQ "cpufreq" no no "CPU frequency markers.";
    23 BANDWIDTH "bandwidth" no no "a counter of network bytes.";
    24 MEMORY "memory" no no "a counter of allocated memory.";
    25 TRACING "tracing" no no "every script function that is entered or left.";
    26 SANDBOX "sandbox" no no "markers of sandbox violations.";
    27 FLOWS "flows" no yes "all flow markers.";
    28 JS_SOURCES "jssources" no no "sources of scripts.";
}

impl Features {
    /// No feature.
    pub const NONE: Self = Self(0);

    /// The features with these bits. Bits that stand for no feature make `profiler_start` refuse.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The bits, as `MOZ_PROFILER_STARTUP_FEATURES_BITFIELD` takes them.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether all of `other` are in here.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// These without those.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The default set, whether available here or not.
    #[doc(alias = "DefaultFeatures")]
    pub fn default_set() -> Self {
        Self::of_rows(|row| row.default)
    }

    /// What this build can record.
    #[doc(alias = "AvailableFeatures")]
    pub fn available() -> Self {
        if cfg!(has_profiler) {
            Self::of_rows(|row| row.available)
        } else {
            Self::NONE
        }
    }

    /// The bits that stand for no feature.
    #[cfg(has_profiler)]
    pub(crate) fn unknown_bits(self) -> u32 {
        self.0 & !Self::of_rows(|_| true).0
    }

    /// What of them is available, and what that implies.
    #[doc(alias = "AdjustFeatures")]
    #[cfg(has_profiler)]
    pub(crate) fn adjusted(self) -> Self {
        self.adjusted_to(Self::available())
    }

    #[cfg(has_profiler)]
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

    /// The feature with this name.
    ///
    /// # Errors
    /// [`UnknownFeature`], which lists the names that exist.
    pub fn from_name(name: &str) -> Result<Self, UnknownFeature> {
        match ROWS.iter().find(|row| row.name == name) {
            Some(row) => Ok(Self(row.bit)),
            None => Err(UnknownFeature::new(name, ROWS.iter().map(|row| row.name))),
        }
    }

    /// The names of the features in here, in the order of their bits.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        ROWS.iter()
            .filter(move |row| self.0 & row.bit != 0)
            .map(|row| row.name)
    }

    /// Each feature that has a name, with its name and what it records.
    #[cfg(has_profiler)]
    pub(crate) fn described() -> impl Iterator<Item = (Self, &'static str, &'static str)> {
        ROWS.iter()
            .map(|row| (Self(row.bit), row.name, row.description))
    }

    fn of_rows(wanted: impl Fn(&Row) -> bool) -> Self {
        Self(
            ROWS.iter()
                .filter(|row| wanted(row))
                .fold(0, |bits, row| bits | row.bit),
        )
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

    #[cfg(has_profiler)]
    #[test]
    fn what_is_not_available_goes_and_what_is_implied_comes() {
        let all = Features::of_rows(|_| true);
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

    #[test]
    fn features_come_and_go() {
        let mut features = Features::CPU | Features::JS;
        features |= Features::POWER;
        assert_eq!(
            features.without(Features::JS | Features::MEMORY),
            Features::CPU | Features::POWER
        );
    }

    #[test]
    fn names_and_bits_are_geckos() {
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
