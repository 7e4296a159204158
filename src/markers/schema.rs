//! The schema of a marker type, which defines where and how the viewer shows its markers, with the
//! viewer's keywords, and with the types that the viewer shows by fixed fields instead.

pub use crate::types::GraphColor;

/// Whether the viewer's search covers a field. Current viewers search all fields, so gekkota
/// ignores this.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Searchable {
    /// The search skips the field.
    NotSearchable,
    /// The search covers the field.
    Searchable,
}

/// Further properties of a field.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum PayloadFlags {
    /// No further properties.
    #[default]
    None,
    /// The field is only for labels, and has no row of its own.
    Hidden,
}

/// A row of a marker's tooltip.
#[derive(Clone, PartialEq, Debug)]
enum Row {
    Field {
        key: String,
        label: Option<String>,
        format: FieldFormat,
        hidden: bool,
    },
    Static {
        label: String,
        value: String,
    },
}

/// The format of a field: a keyword, or a table with these columns.
#[derive(Clone, PartialEq, Debug)]
enum FieldFormat {
    Keyword(Format),
    Table(Vec<(String, Option<Format>)>),
}

#[derive(Clone, PartialEq, Debug)]
struct Graph {
    key: String,
    kind: GraphType,
    color: Option<GraphColor>,
}

/// Where and how the viewer shows markers of a type: locations, labels, and a row of the tooltip
/// for each field.
///
/// Labels are templates: `{marker.name}`, `{marker.category}`, `{marker.start}`, `{marker.end}`,
/// `{marker.duration}`, and `{marker.data.KEY}` for a field. Templates may have a condition:
/// `{marker.data.KEY ? 'text if set' : 'text otherwise'}`.
///
/// [`ProfilerMarker::marker_type_display`](crate::ProfilerMarker::marker_type_display) creates the
/// schema, once for each profile that has markers of the type. Idea: Gecko's `MarkerSchema`.
#[derive(Clone, PartialEq, Debug)]
pub struct MarkerSchema {
    /// `None` for types that are built into the viewer.
    locations: Option<Vec<Location>>,
    chart_label: Option<String>,
    tooltip_label: Option<String>,
    table_label: Option<String>,
    color_field: Option<String>,
    is_stack_based: bool,
    rows: Vec<Row>,
    graphs: Vec<Graph>,
}

impl MarkerSchema {
    const fn with_locations(locations: Option<Vec<Location>>) -> Self {
        Self {
            locations,
            chart_label: None,
            tooltip_label: None,
            table_label: None,
            color_field: None,
            is_stack_based: false,
            rows: Vec::new(),
            graphs: Vec::new(),
        }
    }

    /// Creates a schema for markers that are shown at these locations.
    pub fn new(locations: &[Location]) -> Self {
        Self::with_locations(Some(locations.to_vec()))
    }

    /// Creates a schema for markers that the viewer recognizes by the name of their type. Such a
    /// schema has no other properties.
    pub fn new_with_special_frontend_location() -> Self {
        Self::with_locations(None)
    }

    /// Sets the label on the marker's bar in the marker chart; empty by default. The chart shows
    /// the marker's name for the whole row.
    pub fn set_chart_label(&mut self, label: &str) -> &mut Self {
        self.chart_label = Some(label.to_owned());
        self
    }

    /// Sets the heading of the tooltip; the marker's name by default.
    pub fn set_tooltip_label(&mut self, label: &str) -> &mut Self {
        self.tooltip_label = Some(label.to_owned());
        self
    }

    /// Sets the label behind the marker's name in the marker table; empty by default. The table
    /// omits `{marker.name} - ` at the start of the label.
    pub fn set_table_label(&mut self, label: &str) -> &mut Self {
        self.table_label = Some(label.to_owned());
        self
    }

    /// Sets the labels of chart, tooltip and table.
    pub fn set_all_labels(&mut self, label: &str) -> &mut Self {
        self.set_chart_label(label)
            .set_tooltip_label(label)
            .set_table_label(label)
    }

    /// Declares that markers of one name on a thread nest as calls do, so that the chart nests
    /// them.
    pub fn set_stack_based(&mut self) -> &mut Self {
        self.is_stack_based = true;
        self
    }

    /// Sets the field that names the [`GraphColor`] in which the chart draws the marker.
    #[doc(alias = "colorField")]
    pub fn set_color_field(&mut self, key: &str) -> &mut Self {
        self.color_field = Some(key.to_owned());
        self
    }

    /// Adds a field; `key` is the name under which the payload writes it.
    pub fn add_key_format(&mut self, key: &str, format: Format) -> &mut Self {
        self.add_key_format_with_flags(key, format, PayloadFlags::None)
    }

