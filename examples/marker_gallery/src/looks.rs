//! Shows what a marker type can set besides its fields: where its markers are shown, their labels,
//! and graphs.

use gekkota::{MarkerTiming, ProfilerTime, add_marker, gecko_profiler_category, marker_type};

use super::after;

/// Defines a marker type for each display location, shown in that location only.
macro_rules! places {
    ($($type:ident($name:literal, $place:ident);)+) => {
        $(
            marker_type! {
                struct $type {
                    text: String => "Text", String;
                }
                name = $name;
                places = [$place];
            }
        )+

        fn show_places(start: ProfilerTime) {
            $(
                let time = MarkerTiming::interval(after(start, 40.0), after(start, 60.0));
                add_marker($name, gecko_profiler_category!(Test), time.into(), $type { text: $name.to_owned() });
            )+
        }
    };
}

places! {
    InChart("place marker-chart", MarkerChart);
    InTable("place marker-table", MarkerTable);
    InOverview("place timeline-overview", TimelineOverview);
    InMemory("place timeline-memory", TimelineMemory);
    InIpc("place timeline-ipc", TimelineIPC);
    InFileIo("place timeline-fileio", TimelineFileIO);
    InNetwork("place timeline-network", TimelineNetwork);
    InStackChart("place stack-chart", StackChart);
}

/// Defines a marker type for each kind of graph and each color.
macro_rules! graphs {
    ($($type:ident($name:literal, $($graph:tt),+);)+) => {
        $(
            marker_type! {
                #[derive(Clone, Copy)]
                struct $type {
                    value: f64 => "Value", Decimal;
                }
                name = $name;
                graph = (value, $($graph),+);
            }
        )+

        fn show_graphs(start: ProfilerTime) {
            for step in 0..8u8 {
                let begin = 20.0 * f64::from(step);
                let time = MarkerTiming::interval(after(start, begin), after(start, begin + 20.0));
                let value = f64::from(step * (7 - step)) - 2.0;
                $(add_marker($name, gecko_profiler_category!(Test), time.into(), $type { value });)+
            }
        }
    };
}

graphs! {
    BlueBars("graph bar blue", Bar, Blue);
    GreenLine("graph line green", Line, Green);
    GreyArea("graph line-filled grey", LineFilled, Grey);
    InkBars("graph bar ink", Bar, Ink);
    MagentaLine("graph line magenta", Line, Magenta);
    OrangeArea("graph line-filled orange", LineFilled, Orange);
    PurpleBars("graph bar purple", Bar, Purple);
    RedLine("graph line red", Line, Red);
    TealArea("graph line-filled teal", LineFilled, Teal);
    YellowBars("graph bar yellow", Bar, Yellow);
    PlainLine("graph line", Line);
}

marker_type! {
    /// Two graphs in one track.
    struct TwoGraphs {
        used: u32 => "Used", Bytes;
        kept: u32 => "Kept", Bytes;
    }
    name = "two graphs";
    graph = (kept, LineFilled, Grey);
    graph = (used, Line, Red);
}

marker_type! {
    /// Labels are templates.
    struct Labels {
        path: String => "Path", FilePath;
        size: u64 => "Size", Bytes;
        is_cached: bool => "Cached", String;
        /// Used in the labels only.
        attempt: u32 => hidden, Integer;
    }
    name = "labels";
    chart_label = "{marker.data.path}: {marker.data.size}";
    table_label = "{marker.name} - {marker.data.path}, attempt {marker.data.attempt}{marker.data.is_cached ? ' (cached)' : ''}";
    tooltip_label = "{marker.name} of {marker.category} took {marker.duration}";
    description = "Shows every kind of label.";
}

marker_type! {
    /// A type without label templates.
    struct NoLabels {
        text: String => "Text", String;
    }
    name = "no labels";
}

marker_type! {
    /// The chart takes each marker's color from this field.
    struct Colored {
        color: String => hidden, String;
    }
    name = "colored";
    color_field = "color";
}

marker_type! {
    /// Nested intervals.
    struct Nested {
        depth: u32 => "Depth", Integer;
    }
    name = "nested";
    stack_based = true;
}

/// Adds a marker with the network location, so that a thread without requests gets a network track.
pub(crate) fn show_on_other_thread(start: ProfilerTime) {
    let time = MarkerTiming::interval(after(start, 40.0), after(start, 60.0));
    let marker = InNetwork {
        text: "on another thread".to_owned(),
    };
    add_marker(
        "place timeline-network",
        gecko_profiler_category!(Test),
        time.into(),
        marker,
    );
}

/// Adds markers of each type.
pub(crate) fn show(start: ProfilerTime) {
    let category = gecko_profiler_category!(Test);
    let between = |begin: f64, end: f64| {
        MarkerTiming::interval(after(start, begin), after(start, end)).into()
    };
    show_places(start);
    show_graphs(start);
    for step in 0..8 {
        let begin = 20.0 * f64::from(step);
        let values = TwoGraphs {
            used: step * 1000,
            kept: 10_000 - step * 500,
        };
        add_marker("two graphs", category, between(begin, begin + 20.0), values);
    }
    let labels = Labels {
        path: "/tmp/a.txt".to_owned(),
        size: 1536,
        is_cached: true,
        attempt: 3,
    };
    add_marker("labeled", category, between(70.0, 95.0), labels);
    add_marker(
        "not labeled",
        category,
        between(70.0, 95.0),
        NoLabels {
            text: "text".to_owned(),
        },
    );
    for (place, color) in ["red", "teal", "no color"].into_iter().enumerate() {
        let begin = 100.0 + 20.0 * place as f64;
        add_marker(
            "colored",
            category,
            between(begin, begin + 15.0),
            Colored {
                color: color.to_owned(),
            },
        );
    }
    for depth in 0..3 {
        let inset = 5.0 * f64::from(depth);
        add_marker(
            "nested",
            category,
            between(100.0 + inset, 150.0 - inset),
            Nested { depth },
        );
    }
}
