//! Metrics that record their changes as markers, in the style of Mozilla's telemetry.

use gekkota::gecko_profiler;

use std::collections::HashMap;
use std::fmt::Display;
use std::marker::PhantomData;
use std::time::Duration;

use gecko_profiler::gecko_profiler_category;
use gecko_profiler::{MarkerOptions, MarkerTiming, ProfilingCategoryPair};

#[allow(non_upper_case_globals, reason = "Mozilla's name")]
pub(crate) const TelemetryProfilerCategory: ProfilingCategoryPair =
    ProfilingCategoryPair::Telemetry(None);

#[derive(serde::Serialize, serde::Deserialize, Debug, Clone, Copy, PartialEq)]
pub(crate) enum MetricId {
    Metric(u32),
    Labeled { id: u32, label: u16 },
}

impl MetricId {
    fn canonical_name(&self) -> Result<&'static str, String> {
        match self {
            MetricId::Metric(7) => Ok("page.loads"),
            MetricId::Labeled { id: 7, label: 1 } => Ok("page.loads/first"),
            other => Err(format!("no metric {:?}", other)),
        }
    }
}

fn name_of(id: &MetricId) -> String {
    id.canonical_name()
        .map_or_else(|error| error, str::to_string)
}

#[derive(serde::Serialize, serde::Deserialize, Debug)]
struct BooleanMetricMarker {
    id: MetricId,
    val: bool,
}

impl gecko_profiler::ProfilerMarker for BooleanMetricMarker {
    fn marker_type_name() -> &'static str {
        "BooleanMetric"
    }

    fn marker_type_display() -> gecko_profiler::MarkerSchema {
        use gecko_profiler::schema::*;
        let mut schema = MarkerSchema::new(&[Location::MarkerChart, Location::MarkerTable]);
        schema.set_tooltip_label("{marker.data.id} {marker.data.val}");
        schema.set_table_label("{marker.name}: {marker.data.val}");
        schema.add_key_label_format_searchable(
            "id",
            "Metric",
            Format::UniqueString,
            Searchable::Searchable,
        );
        schema.add_key_label_format("val", "Value", Format::String);
        schema
    }

    fn stream_json_marker_data(&self, json_writer: &mut gecko_profiler::JSONWriter) {
        json_writer.unique_string_property("id", &name_of(&self.id));
        json_writer.bool_property("val", self.val);
    }
}

#[derive(serde::Serialize, serde::Deserialize, Debug)]
struct EventMetricMarker {
    id: MetricId,
    extra: HashMap<String, String>,
}

impl gecko_profiler::ProfilerMarker for EventMetricMarker {
    fn marker_type_name() -> &'static str {
        "EventMetric"
    }

    fn marker_type_display() -> gecko_profiler::MarkerSchema {
        use gecko_profiler::schema::*;
        let mut schema = MarkerSchema::new(&[Location::MarkerChart, Location::MarkerTable]);
        schema.set_all_labels("{marker.name} - {marker.data.extra}");
        schema.add_key_format_searchable("id", Format::UniqueString, Searchable::NotSearchable);
        schema.add_key_label_format("extra", "Extra", Format::String);
        schema
    }

    fn stream_json_marker_data(&self, json_writer: &mut gecko_profiler::JSONWriter) {
        json_writer.unique_string_property("id", name_of(&self.id).as_str());
        if !self.extra.is_empty() {
            let mut pairs: Vec<_> = self
                .extra
                .iter()
                .map(|(k, v)| format!(r#""{}": "{}""#, k, v))
                .collect();
            pairs.sort();
            json_writer.string_property("extra", &pairs.join(","));
        }
    }
}

/// A value whose form differs between metrics.
#[derive(serde::Serialize, serde::Deserialize, Debug)]
enum TimingPayload {
    Duration(Duration),
    Sample(i64),
    Samples(Vec<i64>),
    Nothing,
}

#[derive(serde::Serialize, serde::Deserialize, Debug)]
struct TimingMetricMarker {
    id: MetricId,
    timer_id: Option<u64>,
    value: Option<TimingPayload>,
}

impl TimingMetricMarker {
    fn new(
        id: MetricId,
        timer_id: Option<u64>,
        value: Option<TimingPayload>,
    ) -> TimingMetricMarker {
        TimingMetricMarker {
            id,
            timer_id,
            value,
        }
    }
}

impl gecko_profiler::ProfilerMarker for TimingMetricMarker {
    fn marker_type_name() -> &'static str {
        "TimingMetric"
    }

    fn marker_type_display() -> gecko_profiler::MarkerSchema {
        use gecko_profiler::schema::*;
        let mut schema = MarkerSchema::new(&[Location::MarkerTable]);
        schema.set_chart_label("{marker.data.id}");
        schema.add_key_format("duration", Format::Duration);
        schema.add_key_format("sample", Format::Integer);
        schema
    }

    fn stream_json_marker_data(&self, json_writer: &mut gecko_profiler::JSONWriter) {
        json_writer.unique_string_property("id", &name_of(&self.id));
        match self.timer_id {
            Some(timer_id) => json_writer.int_property("timer_id", timer_id as i64),
            None => json_writer.null_property("timer_id"),
        }
        match &self.value {
            Some(TimingPayload::Duration(d)) => {
                json_writer.float_property("duration", d.as_secs_f64() * 1e3)
            }
            Some(TimingPayload::Sample(s)) => json_writer.int_property("sample", *s),
            Some(TimingPayload::Samples(s)) => {
                json_writer.string_property("samples", &format!("{:?}", s))
            }
            Some(TimingPayload::Nothing) | None => {}
        };
    }
}

