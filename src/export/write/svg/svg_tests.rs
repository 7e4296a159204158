use super::*;
use crate::export::options::SampleWeight;
use crate::export::test_profile::{ProfileBuilder, two_threads};

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

#[test]
fn boxes_lie_below_their_caller_from_left_to_right() {
    let profile = two_threads();
    let tree = FlameTree::of(&profile, &ExportOptions::default());
    let layout = Layout::of(&tree, 900.0);
    let starts: Vec<_> = layout.boxes.iter().map(|at| at.start).collect();
    // main, run, parse, alloc, wait, worker, wait.
    assert_eq!(starts, [0, 0, 0, 0, 3, 7, 7]);
    assert_eq!((layout.row_count, layout.hidden_count), (4, 0));
    assert_eq!(layout.place(&layout.boxes[4], 3), (300.0, 300.0));
}

#[test]
fn narrow_boxes_are_counted_and_left_out() {
    let mut builder = ProfileBuilder::new();
    let thread = builder.thread("main");
    for time_ms in 0..2000 {
        builder.sample(thread, time_ms, &["run"]);
    }
    builder.sample(thread, 2000, &["rare", "rarer"]);
    let tree = FlameTree::of(&builder.profile, &ExportOptions::default());
    let layout = Layout::of(&tree, 200.0);
    assert_eq!((layout.boxes.len(), layout.hidden_count), (2, 2));
    assert_eq!(layout.row_count, 2);
    assert_eq!(Layout::of(&tree, 201.0).hidden_count, 0);
}

#[test]
fn escaped_text_is_valid_xml_in_one_line() {
    let text = Escaped("<T as \"A\">::f&'a\n\u{1}\u{ffff}ü").to_string();
    let expected = "&lt;T as &quot;A&quot;&gt;::f&amp;&#39;a \u{fffd}\u{fffd}ü";
    assert_eq!(text, expected);
}

#[test]
fn name_is_cut_to_whole_characters_that_fit() {
    let width = |characters: f64| PADDING_PX + CHARACTER_PX * characters;
    assert_eq!(cut_to_width("größer", width(6.0)), "größer");
    assert_eq!(cut_to_width("größer", width(5.5)), "größ…");
    assert_eq!(cut_to_width("größer", width(2.9)), "");
    assert_eq!(cut_to_width("größer", 0.0), "");
}

#[test]
fn numbers_are_formatted_for_people() {
    let counts = [0, 999, 1000, 1_234_567].map(format_count);
    assert_eq!(counts, ["0", "999", "1,000", "1,234,567"]);
    assert_eq!(
        (format_share(1, 8), format_share(0, 0)),
        ("12.50 %".to_owned(), "0.00 %".to_owned())
    );
    let times = [5, 1_500, 1_000_000, 2_345_678_900].map(format_duration);
    assert_eq!(times, ["5 ns", "1.5 µs", "1 ms", "2.346 s"]);
}

#[test]
fn hues_convert_to_colors() {
    let colors = [0.0, 120.0, 240.0, 480.0].map(|hue| color_of(hue, 1.0, 0.5));
    assert_eq!(colors, ["#ff0000", "#00ff00", "#0000ff", "#00ff00"]);
    assert_eq!(color_of(77.0, 0.0, 1.0), "#ffffff");
}

#[test]
fn busiest_libraries_have_hues_of_their_own() {
    let mut builder = ProfileBuilder::new();
    let thread = builder.thread("main");
    for library in 0..8 {
        builder.module = builder.add_module(&format!("lib{library}.so"));
        for time_ms in 0..=library {
            builder.sample(thread, 10 * library + time_ms, &["work"]);
        }
        let name = format!("work{library}");
        builder.sample(thread, 10 * library + 9, &[&name]);
    }
    builder.module = None;
    builder.sample(thread, 100, &["[vdso]"]);
    let tree = FlameTree::of(&builder.profile, &ExportOptions::default());
    let palette = Palette::of(&builder.profile, &tree);
    let names: Vec<_> = palette.legend().map(|(_, name)| name).collect();
    // All samples of `work` count for the first library.
    let expected = [
        "lib0.so",
        "lib1.so",
        "lib2.so",
        "lib3.so",
        "lib4.so",
        "lib5.so",
        "other libraries",
        "no library",
    ];
    assert_eq!(names, expected);
    let color = |index: usize| {
        let label = tree.nodes[index].label;
        palette.color(label, tree.name(label))
    };
    assert_eq!(color(1), color(1));
    assert_ne!(color(3), color(4));
}
