//! The writers, one file or folder for each format or family of formats. Those that few need are in
//! features.

mod flame_tree;
#[cfg(feature = "formats")]
mod formats;
mod intervals_and_flows;
#[cfg(feature = "otlp-unstable")]
mod otlp;
#[cfg(feature = "protobuf")]
mod pprof;
mod processed;
mod stacks;
mod svg;
#[cfg(all(test, feature = "protobuf"))]
mod test_protobuf_profile;

use std::io::{self, Write};

use crate::export::options::{ExportOptions, Writer};
use crate::export::summary::write_text;
use crate::model::ProfileModel;
use crate::types::Format;

#[cfg(feature = "otlp-unstable")]
pub(crate) use otlp::{OtlpResource, write_otlp};

/// Writes a profile in a format.
///
/// # Errors
/// The first error of `out`; or [`io::ErrorKind::InvalidInput`] if the options name a thread that
/// the profile does not have, or if a format for one thread gets none; or
/// [`io::ErrorKind::Unsupported`] if this build cannot write the format, or for Gecko's, which only
/// a session's own data can be written in.
pub(crate) fn write_profile(
    profile: &ProfileModel,
    format: Format,
    options: &ExportOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    options.check_thread(profile)?;
    if let Some(feature) = format.missing_feature() {
        let message = format!(
            "got a build without the crate's feature `{feature}`, expected one with it for {}",
            format.name()
        );
        return Err(io::Error::new(io::ErrorKind::Unsupported, message));
    }
    let write: Writer = match format {
        Format::Gecko => {
            let message = "got the format gecko for a profile from a file, expected another one, such as processed";
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
        Format::Processed => processed::write_processed,
        Format::Collapsed => stacks::write_collapsed,
        Format::Svg => svg::write_svg,
        Format::Text => write_text,
        Format::Stacks => stacks::write_stacks,
        #[cfg(feature = "protobuf")]
        Format::Pprof => pprof::write_pprof,
        #[cfg(feature = "formats")]
        _ => formats::writer_of(format).ok_or(io::ErrorKind::Unsupported)?,
        #[cfg(not(feature = "formats"))]
        _ => return Err(io::ErrorKind::Unsupported.into()),
    };
    write(profile, options, out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::read::read_profile_from;
    use crate::export::test_profile::{ProfileBuilder, WAIT, two_threads};

    fn written(profile: &ProfileModel, format: Format, options: &ExportOptions) -> String {
        let mut out = Vec::new();
        write_profile(profile, format, options, &mut out).expect("a vector takes all");
        String::from_utf8_lossy(&out).into_owned()
    }

    fn json(profile: &ProfileModel, format: Format) -> serde_json::Value {
        let text = written(profile, format, &ExportOptions::default());
        serde_json::from_str(&text).expect("JSON")
    }

    #[test]
    fn unknown_thread_is_an_error_in_each_format() {
        let options = ExportOptions {
            thread: Some("other".to_owned()),
            ..ExportOptions::default()
        };
        for format in Format::all() {
            let mut out = Vec::new();
            let result = write_profile(&two_threads(), format, &options, &mut out);
            let message = "got the thread \"other\", expected the name or id of one of the profile's \
                 threads: main, worker";
            assert_eq!(result.expect_err("no thread").to_string(), message);
            assert!(out.is_empty());
        }
    }

    /// The rows of a waiting thread that were left out count in each format.
    #[test]
    fn row_counts_for_the_samples_of_its_weight() {
        let mut builder = ProfileBuilder::new();
        let main = builder.thread("main");
        builder.sample(main, 0, &["run", "work"]);
        builder.sample(main, 1, &["run", WAIT]);
        builder.sample(main, 10, &["run", "work"]);
        let mut profile = builder.profile;
        let samples = &mut profile.threads[0].samples;
        samples.update(1, |sample| sample.weight = 9);

        let collapsed = written(&profile, Format::Collapsed, &ExportOptions::default());
        assert_eq!(collapsed, "main;run;wait 9\nmain;run;work 2\n");
        let svg = written(&profile, Format::Svg, &ExportOptions::default());
        assert!(svg.contains("11 samples"), "{svg}");
        let text = written(&profile, Format::Text, &ExportOptions::default());
        assert!(
            text.contains("\nsamples   11 in 1 thread of 1 process"),
            "{text}"
        );
        let processed = json(&profile, Format::Processed);
        let samples = &processed["threads"][0]["samples"];
        assert_eq!(samples["weight"], serde_json::json!([1, 9, 1]));
        assert_eq!(samples["weightType"], "samples");
        #[cfg(feature = "formats")]
        {
            let merged = json(&profile, Format::D3FlameGraphMerged);
            assert_eq!(merged["value"], 11);
            let speedscope = json(&profile, Format::Speedscope);
            let weights = serde_json::json!([1_000_000, 9_000_000, 1_000_000]);
            assert_eq!(speedscope["profiles"][0]["weights"], weights);
            let cpuprofile = json(&profile, Format::CpuProfile);
            let ticks = cpuprofile["samples"].as_array().expect("samples");
            assert_eq!(ticks.len(), 11);
            let trace = json(&profile, Format::JsSelfProfile);
            assert_eq!(trace["samples"].as_array().map(Vec::len), Some(11));
        }
    }

    /// A thread that works before each sleep, so that the clock of each sleep has the work's time:
    /// 16 ms of work, and 9 ms that no sample found running.
    fn bursts() -> ProfileModel {
        let mut builder = ProfileBuilder::new();
        let main = builder.thread("main");
        for time_ms in [0, 10, 20, 30] {
            builder.cpu_sample(main, time_ms, &["run", "work"], 1_000_000);
            builder.cpu_sample(main, time_ms + 1, &["run", WAIT], 3_000_000);
            builder.cpu_sample(main, time_ms + 2, &["run", WAIT], 0);
        }
        builder.cpu_sample(main, 40, &["run", WAIT], 9_000_000);
        builder.cpu_sample(main, 50, &["run", WAIT], 0);
        builder.profile
    }

    const CPU_OF_BURSTS: &str = "main;(ran between samples) 9\nmain;run;work 16\n";

    #[test]
    fn cpu_time_of_bursts_is_that_of_the_work_in_each_format() {
        let (profile, options) = (bursts(), ExportOptions::usual_for(Format::Text));
        let written = |format| written(&profile, format, &options);
        assert_eq!(written(Format::Collapsed), CPU_OF_BURSTS);
        let text = written(Format::Text);
        let row = |name: &str, cells: &[&str]| {
            let rows = text.lines().filter(|line| line.contains(name));
            let mut cells_of = rows.map(|line| line.split_whitespace().take(2));
            let found = cells_of.any(|row| row.eq(cells.iter().copied()));
            assert!(found, "no {cells:?} of {name} in {text}");
        };
        row("work", &["16.0ms", "64.0%"]);
        row("(ran between samples)", &["9.00ms", "36.0%"]);
        row(WAIT, &["0ns", "0.0%"]);
        let processed: serde_json::Value =
            serde_json::from_str(&written(Format::Processed)).expect("JSON");
        let samples = &processed["threads"][0]["samples"];
        let burst = [4, 0, 0];
        let weights = [&burst[..], &burst, &burst, &burst, &[9, 0, 0]].concat();
        assert_eq!(samples["weight"], serde_json::json!(weights));
        let deltas = [1_000_000, 3_000_000, 0].map(Some);
        let rest = [None, Some(9_000_000), Some(0)];
        let deltas = [deltas, deltas, deltas, deltas, rest].concat();
        assert_eq!(samples["threadCPUDelta"], serde_json::json!(deltas));
        assert_eq!(samples["length"], 15);
        let of_feature = [
            Format::CpuProfile,
            Format::JsSelfProfile,
            Format::D3FlameGraph,
            Format::D3FlameGraphMerged,
            Format::ChromeTrace,
            Format::Speedscope,
        ];
        let of_feature = of_feature.into_iter().filter(|_| cfg!(feature = "formats"));
        for format in [Format::Svg].into_iter().chain(of_feature) {
            let text = written(format);
            let of = |name| text.contains(name);
            let found = [of("work"), of("(ran between samples)"), of(WAIT)];
            assert_eq!(found, [true, true, false], "{text}");
        }
    }

    #[test]
    fn cpu_times_are_the_same_when_a_file_is_read_back() {
        let (profile, options) = (bursts(), ExportOptions::usual_for(Format::Text));
        let plain = ExportOptions::default();
        for (format, options_of_file) in
            [(Format::Processed, &plain), (Format::Processed, &options)]
        {
            let file = written(&profile, format, options_of_file);
            let read = read_profile_from(file.as_bytes()).expect("a profile");
            assert_eq!(written(&read, Format::Collapsed, &options), CPU_OF_BURSTS);
        }
    }

    #[test]
    fn gecko_format_of_a_read_profile_is_an_error_that_names_the_processed_one() {
        let (mut out, options) = (Vec::new(), ExportOptions::default());
        let written = write_profile(&two_threads(), Format::Gecko, &options, &mut out);
        let error = written.expect_err("no writer");
        assert_eq!(
            error.to_string(),
            "got the format gecko for a profile from a file, expected another one, such as processed"
        );
        assert!(out.is_empty());
    }

    #[test]
    fn format_of_a_missing_feature_is_an_error_that_names_the_feature() {
        for format in Format::all() {
            let mut out = Vec::new();
            let options = ExportOptions::default();
            let written = write_profile(&two_threads(), format, &options, &mut out);
            match format.missing_feature() {
                None => assert_eq!(written.is_ok(), format != Format::Gecko, "{format:?}"),
                Some(feature) => {
                    let error = written.expect_err("a missing feature").to_string();
                    assert!(error.contains(&format!("`{feature}`")), "{error}");
                    assert!(out.is_empty());
                }
            }
        }
    }
}