    /// Adds a field with a label.
    pub fn add_key_label_format(&mut self, key: &str, label: &str, format: Format) -> &mut Self {
        self.add_key_label_format_with_flags(key, label, format, PayloadFlags::None)
    }

    /// Adds a field, like [`Self::add_key_format`]; [`Searchable`] is ignored.
    pub fn add_key_format_searchable(
        &mut self,
        key: &str,
        format: Format,
        _: Searchable,
    ) -> &mut Self {
        self.add_key_format(key, format)
    }

    /// Adds a field with a label, like [`Self::add_key_label_format`]; [`Searchable`] is ignored.
    pub fn add_key_label_format_searchable(
        &mut self,
        key: &str,
        label: &str,
        format: Format,
        _: Searchable,
    ) -> &mut Self {
        self.add_key_label_format(key, label, format)
    }

    /// Adds a field with flags.
    pub fn add_key_format_with_flags(
        &mut self,
        key: &str,
        format: Format,
        flags: PayloadFlags,
    ) -> &mut Self {
        self.add_field(key, None, FieldFormat::Keyword(format), flags)
    }

    /// Adds a field with a label and flags.
    pub fn add_key_label_format_with_flags(
        &mut self,
        key: &str,
        label: &str,
        format: Format,
        flags: PayloadFlags,
    ) -> &mut Self {
        self.add_field(key, Some(label), FieldFormat::Keyword(format), flags)
    }

    /// Adds a field that is an array of arrays, shown as a table.
    ///
    /// Each column has a label, and a format unless it is a string. Every row must have one element
    /// for each column, otherwise the viewer fails to load the profile.
    pub fn add_key_label_table(
        &mut self,
        key: &str,
        label: &str,
        columns: &[(&str, Option<Format>)],
    ) -> &mut Self {
        let columns = columns
            .iter()
            .map(|&(label, format)| (label.to_owned(), format))
            .collect();
        self.add_field(
            key,
            Some(label),
            FieldFormat::Table(columns),
            PayloadFlags::None,
        )
    }

    fn add_field(
        &mut self,
        key: &str,
        label: Option<&str>,
        format: FieldFormat,
        flags: PayloadFlags,
    ) -> &mut Self {
        let (key, label) = (key.to_owned(), label.map(str::to_owned));
        self.rows.push(Row::Field {
            key,
            label,
            format,
            hidden: flags == PayloadFlags::Hidden,
        });
        self
    }

    /// Adds a row with a value that is the same for all markers of the type.
    ///
    /// The viewer shows only one such row of a type, with the label “Description”: the one that has
    /// this label, or else the first.
    pub fn add_static_label_value(&mut self, label: &str, value: &str) -> &mut Self {
        self.rows.push(Row::Static {
            label: label.to_owned(),
            value: value.to_owned(),
        });
        self
    }

    /// Adds a graph of a numeric field, in a track for each combination of thread and marker name.
    ///
    /// A second graph is drawn on top of the first. The graphs omit a marker that lacks one of
    /// their fields.
    pub fn add_chart(&mut self, key: &str, graph: GraphType) -> &mut Self {
        self.add_graph(key, graph, None)
    }

    /// Adds a graph, like [`Self::add_chart`], in this color.
    pub fn add_chart_color(&mut self, key: &str, graph: GraphType, color: GraphColor) -> &mut Self {
        self.add_graph(key, graph, Some(color))
    }

    fn add_graph(&mut self, key: &str, kind: GraphType, color: Option<GraphColor>) -> &mut Self {
        let key = key.to_owned();
        self.graphs.push(Graph { key, kind, color });
        self
    }
}

impl MarkerSchema {
    /// Adds the locations, rows, graphs and labels that this schema lacks from `other`, the schema
    /// of another type with the same name. So the viewer shows the fields of both types.
    pub(crate) fn merge(&mut self, other: Self) {
        let (Some(locations), Some(others)) = (&mut self.locations, other.locations) else {
            return;
        };
        add_missing(locations, others, PartialEq::eq);
        add_missing(&mut self.rows, other.rows, |one, other| {
            match (one, other) {
                (Row::Field { key: one, .. }, Row::Field { key: other, .. }) => one == other,
                _ => one == other,
            }
        });
        add_missing(&mut self.graphs, other.graphs, |one, other| {
            one.key == other.key
        });
        self.chart_label = self.chart_label.take().or(other.chart_label);
        self.tooltip_label = self.tooltip_label.take().or(other.tooltip_label);
        self.table_label = self.table_label.take().or(other.table_label);
        self.color_field = self.color_field.take().or(other.color_field);
    }

