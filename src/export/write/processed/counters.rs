//! The counters, each with the description of its graph and of its tooltip.

use serde_json::{Value, json};

use crate::export::write::processed::columns::{column, time_deltas};
use crate::export::write::processed::context::Context;
use crate::json::JsonWriter;
use crate::model::{Counter, CounterGraph, PROCESS_CPU_NAME};

/// How the viewer shows a counter.
struct Display<'a> {
    graph_type: &'static str,
    unit: &'static str,
    color: &'static str,
    /// Where the schema of a marker says that its markers are shown in the counter's track.
    marker_location: Option<&'static str>,
    /// Tracks with lower weights come first.
    sort_weight: u64,
    label: &'a str,
    tooltip_rows: Value,
}

pub(super) fn write_counters(json: &mut JsonWriter<'_>, context: &Context<'_>) {
    let profile = context.profile;
    json.array(|json| {
        for counter in &profile.counters {
            // The viewer shows a counter beside a thread of its process.
            let Some(main_thread) = context.main_thread(counter.process) else {
                continue;
            };
            if counter.samples.is_empty() {
                continue;
            }
            json.object(|json| {
                json.key("name").string(shown_name(counter));
                json.key("category").string(&counter.category);
                json.key("description").string(&counter.description);
                json.key("pid")
                    .string(&profile.processes[counter.process].pid);
                json.key("mainThreadIndex").unsigned(main_thread as u64);
                json.key("samples")
                    .object(|json| write_samples(json, counter));
                let same = |other: &&Counter| {
                    (other.process, &other.category) == (counter.process, &counter.category)
                };
                let is_only_one = profile.counters.iter().filter(same).count() == 1;
                json.key("display")
                    .object(|json| Display::of(counter, is_only_one).write(json));
            });
        }
    });
}

/// Returns the name in the file, which the viewer does not hide.
fn shown_name(counter: &Counter) -> &str {
    match counter.is_process_cpu() {
        true => PROCESS_CPU_NAME,
        false => &counter.name,
    }
}

fn write_samples(json: &mut JsonWriter<'_>, counter: &Counter) {
    let samples = || counter.samples.iter();
    time_deltas(json, samples().map(|sample| sample.time_ns));
    column(json, "count", samples(), |json, sample| {
        json.float(sample.delta)
    });
    if samples().any(|sample| sample.operations.is_some()) {
        column(json, "number", samples(), |json, sample| {
            json.unsigned(sample.operations.unwrap_or(0));
        });
    }
    json.key("length").unsigned(counter.samples.len() as u64);
}

impl<'a> Display<'a> {
    /// Returns how a counter is shown: what the viewer itself derives for Gecko's counters. A
    /// category gives its name to a counter only if it has no other one.
    fn of(counter: &'a Counter, is_only_one: bool) -> Self {
        let or_name = |label| {
            if is_only_one {
                label
            } else {
                counter.name.as_str()
            }
        };
        let plain = Self {
            graph_type: "line-rate",
            unit: "",
            color: "grey",
            marker_location: None,
            sort_weight: 50,
            label: &counter.name,
            tooltip_rows: json!([value("count", "number", None, &counter.name)]),
        };
        match counter.category.as_str() {
            "Bandwidth" => Self {
                unit: "bytes",
                color: "blue",
                sort_weight: 10,
                label: or_name("Bandwidth"),
                tooltip_rows: bandwidth_rows(),
                ..plain
            },
            "Memory" => Self {
                graph_type: "line-accumulated",
                unit: "bytes",
                color: "orange",
                marker_location: Some("timeline-memory"),
                sort_weight: 20,
                label: or_name("Memory"),
                tooltip_rows: memory_rows(),
            },
            "power" => Self {
                unit: "pWh",
                sort_weight: 30,
                tooltip_rows: power_rows(),
                ..plain
            },
            _ if counter.is_process_cpu() => Self {
                unit: "percent",
                sort_weight: 40,
                label: PROCESS_CPU_NAME,
                tooltip_rows: json!([value("cpu-ratio", "percent", Some("cpu"), "CPU")]),
                ..plain
            },
            _ => match counter.graph {
                Some(graph) => plain.with_looks_of(counter, graph),
                None => plain,
            },
        }
    }

