//! Categories of the application: a profile lists each of them once, in the order of first use, and
//! its markers and labels refer to them.

use crate::common::sampled::{start_counter, work_until_sampled};
use crate::common::{Read, isolated};
use gekkota::marker::built_in::StackMarker;
use gekkota::{
    AutoProfilerTextMarker, MarkerOptions, ProfilerSession, ProfilingCategoryPair, StartParams,
    add_marker, add_text_marker, add_untyped_marker, auto_profiler_label, auto_profiler_marker,
    gecko_profiler_category, register_thread,
};
use serde_json::{Value, json};

gekkota::profiler_categories! {
    Requests("Requests", blue) { Other: "Other", Parsing: "Request parsing", Answer: "Answering" }
    Database("Database", orange) { Query: "Queries" }
    Unused("Unused", red) { Other: "Other" }
}

/// Another library's category, with the same name.
mod library {
    gekkota::profiler_categories! {
        pub(crate) Requests("Requests", green) { Sent: "Sent" }
    }
}

/// Number of Gecko's own categories.
const GECKO_CATEGORIES: usize = 25;

fn add_in(name: &str, category: ProfilingCategoryPair) {
    let options = MarkerOptions::default();
    add_untyped_marker(name, category, options);
    add_text_marker(name, category, options, "text");
    add_marker(name, category, options, StackMarker());
    auto_profiler_marker!(name, category, options);
    drop(AutoProfilerTextMarker::new(
        name, category, options, "scope",
    ));
}

#[inline(never)]
fn work_with_labels() {
    auto_profiler_label!("parse", Requests::Parsing);
    auto_profiler_label!("query", Database::Query);
    auto_profiler_label!("send", library::Requests::Sent);
    work_until_sampled(5);
    std::hint::black_box(file!());
}

fn categories(read: &Read) -> &[Value] {
    read.0["meta"]["categories"].as_array().expect("categories")
}

/// Returns the categories of all markers with this name.
fn categories_of(read: &Read, name: &str) -> Vec<Value> {
    let markers = read
        .markers("categories")
        .into_iter()
        .filter(|marker| marker.0 == name);
    markers
        .map(|marker| categories(read)[marker.4 as usize].clone())
        .collect()
}

#[test]
fn application_categories_are_used_by_markers_and_labels() {
    isolated(|| {
        start_counter();
        register_thread("categories");
        let before = ProfilerSession::start(StartParams::default()).expect("start");
        add_in("gecko", gecko_profiler_category!(Network));
        let before = Read::from_profile(&before.finish().expect("profile"));
        assert_eq!(
            categories(&before).len(),
            GECKO_CATEGORIES,
            "no category of the application was used"
        );

        let session = ProfilerSession::start(StartParams::default()).expect("start");
        add_in("answer", Requests::Answer);
        add_in("other", Requests::Other);
        add_in("query", Database::Query);
        add_in("sent", library::Requests::Sent);
        add_in("gecko", gecko_profiler_category!(Network));
        work_with_labels();
        let read = Read::from_profile(&session.finish().expect("profile"));

        let requests = json!({
            "name": "Requests", "color": "blue", "subcategories": ["Other", "Request parsing", "Answering"],
        });
        let database = json!({"name": "Database", "color": "orange", "subcategories": ["Queries"]});
        let library = json!({"name": "Requests", "color": "green", "subcategories": ["Sent"]});
        let expected = [requests.clone(), database.clone(), library.clone()];
        assert_eq!(
            categories(&read)[GECKO_CATEGORIES..],
            expected,
            "used categories, in the order of their first use"
        );
        // `auto_profiler_marker!` adds two markers: the start and the end of an interval. Markers
        // have a category but no subcategory.
        for (name, category) in [
            ("answer", &requests),
            ("other", &requests),
            ("query", &database),
            ("sent", &library),
        ] {
            assert_eq!(
                categories_of(&read, name),
                vec![category.clone(); 6],
                "{name}"
            );
        }
        let network = categories_of(&read, "gecko");
        assert!(
            network.len() == 6 && network.iter().all(|category| category["name"] == "Network"),
            "{network:?}"
        );
        for (label, category, subcategory) in [
            ("parse", &requests, "Request parsing"),
            ("query", &database, "Queries"),
            ("send", &library, "Sent"),
        ] {
            assert_eq!(
                read.label_frames("categories", label),
                [(category, subcategory, false)],
                "{label}"
            );
        }
        assert_ne!(Unused::Other, Requests::Other);
    });
}