    /// Returns whether the schema has this field.
    pub(crate) fn has_field(&self, wanted: &str) -> bool {
        self.rows
            .iter()
            .any(|row| matches!(row, Row::Field { key, .. } if key == wanted))
    }
}

/// Adds those of `others` that are like none of `known`.
fn add_missing<T>(known: &mut Vec<T>, others: Vec<T>, is_like: impl Fn(&T, &T) -> bool) {
    let count = known.len();
    for other in others {
        if !known[..count].iter().any(|known| is_like(known, &other)) {
            known.push(other);
        }
    }
}

#[cfg(has_profiler)]
impl MarkerSchema {
    /// Writes the schema as an element of `meta.markerSchema`; nothing if the type is built into
    /// the viewer.
    pub(crate) fn write(&self, json: &mut crate::json::JsonWriter<'_>, name: &str) {
        let Some(locations) = &self.locations else {
            return;
        };
        json.object(|json| {
            json.key("name").string(name);
            let labels = [
                ("chartLabel", &self.chart_label),
                ("tooltipLabel", &self.tooltip_label),
                ("tableLabel", &self.table_label),
                ("colorField", &self.color_field),
            ];
            for (key, label) in labels {
                if let Some(label) = label {
                    json.key(key).string(label);
                }
            }
            if self.is_stack_based {
                json.key("isStackBased").bool(true);
            }
            json.key("display").array(|json| {
                locations
                    .iter()
                    .for_each(|location| json.string(location.keyword()))
            });
            json.key("data")
                .array(|json| self.rows.iter().for_each(|row| Self::write_row(json, row)));
            if !self.graphs.is_empty() {
                json.key("graphs").array(|json| {
                    for graph in &self.graphs {
                        json.object(|json| {
                            json.key("key").string(data_key(&graph.key));
                            json.key("type").string(graph.kind.keyword());
                            if let Some(color) = graph.color {
                                json.key("color").string(color.keyword());
                            }
                        });
                    }
                });
            }
        });
    }

    fn write_row(json: &mut crate::json::JsonWriter<'_>, row: &Row) {
        json.object(|json| match row {
            Row::Field {
                key,
                label,
                format,
                hidden,
            } => {
                json.key("key").string(data_key(key));
                if let Some(label) = label {
                    json.key("label").string(label);
                }
                match format {
                    FieldFormat::Keyword(format) => json.key("format").string(format.keyword()),
                    FieldFormat::Table(columns) => json.key("format").object(|json| {
                        json.key("type").string("table");
                        json.key("columns").array(|json| {
                            for (label, format) in columns {
                                json.object(|json| {
                                    json.key("label").string(label);
                                    if let Some(format) = format {
                                        json.key("type").string(format.keyword());
                                    }
                                });
                            }
                        });
                    }),
                }
                if *hidden {
                    json.key("hidden").bool(true);
                }
            }
            Row::Static { label, value } => {
                json.key("label").string(label);
                json.key("value").string(value);
            }
        });
    }
}

/// Returns the name of a field in the profile. The viewer reserves these three names: a field of
/// the application with such a name would damage the marker or the whole profile.
pub(crate) fn data_key(key: &str) -> &str {
    match key {
        "type" => "type_",
        "stack" => "stack_",
        "cause" => "cause_",
        key => key,
    }
}

/// Types that the viewer shows by fixed fields instead of a schema. For each: the name, the
/// required fields, and the replacement name for an application's type that has the viewer's name
/// but lacks a required field.
pub(crate) const WITH_REQUIRED_FIELDS: &[(&str, &[&str], &str)] = &[
    ("GCMajor", &["timings"], "GCMajor_"),
    ("GCSlice", &["timings"], "GCSlice_"),
    (
        "IPC",
        &[
            "startTime",
            "endTime",
            "otherPid",
            "messageType",
            "messageSeqno",
            "direction",
            "phase",
        ],
        "IPC_",
    ),
    (
        "Network",
        &["id", "status", "URI", "startTime", "endTime"],
        "Network_",
    ),
];

/// Returns the name of a type of the application in the profile.
pub(crate) fn name_for_fields(name: &'static str, schema: &MarkerSchema) -> &'static str {
    match WITH_REQUIRED_FIELDS
        .iter()
        .find(|(known, ..)| *known == name)
    {
        Some((_, fields, other_name)) if !fields.iter().all(|field| schema.has_field(field)) => {
            other_name
        }
        _ => name,
    }
}

macro_rules! keywords {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $keyword:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$doc])* $variant,)+
        }

        impl $name {
            /// Returns the viewer's keyword.
            pub(crate) const fn keyword(self) -> &'static str {
                match self {
                    $(Self::$variant => $keyword,)+
                }
            }

            #[cfg(test)]
            const ALL: &[Self] = &[$(Self::$variant,)+];
        }
    };
}

