//! What tells the viewer where and how to show a type of markers.

#[cfg(has_profiler)]
use crate::json::JsonWriter;
use crate::markers::schema_words::{Format, GraphColor, GraphType, Location};

/// Whether the viewer finds a field by a search. It finds all fields by now, whatever is said.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Searchable {
    /// No.
    NotSearchable,
    /// Yes.
    Searchable,
}

/// What else is said of a field.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum PayloadFlags {
    /// Nothing.
    #[default]
    None,
    /// It is for labels alone, and has no row of its own.
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

/// A field's format: a word, or a table with these columns.
#[derive(Clone, PartialEq, Debug)]
enum FieldFormat {
    Word(Format),
    Table(Vec<(String, Option<Format>)>),
}

#[derive(Clone, PartialEq, Debug)]
struct Graph {
    key: String,
    kind: GraphType,
    color: Option<GraphColor>,
}

/// Where and how the viewer shows markers of a type: places, labels, and a row of the tooltip for each field.
///
/// Labels are templates: `{marker.name}`, `{marker.category}`, `{marker.start}`, `{marker.end}`, `{marker.duration}`, and
/// `{marker.data.KEY}` for a field, or `{marker.data.KEY ? 'if it is so' : 'else'}`. Made by
/// [`ProfilerMarker::marker_type_display`](crate::ProfilerMarker::marker_type_display), once for each profile that has such
/// markers. Idea: Gecko's `MarkerSchema`.
#[derive(Clone, PartialEq, Debug)]
pub struct MarkerSchema {
    /// `None` for types that the viewer knows by itself.
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

    /// Of markers that are shown in these places.
    pub fn new(locations: &[Location]) -> Self {
        Self::with_locations(Some(locations.to_vec()))
    }

    /// Of markers that the viewer knows by their type's name. Nothing else is to be said of them.
    pub fn new_with_special_frontend_location() -> Self {
        Self::with_locations(None)
    }

    /// What stands on the marker's bar in the chart, in the row of its name; nothing unless it is said.
    pub fn set_chart_label(&mut self, label: &str) -> &mut Self {
        self.chart_label = Some(label.to_owned());
        self
    }

    /// What stands above the tooltip; the marker's name unless it is said.
    pub fn set_tooltip_label(&mut self, label: &str) -> &mut Self {
        self.tooltip_label = Some(label.to_owned());
        self
    }

    /// What stands in the marker table behind the marker's name; nothing unless it is said. A `{marker.name} - ` that it begins
    /// with is left out.
    pub fn set_table_label(&mut self, label: &str) -> &mut Self {
        self.table_label = Some(label.to_owned());
        self
    }

    /// All three at once.
    pub fn set_all_labels(&mut self, label: &str) -> &mut Self {
        self.set_chart_label(label)
            .set_tooltip_label(label)
            .set_table_label(label)
    }

    /// That markers of one name on a thread lie in one another as calls do, so that the chart draws them so.
    pub fn set_stack_based(&mut self) -> &mut Self {
        self.is_stack_based = true;
        self
    }

    /// Which field names a colour of [`GraphColor`], in which the chart draws the marker.
    #[doc(alias = "colorField")]
    pub fn set_color_field(&mut self, key: &str) -> &mut Self {
        self.color_field = Some(key.to_owned());
        self
    }

    /// A field, by the name under which it is streamed.
    pub fn add_key_format(&mut self, key: &str, format: Format) -> &mut Self {
        self.add_key_format_with_flags(key, format, PayloadFlags::None)
    }

    /// A field with a label.
    pub fn add_key_label_format(&mut self, key: &str, label: &str, format: Format) -> &mut Self {
        self.add_key_label_format_with_flags(key, label, format, PayloadFlags::None)
    }

    /// The same as [`Self::add_key_format`]: see [`Searchable`].
    pub fn add_key_format_searchable(
        &mut self,
        key: &str,
        format: Format,
        _: Searchable,
    ) -> &mut Self {
        self.add_key_format(key, format)
    }

