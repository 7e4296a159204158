//! The environment's variables: one table, from which reading, the help text and the API's documentation are made.
//!
//! Names, accepted values and limits are Gecko's, with these differences, as far as they are known:
//!
//! - what is switched on by a variable is switched off by `0`, `N` or `n` for every one of them, as Gecko does for
//!   `MOZ_PROFILER_STARTUP` alone; names are found unless that is switched off;
//! - help is printed, and a bad value told, and the program goes on: a library does not end its host;
//! - a bit field has to be a number; the interval goes to 10,000 ms; without filters all registered threads are profiled, and
//!   not the main thread alone;
//! - the duration has an effect, and children get it.
//!
//! Of Gecko's other variables, `MOZ_PROFILER_…` that have no meaning here are known and passed over; those of other names
//! (`MOZ_LOG`, `MOZ_BASE_PROFILER_…`, `XPCOM_MEM_BLOAT_LOG`, …) are of other systems, and not read.

use crate::base::Features;
use crate::control::environment_values::{
    Apply, apply_active_tab_id, apply_duration, apply_entries, apply_features,
    apply_features_bitfield, apply_filters, apply_interval, startup_features,
};

/// A variable, what it may be, and how a value changes the settings of a start.
pub(super) struct Variable {
    pub(super) name: &'static str,
    pub(super) accepted: &'static str,
    pub(super) help: &'static str,
    /// `None` where it is no setting of a start.
    pub(super) apply: Option<Apply>,
}

macro_rules! variables {
    ($($constant:ident $name:literal $accepted:literal $help:literal $apply:expr;)+) => {
        $(pub(super) const $constant: &str = $name;)+

        /// In the order in which they are applied: a later one goes over an earlier one.
        pub(super) const VARIABLES: &[Variable] =
            &[$(Variable { name: $name, accepted: $accepted, help: $help, apply: $apply },)+];

        /// The table as a list for the API's documentation.
        macro_rules! environment_docs {
            () => {
                concat!($("- `", $name, "`: ", $accepted, ". ", $help, "\n"),+)
            };
        }
        pub(crate) use environment_docs;
    };
}

variables! {
    HELP "MOZ_PROFILER_HELP" "anything" "Prints this text to standard output; the program goes on." None;
    STARTUP "MOZ_PROFILER_STARTUP" "anything but empty, 0, N or n"
        "Starts the profiler when the program calls profiler_init. The variables below whose names begin with this one \
        say how; without this one they are not looked at." None;
    ENTRIES "MOZ_PROFILER_STARTUP_ENTRIES"
        "a number above 0, of entries of 8 bytes, or of bytes with KB, KiB, MB, MiB, GB or GiB"
        "How much to keep: at least 128 MiB, at most 2 GiB, rounded up to a power of two. Default: 512 MiB."
        Some(apply_entries);
    DURATION "MOZ_PROFILER_STARTUP_DURATION" "a number of seconds, 0 or above"
        "A profile holds what is at most so long ago when it is taken. Default: 0, which is no limit."
        Some(apply_duration);
    INTERVAL "MOZ_PROFILER_STARTUP_INTERVAL" "a number of milliseconds, from 0.01 to 10000"
        "The time between two samples of a thread. Default: 1." Some(apply_interval);
    FEATURES "MOZ_PROFILER_STARTUP_FEATURES"
        "names of features, with commas between; \"default\" stands for the default ones"
        "What to record. Unknown names are told and otherwise ignored. Set and empty: labels, the \
        innermost address, and markers."
        Some(apply_features);
    FEATURES_BITFIELD "MOZ_PROFILER_STARTUP_FEATURES_BITFIELD" "a number below 2^32"
        "The features, as a sum of their bits. Goes over their names." Some(apply_features_bitfield);
    FILTERS "MOZ_PROFILER_STARTUP_FILTERS" "parts of thread names, with commas between; * for all, pid:N for a process"
        "Which threads are profiled. Default: all that are registered." Some(apply_filters);
    ACTIVE_TAB_ID "MOZ_PROFILER_STARTUP_ACTIVE_TAB_ID" "a number below 2^64"
        "The id of a browser's tab, which the profile carries. Default: 0." Some(apply_active_tab_id);
    SHUTDOWN "MOZ_PROFILER_SHUTDOWN" "a file's path, in which the first %p becomes the process's id"
        "Saves the profile there when the program calls profiler_shutdown. Compressed if it ends in .gz." None;
    SYMBOLICATE "MOZ_PROFILER_SYMBOLICATE" "0, N or n; anything else is as if it were not set"
        "Whether profiles get the names of functions, which takes a moment, seconds for a large executable. With 0, the \
        viewer shows addresses, unless a symbol server tells it more." None;
    RECORD_OVERHEADS "MOZ_PROFILER_RECORD_OVERHEADS" "anything but empty, 0, N or n"
        "Writes down what each tick of the sampler costs: profilerOverhead in the profile." None;
    SIGNALS "MOZ_PROFILER_SIGNALS" "anything but empty, 0, N or n"
        "SIGUSR1 starts the profiler, for all threads with 512 MiB and 1 ms; SIGUSR2 saves the profile as \
        profile_default_PID.json and stops it." None;
    UPLOAD_DIR "MOZ_UPLOAD_DIR" "a folder's path"
        "Where SIGUSR2 saves. Default: the folder that is the current one when the program calls \
        profiler_init." None;
}

/// Variables of Gecko's that have no meaning here, and are no mistakes.
pub(super) const GECKOS_OWN: &[&str] = &["MOZ_PROFILER_STARTUP_NO_BASE", "MOZ_PROFILER_LUL_TEST"];

impl Variable {
    /// What it may be and does, in two lines.
    pub(super) fn usage(&self) -> String {
        format!("  {}=<{}>\n    {}\n", self.name, self.accepted, self.help)
    }
}

/// The usage of all, and the features.
pub(super) fn help_text() -> String {
    let mut text = "Environment variables of the profiler:\n".to_owned();
    for variable in VARIABLES {
        text += &format!("\n{}", variable.usage());
    }
    text += "\nFeatures, with their bits. D: default, S: default for a start by variables, -: available; d, s, x: the same, and \
        not available here.\n";
    for (feature, name, description) in Features::described() {
        let is_available = Features::available().contains(feature);
        let mark = match (
            Features::default_set().contains(feature),
            startup_features().contains(feature),
        ) {
            (true, _) => ['d', 'D'],
            (false, true) => ['s', 'S'],
            (false, false) => ['x', '-'],
        }[usize::from(is_available)];
        text += &format!("  {mark} {:>9} \"{name}\" {description}\n", feature.bits());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_text_names_every_variable_and_feature() {
        let text = help_text();
        assert!(
            VARIABLES
                .iter()
                .all(|variable| text.contains(&format!("\n  {}=<", variable.name)))
        );
        assert!(
            text.contains("  D       256 \"stackwalk\" native stacks"),
            "{text}"
        );
        assert!(text.contains("  d         1 \"java\""), "{text}");
        assert!(text.contains("  s        16 \"fileioall\""), "{text}");
        assert!(text.contains("  -      1024 \"nostacksampling\""), "{text}");
        assert!(
            text.contains("  x      8192 \"audiocallbacktracing\""),
            "{text}"
        );
    }
}