keywords! {
    /// A part of the viewer that shows markers of a type.
    Location {
        /// The marker chart, with a row for each name.
        MarkerChart = "marker-chart",
        /// The marker table.
        MarkerTable = "marker-table",
        /// The main thread's track.
        TimelineOverview = "timeline-overview",
        /// The memory track, or the main thread's track if the process has no memory track.
        TimelineMemory = "timeline-memory",
        /// A track for each thread with such markers.
        TimelineIPC = "timeline-ipc",
        /// The main thread's track, in a row of its own.
        TimelineFileIO = "timeline-fileio",
        /// A track for each thread with such markers. It shows only markers of the type
        /// [`NetworkMarker`](crate::marker::built_in::NetworkMarker).
        TimelineNetwork = "timeline-network",
        /// The stack chart. Current viewers do not draw these markers.
        StackChart = "stack-chart",
    }
}

keywords! {
    /// How the viewer shows a field, and the field's unit.
    Format {
        /// A URL.
        Url = "url",
        /// The path of a file.
        FilePath = "file-path",
        /// A string that the viewer removes when the user shares a profile without private data.
        SanitizedString = "sanitized-string",
        /// A string.
        String = "string",
        /// A string in the thread's string table, as
        /// [`JSONWriter::unique_string_property`](crate::schema::JSONWriter::unique_string_property)
        /// writes it.
        UniqueString = "unique-string",
        /// Milliseconds, shown in a suitable unit.
        Duration = "duration",
        /// Milliseconds since the process started, as
        /// [`JSONWriter::time_property`](crate::schema::JSONWriter::time_property) writes it. The
        /// viewer shows the value as it is, whereas it shows the marker's own times relative to the
        /// start of the profile.
        Time = "time",
        /// Milliseconds, shown as seconds.
        Seconds = "seconds",
        /// Milliseconds.
        Milliseconds = "milliseconds",
        /// Microseconds.
        Microseconds = "microseconds",
        /// Nanoseconds.
        Nanoseconds = "nanoseconds",
        /// Bytes.
        Bytes = "bytes",
        /// A number from 0 to 1.
        Percentage = "percentage",
        /// An integer.
        Integer = "integer",
        /// A number.
        Decimal = "decimal",
        /// An integer, whose lowest 32 bits are shown in hexadecimal.
        Hexadecimal = "hexadecimal",
        /// A process id, as a string. Shown with the name of the process's main thread, if the
        /// profile has it.
        Pid = "pid",
        /// A thread id. Shown with the thread's name, if the profile has it.
        Tid = "tid",
        /// An array of strings or numbers. The viewer fails to load a profile in which such a field
        /// has another type.
        List = "list",
        /// A flow id, as [`JSONWriter::flow_property`](crate::schema::JSONWriter::flow_property)
        /// writes it.
        Flow = "flow-id",
        /// The id of a flow that ends with this marker.
        TerminatingFlow = "terminating-flow-id",
    }
}

keywords! {
    /// How a graph draws a field over time.
    GraphType {
        /// A line.
        Line = "line",
        /// A bar for each marker.
        Bar = "bar",
        /// A line with the area below it filled.
        LineFilled = "line-filled",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The viewer's keywords. With any other keyword, the viewer hides the item or fails to load
    /// the profile. The table format is not here, because it has no keyword.
    const FORMATS: &str = "url file-path sanitized-string string unique-string duration time seconds milliseconds \
        microseconds nanoseconds bytes percentage integer decimal hexadecimal pid tid list flow-id terminating-flow-id";
    const LOCATIONS: &str = "marker-chart marker-table timeline-overview timeline-memory timeline-ipc timeline-fileio \
        timeline-network stack-chart";

    #[test]
    fn keywords_equal_those_of_the_viewer() {
        let joined = |keywords: Vec<&str>| keywords.join(" ");
        assert_eq!(
            joined(Format::ALL.iter().map(|format| format.keyword()).collect()),
            FORMATS
        );
        assert_eq!(
            joined(
                Location::ALL
                    .iter()
                    .map(|location| location.keyword())
                    .collect()
            ),
            LOCATIONS
        );
        assert_eq!(
            joined(GraphType::ALL.iter().map(|graph| graph.keyword()).collect()),
            "line bar line-filled"
        );
        let colors = joined(
            crate::types::GraphColor::ALL
                .iter()
                .map(|color| color.keyword())
                .collect(),
        );
        assert_eq!(
            colors,
            "blue green grey ink magenta orange purple red teal yellow"
        );
    }
}
