//! The counters, each with the description of its graph and of its tooltip.

use serde_json::{Value, json};

use crate::export::write::processed::columns::{column, numbers, time_deltas};
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

pub(crate) fn write_counters(json: &mut JsonWriter<'_>, context: &Context<'_>) {
    let profile = context.profile;
    json.array(|json| {
        for counter in &profile.counters {
            // The viewer shows a counter next to a thread of its process.
            let Some(main_thread) = main_thread(context, counter.process) else {
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

/// Returns the index in the file of the main thread of a process, or of its first thread if the
/// main thread is not written. `None` if the process has no written thread.
fn main_thread(context: &Context<'_>, process: usize) -> Option<usize> {
    let threads = &context.profile.threads;
    let written = context.threads.iter().map(|&index| &threads[index]);
    let of_process = written.enumerate();
    let mut of_process = of_process.filter(|(_, thread)| thread.process == process);
    let main = of_process.clone().find(|(_, thread)| thread.is_main);
    main.or_else(|| of_process.next()).map(|(index, _)| index)
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
    if has_operations(counter) {
        let operations = samples().map(|sample| Some(sample.operations.unwrap_or(0)));
        numbers(json, "number", operations);
    }
    json.key("length").unsigned(counter.samples.len() as u64);
}

fn has_operations(counter: &Counter) -> bool {
    let mut samples = counter.samples.iter();
    samples.any(|sample| sample.operations.is_some())
}

impl<'a> Display<'a> {
    /// Returns how a counter is shown: what the viewer itself derives for Gecko's counters. A
    /// category gives its name to a counter only if it has no other one.
    fn of(counter: &'a Counter, is_only_one: bool) -> Self {
        let name = counter.name.as_str();
        let or_name = |label| if is_only_one { label } else { name };
        let plain = Self {
            graph_type: "line-rate",
            unit: "",
            color: "grey",
            marker_location: None,
            sort_weight: 50,
            label: name,
            tooltip_rows: json!([value("count", "number", name)]),
        };
        match counter.category.as_str() {
            "Bandwidth" => Self {
                unit: "bytes",
                color: "blue",
                sort_weight: 10,
                label: or_name("Bandwidth"),
                tooltip_rows: rows(BANDWIDTH_ROWS),
                ..plain
            },
            "Memory" => Self {
                graph_type: "line-accumulated",
                unit: "bytes",
                color: "orange",
                marker_location: Some("timeline-memory"),
                sort_weight: 20,
                label: or_name("Memory"),
                tooltip_rows: rows(MEMORY_ROWS),
            },
            "power" => Self {
                unit: "pWh",
                sort_weight: 30,
                tooltip_rows: rows(POWER_ROWS),
                ..plain
            },
            _ if counter.is_process_cpu() => Self {
                unit: "percent",
                sort_weight: 40,
                label: PROCESS_CPU_NAME,
                tooltip_rows: rows(CPU_ROWS),
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
        let (graph_type, source, label) = match graph.is_level {
            true => (
                "line-accumulated",
                "accumulated",
                "above the lowest value in this range",
            ),
            false => ("line-rate", "count", "since the previous sample"),
        };
        let mut rows = vec![value(source, format, label)];
        if has_operations(counter) {
            let label = "operations since the previous sample";
            rows.push(value("sample-number", "number", label));
        }
        Self {
            graph_type,
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
        json.key("markerSchemaLocation")
            .or_null(self.marker_location, JsonWriter::string);
        json.key("sortWeight").unsigned(self.sort_weight);
        json.key("label").string(self.label);
        json.key("tooltipRows")
            .splice(self.tooltip_rows.to_string());
    }
}

/// Returns a row of a tooltip.
fn value(source: &str, unit: &str, label: &str) -> Value {
    json!({"type": "value", "source": source, "format": {"unit": unit}, "label": label})
}

/// The tooltip of Gecko's counter of the network. The viewer translates a label with a key.
const BANDWIDTH_ROWS: &str = r#"[
    {"type": "value", "source": "rate", "format": {"unit": "bytes-per-second", "co2": "per-byte"},
     "labelKey": "bandwidth-speed", "label": "Transfer speed for this sample"},
    {"type": "value", "source": "sample-number", "format": {"unit": "number"},
     "labelKey": "bandwidth-operations",
     "label": "read/write operations since the previous sample"},
    {"type": "separator"},
    {"type": "value", "source": "accumulated", "format": {"unit": "bytes", "co2": "per-byte"},
     "labelKey": "bandwidth-cumulative", "label": "Data transferred up to this time"},
    {"type": "value", "source": "count-range", "format": {"unit": "bytes", "co2": "per-byte"},
     "labelKey": "bandwidth-total-graph", "label": "Data transferred in the visible range"},
    {"type": "value", "source": "selection-total", "format": {"unit": "bytes", "co2": "per-byte"},
     "labelKey": "bandwidth-total-selection",
     "label": "Data transferred in the current selection", "requiresPreviewSelection": true}]"#;

const MEMORY_ROWS: &str = r#"[
    {"type": "value", "source": "accumulated", "format": {"unit": "bytes"},
     "labelKey": "memory-relative", "label": "relative memory at this time"},
    {"type": "value", "source": "count-range", "format": {"unit": "bytes"},
     "labelKey": "memory-range", "label": "memory range in graph"},
    {"type": "value", "source": "sample-number", "format": {"unit": "number"},
     "labelKey": "memory-operations",
     "label": "allocations and deallocations since the previous sample"}]"#;

const POWER_ROWS: &str = r#"[
    {"type": "value", "source": "count",
     "format": {"unit": "number", "co2": "per-watthour", "scale": "power"},
     "labelKey": "power", "label": "Power"},
    {"type": "value", "source": "selection-total",
     "format": {"unit": "number", "co2": "per-watthour", "scale": "energy"},
     "labelKey": "power-energy-preview", "label": "Energy used in the current selection",
     "requiresPreviewSelection": true},
    {"type": "value", "source": "selection-rate",
     "format": {"unit": "number", "co2": "per-watthour", "scale": "power"},
     "labelKey": "power-average-preview", "label": "Average power in the current selection",
     "requiresPreviewSelection": true},
    {"type": "value", "source": "committed-range-total",
     "format": {"unit": "number", "co2": "per-watthour", "scale": "energy"},
     "labelKey": "power-energy-range", "label": "Energy used in the visible range"}]"#;

const CPU_ROWS: &str = r#"[{"type": "value", "source": "cpu-ratio", "format": {"unit": "percent"},
     "labelKey": "cpu", "label": "CPU"}]"#;

/// Returns rows that are written as JSON here.
fn rows(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or_default()
}
