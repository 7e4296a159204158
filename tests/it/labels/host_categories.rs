//! Categories of the host's stand in a profile once they were used, each once, and markers and labels in them point there.

use std::time::Duration;

use crate::common::{Read, isolated, work_for_cpu};
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
    Unused("Nobody's", red) { Other: "Other" }
}

/// Of another library, that has the same name for another category.
mod library {
    gekkota::profiler_categories! {
        pub(crate) Requests("Requests", green) { Sent: "Sent" }
    }
}

const GECKOS: usize = 25;

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
    work_for_cpu(Duration::from_millis(60));
    std::hint::black_box(());
}

fn categories(read: &Read) -> &[Value] {
    read.0["meta"]["categories"].as_array().expect("categories")
}

/// The categories of all markers of this name.
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
fn markers_and_labels_are_in_the_hosts_categories() {
    isolated(|| {
        register_thread("categories");
        let before = ProfilerSession::start(StartParams::default()).expect("start");
        add_in("geckos", gecko_profiler_category!(Network));
        let before = Read::from_profile(&before.finish().expect("profile"));
        assert_eq!(
            categories(&before).len(),
            GECKOS,
            "none of the host's was used"
        );

        let session = ProfilerSession::start(StartParams::default()).expect("start");
        add_in("answer", Requests::Answer);
        add_in("other", Requests::Other);
        add_in("query", Database::Query);
        add_in("sent", library::Requests::Sent);
        add_in("geckos", gecko_profiler_category!(Network));
        work_with_labels();
        let read = Read::from_profile(&session.finish().expect("profile"));

        let requests = json!({
            "name": "Requests", "color": "blue", "subcategories": ["Other", "Request parsing", "Answering"],
        });
        let database = json!({"name": "Database", "color": "orange", "subcategories": ["Queries"]});
        let of_library = json!({"name": "Requests", "color": "green", "subcategories": ["Sent"]});
        let hosts = [requests.clone(), database.clone(), of_library.clone()];
        assert_eq!(
            categories(&read)[GECKOS..],
            hosts,
            "in the order of their first use, and no others"
        );
        // The viewer's markers have no subcategory; they have an interval's both ends.
        for (name, category) in [
            ("answer", &requests),
            ("other", &requests),
            ("query", &database),
            ("sent", &of_library),
        ] {
            assert_eq!(
                categories_of(&read, name),
                vec![category.clone(); 6],
                "{name}"
            );
        }
        let network = categories_of(&read, "geckos");
        assert!(
            network.len() == 6 && network.iter().all(|category| category["name"] == "Network"),
            "{network:?}"
        );
        for (label, category, subcategory) in [
            ("parse", &requests, "Request parsing"),
            ("query", &database, "Queries"),
            ("send", &of_library, "Sent"),
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
