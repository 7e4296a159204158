//! How a profile is written: its format, with the endings of files, what a sample counts for, and how
//! addresses are named.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use crate::util::ProgressCounter;

/// A format in which a [`Profile`](crate::Profile) can be written.
///
/// The name of each format, for command lines and messages, is in parentheses. A build writes some
/// only with a feature of the crate: see [`of_path`](Self::of_path).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Format {
    /// Gecko's JSON, version 36, for <https://profiler.firefox.com> and `samply load` (`gecko`). Only
    /// the data of a session can be written in it, not a profile that was read from a file.
    Gecko,
    /// The Firefox Profiler's own JSON (`processed`). It has files, lines, addresses and inlined
    /// functions together, so that the viewer shows sources and assembly.
    Processed,
    /// Google's pprof, compressed, for `go tool pprof`, Pyroscope and others (`pprof`).
    Pprof,
    /// Chrome's `.cpuprofile` of one thread, for DevTools and editors (`cpuprofile`).
    CpuProfile,
    /// A trace of the JS Self-Profiling API, of one thread (`js-self-profile`).
    JsSelfProfile,
    /// The hierarchy that d3-flame-graph reads, of one thread, with calls in the order of time
    /// (`d3-flame-graph`).
    D3FlameGraph,
    /// The hierarchy that d3-flame-graph reads, with equal calls of all threads merged
    /// (`d3-flame-graph-merged`).
    D3FlameGraphMerged,
    /// Collapsed stacks with numbers of samples, for `flamegraph.pl` and inferno (`collapsed`).
    Collapsed,
    /// An interactive flame graph in one file, for browsers (`svg`).
    Svg,
    /// Chrome's Trace Event JSON with estimated calls, for DevTools' Performance panel and Perfetto
    /// (`chrome-trace`).
    ChromeTrace,
    /// speedscope's JSON (`speedscope`).
    Speedscope,
    /// A summary for people and programs (`text`).
    Text,
    /// The last stack of each thread, as text (`stacks`).
    Stacks,
}

/// The formats, with their names and the endings of their files. An ending may have several parts:
/// the longest that fits decides.
const FORMATS: &[(Format, &str, &[&str])] = &[
    (Format::Gecko, "gecko", &["json", "gecko.json"]),
    (Format::Processed, "processed", &["processed.json"]),
    (Format::Pprof, "pprof", &["pb", "pprof"]),
    (Format::CpuProfile, "cpuprofile", &["cpuprofile"]),
    (
        Format::JsSelfProfile,
        "js-self-profile",
        &["js-self-profile.json"],
    ),
    (Format::D3FlameGraph, "d3-flame-graph", &["d3.json"]),
    (
        Format::D3FlameGraphMerged,
        "d3-flame-graph-merged",
        &["merged.d3.json"],
    ),
    (Format::Collapsed, "collapsed", &["folded", "collapsed"]),
    (Format::Svg, "svg", &["svg"]),
    (Format::ChromeTrace, "chrome-trace", &["trace.json"]),
    (Format::Speedscope, "speedscope", &["speedscope.json"]),
    (Format::Text, "text", &["txt"]),
    (Format::Stacks, "stacks", &["stacks.txt"]),
];

impl Format {
    /// Returns all formats, in the order of the documentation.
    pub fn all() -> impl Iterator<Item = Self> {
        FORMATS.iter().map(|&(format, ..)| format)
    }

