use super::*;
use crate::export::options::SampleWeight;
use crate::export::sample_profile::{ProfileBuilder, two_threads};

fn written(profile: &ProfileModel, options: &ExportOptions) -> String {
    let mut out = Vec::new();
    write_svg(profile, options, &mut out).expect("a vector takes all");
    String::from_utf8(out).expect("SVG is UTF-8")
}

#[test]
fn svg_shows_each_function_with_its_share_and_library() {
    let text = written(&two_threads(), &ExportOptions::default());
    assert_eq!(text.matches("<g class=\"box\"").count(), 7);
    assert!(text.contains(
        "data-range=\"0,3,2\"><title>parse\n3 samples, 33.33 %; itself 2 samples, 22.22 %\ndemo<"
    ));
    assert!(text.contains("data-range=\"7,2,0\"><title>worker\n2 samples, 22.22 %<"));
    assert!(text.contains(">threads main, worker · 9 samples · interval 1 ms<"));
    assert!(text.contains(">Flame graph of demo<") && !text.contains("not shown"));
    // The height has space for four rows.
    let height = format!("height=\"{}\"", TOP_PX + 4.0 * ROW_PX + BOTTOM_PX);
    assert!(text.contains(&height));
}

#[test]
fn svg_of_cpu_time_states_time() {
    let options = ExportOptions {
        weight: SampleWeight::Cpu,
        ..ExportOptions::default()
    };
    let text = written(&two_threads(), &options);
    assert!(text.contains("<title>parse\n3 ms of CPU time, 100.00 %\ndemo<"));
    assert!(text.contains(">thread main · 3 ms of CPU time · interval 1 ms<"));
}

#[test]
fn svg_escapes_names() {
    let mut builder = ProfileBuilder::new();
    let thread = builder.thread("]]></script>");
    builder.sample(thread, 0, &["<A as B<'a>>::f & \"g\"\n"]);
    builder.profile.meta.product = "a<b".to_owned();
    let text = written(&builder.profile, &ExportOptions::default());
    assert!(text.contains("<title>&lt;A as B&lt;&#39;a&gt;&gt;::f &amp; &quot;g&quot; \n"));
    assert!(text.contains("<title>Flame graph of a&lt;b</title>"));
    // Only the script itself ends a script.
    assert_eq!(text.matches("</script>").count(), 1);
    assert_eq!(text.matches("]]>").count(), 1);
}

#[test]
fn svg_counts_functions_that_are_too_narrow() {
    let mut builder = ProfileBuilder::new();
    let thread = builder.thread("main");
    for time_ms in 0..20_000 {
        builder.sample(thread, time_ms, &["run"]);
    }
    builder.sample(thread, 20_000, &["rare", "rarer"]);
    let text = written(&builder.profile, &ExportOptions::default());
    assert!(text.contains(">2 functions narrower than 0.1 px are not shown<"));
    assert!(!text.contains("rare"));
}

#[test]
fn svg_needs_no_other_file() {
    let text = written(&two_threads(), &ExportOptions::default());
    let addresses = text.match_indices("http").map(|(at, _)| &text[at..]);
    for address in addresses {
        assert!(address.starts_with("http://www.w3.org/"), "{address:.40}");
    }
    assert!(!text.contains("@import") && !text.contains("href") && !text.contains("url("));
}

#[test]
fn svg_of_no_samples_is_whole() {
    let text = written(&ProfileModel::default(), &ExportOptions::default());
    assert!(text.contains("no threads · 0 samples") && text.ends_with("</svg>\n"));
}
