//! Selects the writer of a format.

use std::io::{self, Write};

use crate::export::format::Format;
use crate::export::options::ExportOptions;
use crate::export::summary::write_text;
#[cfg(feature = "formats")]
use crate::export::write::{
    chrome_trace, cpuprofile, flame_graph, js_self_profile, speedscope, timed_flame_graph,
};
use crate::export::write::{collapsed, gecko, processed, stacks, svg};
#[cfg(feature = "protobuf")]
use crate::export::write::{perfetto, pprof};
use crate::model::ProfileModel;
use crate::util::ProgressLogger;

/// Writes a profile in a format.
///
/// # Errors
/// The first error of `out`; or [`io::ErrorKind::InvalidInput`] if the options name a thread that
/// the profile does not have, or if a format for one thread gets none; or
/// [`io::ErrorKind::Unsupported`] if this build cannot write the format.
pub(crate) fn write_profile(
    profile: &ProfileModel,
    format: Format,
    options: &ExportOptions,
    out: &mut dyn Write,
    progress: &ProgressLogger,
) -> io::Result<()> {
    options.check_thread(profile)?;
    if let Some(feature) = format.missing_feature() {
        let message = format!(
            "got a build without the crate's feature `{feature}`, expected one with it for {}",
            format.name()
        );
        return Err(io::Error::new(io::ErrorKind::Unsupported, message));
    }
    let write = match format {
        Format::Gecko => gecko::write_gecko,
        Format::Processed => processed::write_processed,
        Format::Collapsed => collapsed::write_collapsed,
        Format::Svg => svg::write_svg,
        Format::Text => write_text,
        Format::Stacks => stacks::write_stacks,
        #[cfg(feature = "formats")]
        Format::CpuProfile => cpuprofile::write_cpuprofile,
        #[cfg(feature = "formats")]
        Format::JsSelfProfile => js_self_profile::write_js_self_profile,
        #[cfg(feature = "formats")]
        Format::D3FlameGraph => timed_flame_graph::write_timed_flame_graph,
        #[cfg(feature = "formats")]
        Format::D3FlameGraphMerged => flame_graph::write_flame_graph,
        #[cfg(feature = "formats")]
        Format::ChromeTrace => chrome_trace::write_chrome_trace,
        #[cfg(feature = "formats")]
        Format::Speedscope => speedscope::write_speedscope,
        #[cfg(feature = "protobuf")]
        Format::Pprof => pprof::write_pprof,
        #[cfg(feature = "protobuf")]
        Format::Perfetto => perfetto::write_perfetto,
        #[cfg(not(all(feature = "formats", feature = "protobuf")))]
        _ => return Err(io::ErrorKind::Unsupported.into()),
    };
    write(profile, options, out, progress)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::sample_profile::{ProfileBuilder, WAIT, two_threads};

    fn written(profile: &ProfileModel, format: Format, options: &ExportOptions) -> String {
        let mut out = Vec::new();
        let progress = ProgressLogger::unwatched();
        write_profile(profile, format, options, &mut out, &progress).expect("a vector takes all");
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
            let progress = ProgressLogger::unwatched();
            let result = write_profile(&two_threads(), format, &options, &mut out, &progress);
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

    #[test]
    fn format_of_a_missing_feature_is_an_error_that_names_the_feature() {
        for format in Format::all() {
            let mut out = Vec::new();
            let progress = ProgressLogger::unwatched();
            let options = ExportOptions::default();
            let written = write_profile(&two_threads(), format, &options, &mut out, &progress);
            match format.missing_feature() {
                None => assert!(written.is_ok(), "{}", format.name()),
                Some(feature) => {
                    let error = written.expect_err("a missing feature").to_string();
                    assert!(error.contains(&format!("`{feature}`")), "{error}");
                    assert!(out.is_empty());
                }
            }
        }
    }
}