    /// Returns the format's name, such as `chrome-trace`.
    pub fn name(self) -> &'static str {
        let found = FORMATS.iter().find(|(format, ..)| *format == self);
        found.map_or("", |&(_, name, _)| name)
    }

    /// Returns the format with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        let found = FORMATS.iter().find(|(_, known, _)| *known == name);
        found.map(|&(format, ..)| format)
    }

    /// Returns the format for a file's name; `None` if no format has its ending.
    ///
    /// | Ending | Format | Feature of the crate that it needs |
    /// |---|---|---|
    /// | `.json`, `.gecko.json`, none | [`Gecko`](Self::Gecko) | |
    /// | `.processed.json` | [`Processed`](Self::Processed) | |
    /// | `.pb`, `.pprof` | [`Pprof`](Self::Pprof) | `protobuf` |
    /// | `.cpuprofile` | [`CpuProfile`](Self::CpuProfile) | `formats` |
    /// | `.js-self-profile.json` | [`JsSelfProfile`](Self::JsSelfProfile) | `formats` |
    /// | `.d3.json` | [`D3FlameGraph`](Self::D3FlameGraph) | `formats` |
    /// | `.merged.d3.json` | [`D3FlameGraphMerged`](Self::D3FlameGraphMerged) | `formats` |
    /// | `.folded`, `.collapsed` | [`Collapsed`](Self::Collapsed) | |
    /// | `.svg` | [`Svg`](Self::Svg) | |
    /// | `.trace.json` | [`ChromeTrace`](Self::ChromeTrace) | `formats` |
    /// | `.speedscope.json` | [`Speedscope`](Self::Speedscope) | `formats` |
    /// | `.txt` | [`Text`](Self::Text) | |
    /// | `.stacks.txt` | [`Stacks`](Self::Stacks) | |
    ///
    /// A profile that was read from a file is saved as [`Processed`](Self::Processed) if the name
    /// selects [`Gecko`](Self::Gecko). Upper-case letters are like lower-case ones. A further `.gz`
    /// means that the file is compressed.
    pub fn of_path(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_string_lossy().to_ascii_lowercase();
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        // A name that begins with a dot has no ending.
        if !name.trim_start_matches('.').contains('.') {
            return Some(Self::Gecko);
        }
        let endings = FORMATS
            .iter()
            .flat_map(|&(format, _, endings)| endings.iter().map(move |ending| (format, *ending)));
        let fits = |ending: &str| {
            let rest = name.strip_suffix(ending);
            rest.is_some_and(|rest| rest.ends_with('.'))
        };
        endings
            .filter(|(_, ending)| fits(ending))
            .max_by_key(|(_, ending)| ending.len())
            .map(|(format, _)| format)
    }

    /// Returns the feature of the crate that the format needs, and whether this build has it; `None`
    /// if every build writes the format.
    fn feature(self) -> Option<(&'static str, bool)> {
        match self {
            Self::Gecko
            | Self::Processed
            | Self::Collapsed
            | Self::Svg
            | Self::Text
            | Self::Stacks => None,
            Self::Pprof => Some(("protobuf", cfg!(feature = "protobuf"))),
            Self::CpuProfile
            | Self::JsSelfProfile
            | Self::D3FlameGraph
            | Self::D3FlameGraphMerged
            | Self::ChromeTrace
            | Self::Speedscope => Some(("formats", cfg!(feature = "formats"))),
        }
    }

    /// Returns the feature of the crate that the format needs, if this build lacks it.
    pub(crate) fn missing_feature(self) -> Option<&'static str> {
        let (feature, is_there) = self.feature()?;
        (!is_there).then_some(feature)
    }

    /// Returns all endings, for messages.
    pub(crate) fn endings() -> String {
        let endings = FORMATS.iter().flat_map(|(.., endings)| endings.iter());
        let endings: Vec<_> = endings.map(|ending| format!(".{ending}")).collect();
        endings.join(", ")
    }
}

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

/// How much a profile contains of each address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum Symbolicate {
    /// Names of functions, including inlined ones, with files, lines and columns, from the debug
    /// information and symbol tables on this machine. Each distinct address is looked up once. The
    /// first lookup in a large executable takes seconds and memory.
    #[default]
    Full,
    /// Names from the symbol tables, which is faster. The debug information is read only if the
    /// symbol tables lack an address, and lack the functions that only their own module calls, too.
    /// Inlined functions, files and lines are missing.
    NamesOnly,
    /// Addresses only. The viewer asks a symbol server for names, such as the one that `samply
    /// load` or the example `view` starts.
    No,
}

/// How the addresses of a profile are named.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameOptions {
    pub(crate) symbolicate: Symbolicate,
    /// Maximum memory for names that later profiles of the session may use, in bytes.
    pub(crate) max_cache_bytes: usize,
    /// Maximum number of threads that look up addresses, with the calling one; `None` for half the
    /// processors, but at most four.
    pub(crate) max_threads: Option<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_follows_from_the_longest_ending() {
        let format = |name: &str| Format::of_path(Path::new(name));
        for (name, expected) in [
            ("a/out.json", Some(Format::Gecko)),
            ("out.json.gz", Some(Format::Gecko)),
            ("out", Some(Format::Gecko)),
            (".hidden", Some(Format::Gecko)),
            ("/dev/stdout", Some(Format::Gecko)),
            ("out.trace.json", Some(Format::ChromeTrace)),
            ("trace.json", Some(Format::Gecko)),
            ("a.b.speedscope.json.gz", Some(Format::Speedscope)),
            ("flame.svg", Some(Format::Svg)),
            ("FLAME.SVG", Some(Format::Svg)),
            ("Out.Trace.Json.GZ", Some(Format::ChromeTrace)),
            ("out.pb.gz", Some(Format::Pprof)),
            ("y.json.zst", None),
            ("out.exe", None),
            ("..", None),
        ] {
            assert_eq!(format(name), expected, "{name}");
        }
    }

    #[test]
    fn each_format_has_a_name_and_an_ending_of_its_own() {
        for format in Format::all() {
            assert_eq!(Format::from_name(format.name()), Some(format));
        }
        let endings = Format::endings();
        let mut unique: Vec<_> = endings.split(", ").collect();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), endings.split(", ").count());
    }
}