#[derive(serde::Serialize, serde::Deserialize, Debug)]
pub(crate) enum DistributionValues<T> {
    Sample(T),
    Samples(Vec<T>),
}

/// A marker of the metric `T`. It uses only the name of `T`.
#[derive(serde::Serialize, serde::Deserialize, Debug)]
pub(crate) struct DistributionMetricMarker<T, V> {
    id: MetricId,
    label: Option<String>,
    value: DistributionValues<V>,
    metric: PhantomData<T>,
}

impl<T, V> DistributionMetricMarker<T, V> {
    pub(crate) fn new(id: MetricId, label: Option<String>, value: DistributionValues<V>) -> Self {
        DistributionMetricMarker {
            id,
            label,
            value,
            metric: PhantomData,
        }
    }
}

pub(crate) trait Metric {
    const KIND: &'static str;
}

pub(crate) struct MemoryMetric;

impl Metric for MemoryMetric {
    const KIND: &'static str = "memory";
}

impl<T, V> gecko_profiler::ProfilerMarker for DistributionMetricMarker<T, V>
where
    T: Metric,
    V: serde::Serialize + serde::de::DeserializeOwned + Copy + Display,
{
    fn marker_type_name() -> &'static str {
        "DistMetric"
    }

    fn marker_type_display() -> gecko_profiler::MarkerSchema {
        use gecko_profiler::schema::*;
        let mut schema = MarkerSchema::new(&[Location::MarkerChart, Location::MarkerTable]);
        schema.add_key_label_format_searchable(
            "label",
            "Label",
            Format::UniqueString,
            Searchable::Searchable,
        );
        schema.add_key_label_format("samples", "Samples", Format::String);
        schema
    }

    fn stream_json_marker_data(&self, json_writer: &mut gecko_profiler::JSONWriter) {
        json_writer.string_property("kind", T::KIND);
        json_writer.unique_string_property("id", &name_of(&self.id));
        if let Some(l) = &self.label {
            json_writer.unique_string_property("label", &l);
        };
        let text = match &self.value {
            DistributionValues::Sample(s) => format!("{}", s),
            DistributionValues::Samples(s) => s
                .iter()
                .map(|v| v.to_string())
                .collect::<Vec<_>>()
                .join(","),
        };
        json_writer.string_property("samples", text.as_str());
    }
}

/// A marker of an earlier session only, so that a later session has no schema for it.
#[derive(serde::Serialize, serde::Deserialize, Debug)]
struct EarlierMarker;

impl gecko_profiler::ProfilerMarker for EarlierMarker {
    fn marker_type_name() -> &'static str {
        "Earlier"
    }
    fn marker_type_display() -> gecko_profiler::MarkerSchema {
        gecko_profiler::MarkerSchema::new(&[])
    }
    fn stream_json_marker_data(&self, _json_writer: &mut gecko_profiler::JSONWriter) {}
}

pub(crate) fn record_earlier() {
    gecko_profiler::lazy_add_marker!("Earlier", EarlierMarker);
}

pub(crate) fn record(evaluated: &mut u32) {
    let id = MetricId::Metric(7);
    if gecko_profiler::can_accept_markers() {
        gecko_profiler::add_marker(
            "Boolean::set",
            TelemetryProfilerCategory,
            Default::default(),
            BooleanMetricMarker { id, val: true },
        );
    }
    gecko_profiler::lazy_add_marker!("Event::record", TelemetryProfilerCategory, {
        *evaluated += 1;
        EventMetricMarker {
            id,
            extra: [("b", "2"), ("a", "1")]
                .map(|(k, v)| (k.to_string(), v.to_string()))
                .into_iter()
                .collect(),
        }
    });
    gecko_profiler::lazy_add_marker!(
        "Event::record_nothing",
        EventMetricMarker {
            id,
            extra: HashMap::new()
        }
    );
    gecko_profiler::lazy_add_marker!(
        "TimingDistribution::start",
        gecko_profiler_category!(Telemetry),
        MarkerOptions::default().with_timing(MarkerTiming::instant_now()),
        TimingMetricMarker::new(id, Some(5), None)
    );
    let values = [
        TimingPayload::Duration(Duration::from_micros(1500)),
        TimingPayload::Sample(-3),
        TimingPayload::Samples(vec![1, 2]),
        TimingPayload::Nothing,
    ];
    for value in values {
        gecko_profiler::add_marker(
            "TimingDistribution::stop",
            gecko_profiler::gecko_profiler_category!(Telemetry, Other),
            Default::default(),
            TimingMetricMarker::new(MetricId::Metric(8), None, Some(value)),
        );
    }
    gecko_profiler::lazy_add_marker!(
        "MemoryDistribution::accumulate",
        TelemetryProfilerCategory,
        DistributionMetricMarker::<MemoryMetric, u64>::new(
            MetricId::Labeled { id: 7, label: 1 },
            Some("first".into()),
            DistributionValues::Samples(vec![u64::MAX, 0])
        )
    );
    gecko_profiler::add_marker(
        "CustomDistribution::accumulate",
        TelemetryProfilerCategory,
        Default::default(),
        DistributionMetricMarker::<MemoryMetric, f64>::new(
            id,
            None,
            DistributionValues::Sample(0.5),
        ),
    );
}