    /// Returns how a counter of the application is shown.
    fn with_looks_of(self, counter: &Counter, graph: CounterGraph) -> Self {
        let (unit, format) = match graph.is_bytes {
            true => ("bytes", "bytes"),
            false => ("", "number"),
        };
        let mut rows = match graph.is_level {
            true => vec![value(
                "accumulated",
                format,
                None,
                "above the lowest value in this range",
            )],
            false => vec![value("count", format, None, "since the previous sample")],
        };
        if counter
            .samples
            .iter()
            .any(|sample| sample.operations.is_some())
        {
            rows.push(value(
                "sample-number",
                "number",
                None,
                "operations since the previous sample",
            ));
        }
        Self {
            graph_type: if graph.is_level {
                "line-accumulated"
            } else {
                "line-rate"
            },
            unit,
            color: graph.color,
            tooltip_rows: rows.into(),
            ..self
        }
    }

    fn write(&self, json: &mut JsonWriter<'_>) {
        json.key("graphType").string(self.graph_type);
        json.key("unit").string(self.unit);
        json.key("color").string(self.color);
        match self.marker_location {
            Some(location) => json.key("markerSchemaLocation").string(location),
            None => json.key("markerSchemaLocation").null(),
        }
        json.key("sortWeight").unsigned(self.sort_weight);
        json.key("label").string(self.label);
        json.key("tooltipRows")
            .splice(self.tooltip_rows.to_string());
    }
}

/// Returns a row of a tooltip. The viewer translates a label with a key.
fn value(source: &str, unit: &str, key: Option<&str>, label: &str) -> Value {
    let mut row = json!({
        "type": "value",
        "source": source,
        "format": { "unit": unit },
        "label": label,
    });
    if let Some(key) = key {
        row["labelKey"] = key.into();
    }
    row
}

/// Adds to the format of a row, or to the row itself.
fn with(mut row: Value, format: Value, needs_selection: bool) -> Value {
    if let (Some(known), Value::Object(more)) = (row["format"].as_object_mut(), format) {
        known.extend(more);
    }
    if needs_selection {
        row["requiresPreviewSelection"] = true.into();
    }
    row
}

fn bandwidth_rows() -> Value {
    let row = |source, unit, key, label| {
        with(
            value(source, unit, Some(key), label),
            json!({"co2": "per-byte"}),
            false,
        )
    };
    let selection = value(
        "selection-total",
        "bytes",
        Some("bandwidth-total-selection"),
        "Data transferred in the current selection",
    );
    json!([
        row("rate", "bytes-per-second", "bandwidth-speed", "Transfer speed for this sample"),
        value(
            "sample-number",
            "number",
            Some("bandwidth-operations"),
            "read/write operations since the previous sample",
        ),
        {"type": "separator"},
        row("accumulated", "bytes", "bandwidth-cumulative", "Data transferred up to this time"),
        row("count-range", "bytes", "bandwidth-total-graph", "Data transferred in the visible range"),
        with(selection, json!({"co2": "per-byte"}), true),
    ])
}

fn memory_rows() -> Value {
    let row = |source, unit, key, label| value(source, unit, Some(key), label);
    json!([
        row(
            "accumulated",
            "bytes",
            "memory-relative",
            "relative memory at this time"
        ),
        row(
            "count-range",
            "bytes",
            "memory-range",
            "memory range in graph"
        ),
        row(
            "sample-number",
            "number",
            "memory-operations",
            "allocations and deallocations since the previous sample",
        ),
    ])
}

fn power_rows() -> Value {
    let row = |source, scale, key, label, needs_selection| {
        let format = json!({"co2": "per-watthour", "scale": scale});
        with(
            value(source, "number", Some(key), label),
            format,
            needs_selection,
        )
    };
    json!([
        row("count", "power", "power", "Power", false),
        row(
            "selection-total",
            "energy",
            "power-energy-preview",
            "Energy used in the current selection",
            true,
        ),
        row(
            "selection-rate",
            "power",
            "power-average-preview",
            "Average power in the current selection",
            true,
        ),
        row(
            "committed-range-total",
            "energy",
            "power-energy-range",
            "Energy used in the visible range",
            false,
        ),
    ])
}