    /// The same as [`Self::add_key_label_format`]: see [`Searchable`].
    pub fn add_key_label_format_searchable(
        &mut self,
        key: &str,
        label: &str,
        format: Format,
        _: Searchable,
    ) -> &mut Self {
        self.add_key_label_format(key, label, format)
    }

    /// A field of which more is said.
    pub fn add_key_format_with_flags(
        &mut self,
        key: &str,
        format: Format,
        flags: PayloadFlags,
    ) -> &mut Self {
        self.add_field(key, None, FieldFormat::Word(format), flags)
    }

    /// A field with a label of which more is said.
    pub fn add_key_label_format_with_flags(
        &mut self,
        key: &str,
        label: &str,
        format: Format,
        flags: PayloadFlags,
    ) -> &mut Self {
        self.add_field(key, Some(label), FieldFormat::Word(format), flags)
    }

    /// A field that is an array of arrays, shown as a table: each column with its label, and a format if it is no string. With
    /// a row that has not as many elements as there are columns, the viewer shows nothing of the profile.
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

    /// A row that is the same for all markers of the type. The viewer shows one of a type, the first with the label
    /// “Description” or else the first, and calls it so.
    pub fn add_static_label_value(&mut self, label: &str, value: &str) -> &mut Self {
        self.rows.push(Row::Static {
            label: label.to_owned(),
            value: value.to_owned(),
        });
        self
    }

    /// A graph of a field, a number, in a track for each thread and name of such markers; a second one is drawn over the first.
    /// Markers without one of these fields are not in it.
    pub fn add_chart(&mut self, key: &str, graph: GraphType) -> &mut Self {
        self.graphs.push(Graph {
            key: key.to_owned(),
            kind: graph,
            color: None,
        });
        self
    }

    /// The same in this colour.
    pub fn add_chart_color(&mut self, key: &str, graph: GraphType, color: GraphColor) -> &mut Self {
        self.graphs.push(Graph {
            key: key.to_owned(),
            kind: graph,
            color: Some(color),
        });
        self
    }
}

#[cfg(has_profiler)]
impl MarkerSchema {
    /// Another type of the same name: what it has that this has not comes to it, so that the viewer shows the fields of both.
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

    /// Whether there is such a field.
    pub(crate) fn has_field(&self, wanted: &str) -> bool {
        self.rows
            .iter()
            .any(|row| matches!(row, Row::Field { key, .. } if key == wanted))
    }

    /// Writes it as an element of `meta.markerSchema`; nothing where the viewer knows the type by itself.
    pub(crate) fn write(&self, json: &mut JsonWriter<'_>, name: &str) {
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
            json.key("display")
                .array(|json| locations.iter().for_each(|place| json.string(place.word())));
            json.key("data")
                .array(|json| self.rows.iter().for_each(|row| write_row(json, row)));
            if !self.graphs.is_empty() {
                json.key("graphs").array(|json| {
                    for graph in &self.graphs {
                        json.object(|json| {
                            json.key("key").string(data_key(&graph.key));
                            json.key("type").string(graph.kind.word());
                            if let Some(color) = graph.color {
                                json.key("color").string(color.word());
                            }
                        });
                    }
                });
            }
        });
    }
}

#[cfg(has_profiler)]
fn write_row(json: &mut JsonWriter<'_>, row: &Row) {
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
                FieldFormat::Word(format) => json.key("format").string(format.word()),
                FieldFormat::Table(columns) => json.key("format").object(|json| {
                    json.key("type").string("table");
                    json.key("columns").array(|json| {
                        for (label, format) in columns {
                            json.object(|json| {
                                json.key("label").string(label);
                                if let Some(format) = format {
                                    json.key("type").string(format.word());
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

/// A field's name in the profile. These are the viewer's own: a field of the host's of that name would break the marker, or the
/// file.
#[cfg(has_profiler)]
pub(super) fn data_key(key: &str) -> &str {
    match key {
        "type" => "type_",
        "stack" => "stack_",
        "cause" => "cause_",
        key => key,
    }
}
