//! Writes the program's version, and what the profiler cost, into the profile's `meta`. The viewer
//! shows them with the information about the profile.

use std::path::Path;

use crate::json::JsonWriter;
use crate::stream::decode::{ProcessStreamingContext, ProfileSource};
use crate::stream::resolve::{code_id, library_name};
use crate::types::{BUFFER_MEMORY, PROFILER_SECTION, SAMPLER_CPU, STOP_TIME, Warning};

/// A value, with the format in which the viewer shows it.
enum Value<'a> {
    Text(&'a str),
    Count(u64),
    Bytes(u64),
    DurationNs(u64),
    /// From 0 to 1.
    Fraction(f64),
}

impl Value<'_> {
    fn write(&self, json: &mut JsonWriter<'_>, label: &str) {
        json.object(|json| {
            json.key("label").string(label);
            let format = match self {
                Self::Text(_) => "string",
                Self::Count(_) => "integer",
                Self::Bytes(_) => "bytes",
                Self::DurationNs(_) => "duration",
                Self::Fraction(_) => "percentage",
            };
            json.key("format").string(format);
            let value = json.key("value");
            match *self {
                Self::Text(text) => value.string(text),
                Self::Count(number) | Self::Bytes(number) => value.unsigned(number),
                Self::DurationNs(ns) => value.time_ms(ns),
                Self::Fraction(fraction) => value.float(fraction),
            }
        });
    }
}

/// Writes the fields of `meta` by which the viewer tells builds of the program apart.
pub(super) fn write_version(
    json: &mut JsonWriter<'_>,
    source: &ProfileSource,
    process: &ProcessStreamingContext,
) {
    // The viewer shows the number at the end of this text next to the program's name.
    let number = source.version.as_deref().map_or("", number_of_version);
    let misc = match number {
        "" => String::new(),
        number => format!("rv:{number}"),
    };
    json.key("misc").string(&misc);
    let name = library_name(Path::new(&source.product));
    let mut modules = process.modules.iter();
    let program = modules.find(|module| library_name(&module.image.path) == name);
    if let Some(id) = program.and_then(|program| code_id(&program.image.build_id)) {
        json.key("appBuildID").string(&id);
    }
}

/// Returns the number at the beginning of a version: `1.2.3` of `1.2.3-rc.1`.
fn number_of_version(version: &str) -> &str {
    let end = version.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
    version[..end.unwrap_or(version.len())].trim_end_matches('.')
}

/// Writes the sections that the viewer adds to its information about the profile.
pub(super) fn write_extra(json: &mut JsonWriter<'_>, source: &ProfileSource, warnings: &[Warning]) {
    json.array(|json| {
        if !warnings.is_empty() {
            let texts = warnings.iter().map(|warning| Value::Text(&warning.text));
            let names = warnings.iter().map(|warning| warning.name);
            let entries: Vec<_> = names.zip(texts).collect();
            section(json, "Warnings", &entries);
        }
        if let Some(version) = &source.version {
            section(json, "Program", &[("Version", Value::Text(version))]);
        }
        let count = |name: &str| source.count(name);
        let memory = source.buffer.chunk_memory();
        let memory_bytes = memory.unreleased_bytes + memory.released_bytes;
        let cpu_ns = count("sampler_cpu_ns");
        let stopped_ns = count("stopped_ns");
        let cost = cost_text(cpu_ns, memory_bytes, stopped_ns);
        let session_ns = source.taken_at.since_ns(source.session.started_at);
        let entries = [
            ("Version of gekkota", Value::Text(env!("CARGO_PKG_VERSION"))),
            ("Cost", Value::Text(&cost)),
            (SAMPLER_CPU, Value::DurationNs(cpu_ns)),
            (
                "Share of one processor",
                Value::Fraction(cpu_ns as f64 / session_ns.max(1) as f64),
            ),
            ("Ticks", Value::Count(count("ticks"))),
            ("Missed ticks", Value::Count(count("missed_ticks"))),
            ("Delayed ticks", Value::Count(count("delayed_ticks"))),
            (
                "Threads sampled on their own CPU time",
                Value::Count(count("threads_with_events")),
            ),
            (
                "Threads without it, because the system refuses perf_event_open for example",
                Value::Count(count("refused_events")),
            ),
            (
                "Ticks left out to limit the sampler's CPU time",
                Value::Count(count("skipped_ticks")),
            ),
            (
                "Missed samples of running threads",
                Value::Count(count("unanswered_ticks")),
            ),
            (BUFFER_MEMORY, Value::Bytes(memory_bytes)),
            (STOP_TIME, Value::DurationNs(stopped_ns)),
        ];
        section(json, PROFILER_SECTION, &entries);
    });
}

/// Returns in one line what the profiler cost the process.
fn cost_text(cpu_ns: u64, memory_bytes: u64, stopped_ns: u64) -> String {
    let ms = |ns: u64| ns as f64 / 1e6;
    format!(
        "{:.1} ms of CPU time for sampling, {:.1} MB of memory for the data, and threads stopped \
         for {:.1} ms",
        ms(cpu_ns),
        memory_bytes as f64 / 1e6,
        ms(stopped_ns)
    )
}

fn section(json: &mut JsonWriter<'_>, label: &str, entries: &[(&str, Value<'_>)]) {
    json.object(|json| {
        json.key("label").string(label);
        json.key("entries").array(|json| {
            entries
                .iter()
                .for_each(|(label, value)| value.write(json, label));
        });
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_text_has_the_three_costs_in_one_line() {
        assert_eq!(
            cost_text(12_345_678, 2_500_000, 940_000),
            "12.3 ms of CPU time for sampling, 2.5 MB of memory for the data, and threads stopped \
             for 0.9 ms"
        );
    }

    #[test]
    fn number_of_version_ends_before_other_text() {
        for (version, number) in [
            ("1.2.3", "1.2.3"),
            ("1.2.3-rc.1", "1.2.3"),
            ("2.0+build.5", "2.0"),
            ("7.", "7"),
            ("v1", ""),
            ("", ""),
        ] {
            assert_eq!(number_of_version(version), number);
        }
    }
}
