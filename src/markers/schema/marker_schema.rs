//! The schema of a marker type, which defines where and how the viewer shows its markers.

use crate::markers::schema::schema_keywords::{Format, GraphType, Location};
use crate::types::GraphColor;

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
        locations.extend(
            others
                .into_iter()
                .filter(|location| !locations.contains(location))
                .collect::<Vec<_>>(),
        );
        let is_new = |row: &Row| match row {
            Row::Field { key, .. } => !self
                .rows
                .iter()
                .any(|known| matches!(known, Row::Field { key: known, .. } if known == key)),
            Row::Static { .. } => !self.rows.contains(row),
        };
        let new: Vec<Row> = other.rows.into_iter().filter(is_new).collect();
        self.rows.extend(new);
        let new: Vec<Graph> = other
            .graphs
            .into_iter()
            .filter(|graph| !self.graphs.iter().any(|known| known.key == graph.key))
            .collect();
        self.graphs.extend(new);
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
