//! Describes a type, so that another program can print its payloads: lets the type deserialize
//! made-up values, and looks where they appear in its fields.
//!
//! A field that shows something computed, rather than a value of the payload, cannot be found in
//! this way, and is left out.

use crate::buffer::EntryWriter;
use crate::markers::codec::described::described_type::{
    Constant, Form, Line, Written, encode_recipe,
};
use crate::markers::codec::described::shape::{Shape, Step, merged};
use crate::markers::codec::described::tracer::{Leaf, LeafKind, MAX_VARIANTS, Plan, Tracer};
use crate::markers::flow::FlowId;
use crate::markers::json_writer::{JSONWriter, PropertySink, PropertyValue};
use crate::markers::profiler_marker::ProfilerMarker;

/// Maximum number of traces for the choices of a type.
const MAX_TRACES: usize = 256;
/// Maximum number of recorded events of one payload.
const MAX_EVENTS: usize = 256;
/// Units that a field may show a `Duration` in, by their number in a second.
const DURATION_UNITS: [f64; 4] = [1.0, 1e3, 1e6, 1e9];

/// Returns the encoded description of a type; `None` if it cannot be traced. Runs code of the
/// application, which may panic.
pub(crate) fn describe<T: ProfilerMarker>() -> Option<Vec<u8>> {
    let usual = trace::<T>(Plan::default())?;
    // The values of the second trace differ, so that constants are found.
    let shifted = Plan {
        first: 64,
        ..Plan::default()
    };
    let shifted = trace::<T>(shifted)?;
    let without_options = trace::<T>(Plan {
        no_options: true,
        ..Plan::default()
    });
    let mut shape = usual.shape.clone();
    let mut choices = Vec::new();
    let mut traces = 0;
    for leaf in &usual.leaves {
        let LeafKind::Choice(number, variants) = leaf.kind else {
            continue;
        };
        let mut of_choice = Vec::new();
        for variant in 0..variants.min(MAX_VARIANTS) {
            traces += 1;
            let plan = Plan {
                choice: Some((number, variant)),
                ..Plan::default()
            };
            let traced = (traces <= MAX_TRACES).then(|| trace::<T>(plan)).flatten();
            if let Some(other) = &traced {
                shape = merged(shape, other.shape.clone())?;
            }
            of_choice.push(traced.map(|other| other.events));
        }
        choices.push((leaf, of_choice));
    }
    if let Some(other) = &without_options {
        shape = merged(shape, other.shape.clone())?;
    }
    let finder = Finder {
        usual: &usual,
        shifted: &shifted,
        without_options: without_options.as_ref(),
        choices: &choices,
    };
    let mut out = EntryWriter::default();
    shape.encode(&mut out);
    encode_recipe(&finder.lines(), &mut out);
    Some(out.bytes().to_vec())
}

/// One deserialization, and what its value wrote.
struct Trace {
    shape: Shape,
    leaves: Vec<Leaf>,
    events: Vec<Event>,
}

fn trace<T: ProfilerMarker>(plan: Plan) -> Option<Trace> {
    let mut tracer = Tracer::new(plan);
    let value = T::deserialize(&mut tracer).ok()?;
    let mut recorder = Recorder::default();
    value.stream_json_marker_data(&mut JSONWriter::new(&mut recorder));
    (!recorder.is_full).then_some(Trace {
        shape: tracer.shape,
        leaves: tracer.leaves,
        events: recorder.events,
    })
}

/// A call that a payload made.
#[derive(Clone, PartialEq, Debug)]
enum Event {
    Value(Option<String>, Written),
    Start(Option<String>, bool),
    End(bool),
}

/// Records the fields that a payload writes.
#[derive(Debug, Default)]
struct Recorder {
    events: Vec<Event>,
    /// Whether there were too many.
    is_full: bool,
}

impl Recorder {
    fn add(&mut self, event: Event) {
        match self.events.len() < MAX_EVENTS {
            true => self.events.push(event),
            false => self.is_full = true,
        }
    }
}

impl PropertySink for Recorder {
    fn value(&mut self, name: Option<&str>, value: PropertyValue<&str>) {
        let written = value.with_text(|text| (*text).to_owned());
        self.add(Event::Value(name.map(str::to_owned), written));
    }

    fn start(&mut self, name: Option<&str>, is_array: bool) {
        self.add(Event::Start(name.map(str::to_owned), is_array));
    }

    fn end(&mut self, is_array: bool) {
        self.add(Event::End(is_array));
    }
}

/// Finds the values of a payload in its fields.
struct Finder<'t> {
    usual: &'t Trace,
    shifted: &'t Trace,
    without_options: Option<&'t Trace>,
    /// For each choice and each of its variants, what the payload writes then.
    choices: &'t [(&'t Leaf, Vec<Option<Vec<Event>>>)],
}

impl Finder<'_> {
    fn lines(&self) -> Vec<Line> {
        let mut lines = Vec::new();
        let events = &self.usual.events;
        // For each open array or object: whether it repeats, and where its content lies.
        let mut open: Vec<bool> = Vec::new();
        // The lists that are repeated at this point, as parts of the path to each element.
        let mut repeated: Vec<Vec<Step>> = Vec::new();
        for (index, event) in events.iter().enumerate() {
            match event {
                Event::Start(name, is_array) => {
                    let content = self.content_path(index);
                    let list = content.as_ref().and_then(|path| list_in(path, &repeated));
                    let path = list.clone().or(content).unwrap_or_default();
                    lines.push(Line::Start {
                        name: name.clone(),
                        is_array: *is_array,
                        path: up_to_option(path),
                    });
                    let list = list.filter(|_| *is_array);
                    open.push(list.is_some());
                    if let Some(list) = list {
                        lines.push(Line::Each { path: list.clone() });
                        repeated.push(list);
                    }
                }
                Event::End(is_array) => {
                    if open.pop() == Some(true) {
                        lines.push(Line::EndEach);
                        repeated.pop();
                    }
                    lines.push(Line::End {
                        is_array: *is_array,
                    });
                }
                Event::Value(name, written) => {
                    lines.extend(self.line_of(index, name.as_ref(), written));
                }
            }
        }
        lines
    }

    /// Returns the path to the first value in an array or object that begins with this event.
    fn content_path(&self, start: usize) -> Option<Vec<Step>> {
        let mut depth = 0;
        for event in &self.usual.events[start..] {
            match event {
                Event::Start(..) => depth += 1,
                Event::End(_) => depth -= 1,
                Event::Value(_, written) => {
                    if let Some((leaf, _)) = self.leaf_of(written) {
                        return Some(leaf.path.clone());
                    }
                }
            }
            if depth == 0 {
                break;
            }
        }
        None
    }

    fn leaf_of(&self, written: &Written) -> Option<(&Leaf, Form)> {
        let mut leaves = self.usual.leaves.iter();
        leaves.find_map(|leaf| Some((leaf, form_of(&leaf.kind, written)?)))
    }

    fn line_of(&self, index: usize, name: Option<&String>, written: &Written) -> Option<Line> {
        let line = |path: &[Step], form| Line::Value {
            name: name.cloned(),
            is_null_if_absent: self.is_null_without_options(name),
            path: path.to_vec(),
            form,
        };
        if let Some((leaf, form)) = self.leaf_of(written) {
            return Some(line(&leaf.path, form));
        }
        for (leaf, of_variants) in self.choices {
            let variants = of_variants.iter().map(|events| {
                let events = events.as_ref()?;
                value_of(events, index, name).map_or(Some(None), constant)
            });
            let table: Option<Vec<Constant>> = variants.collect();
            let differs = |table: &Vec<Constant>| table.iter().any(|other| *other != table[0]);
            if let Some(table) = table.filter(differs) {
                return Some(line(&leaf.path, Form::Table(table)));
            }
        }
        let same = value_of(&self.shifted.events, index, name);
        let value = same.filter(|same| *same == written).and_then(constant)?;
        Some(Line::Constant {
            name: name.cloned(),
            value,
        })
    }

    fn is_null_without_options(&self, name: Option<&String>) -> bool {
        let events = self.without_options.map(|trace| &trace.events);
        let mut events = events.into_iter().flatten();
        name.is_some()
            && events.any(|event| {
                matches!(event, Event::Value(other, Written::Null) if other.as_ref() == name)
            })
    }
}

/// Returns the value that was written with the same name, or else in the same place.
fn value_of<'e>(events: &'e [Event], index: usize, name: Option<&String>) -> Option<&'e Written> {
    let of_name = |event: &'e Event| match event {
        Event::Value(other, written) if other.as_ref() == name => Some(written),
        _ => None,
    };
    match name {
        Some(_) => events.iter().find_map(of_name),
        None => of_name(events.get(index)?),
    }
}

fn constant(written: &Written) -> Option<Constant> {
    (!matches!(written, Written::Time(_))).then(|| Some(written.clone()))
}

/// Returns the path to the innermost list on the way that is not repeated already.
fn list_in(path: &[Step], repeated: &[Vec<Step>]) -> Option<Vec<Step>> {
    let lists = (0..path.len()).filter(|at| path[*at] == Step::Element);
    let mut paths = lists.map(|at| path[..at].to_vec());
    paths.find(|list| !repeated.contains(list))
}

/// Cuts a path behind its last option: that decides whether there is something to show.
fn up_to_option(path: Vec<Step>) -> Vec<Step> {
    let last = path.iter().rposition(|step| *step == Step::Inside);
    last.map_or(Vec::new(), |last| path[..=last].to_vec())
}

/// Returns the form in which a value was written, if it was this one.
fn form_of(kind: &LeafKind, written: &Written) -> Option<Form> {
    let (is_it, form) = match (kind, written) {
        (LeafKind::Integer(value), Written::Int(shown)) => (shown == value, Form::Int),
        (LeafKind::Integer(value), Written::Uint(shown)) => {
            (i64::try_from(*shown) == Ok(*value), Form::Uint)
        }
        (LeafKind::Integer(value), Written::Float(shown)) => (*shown == *value as f64, Form::Float),
        (LeafKind::Integer(value), Written::Time(shown)) => {
            (i64::try_from(shown.timestamp().0) == Ok(*value), Form::Time)
        }
        (LeafKind::Integer(value), Written::String(shown)) => {
            (value.to_string() == *shown, Form::Text)
        }
        (LeafKind::Integer(value), Written::UniqueString(shown)) => {
            match FlowId::from(*value as u64).to_hex() == shown.as_bytes() {
                true => (true, Form::Flow),
                false => (value.to_string() == *shown, Form::Unique),
            }
        }
        (LeafKind::Float(value), Written::Float(shown)) => (shown == value, Form::Float),
        (LeafKind::Float(value), Written::String(shown)) => {
            (value.to_string() == *shown, Form::Text)
        }
        (LeafKind::Text(text), Written::String(shown)) => (text == shown, Form::Text),
        (LeafKind::Text(text), Written::UniqueString(shown)) => (text == shown, Form::Unique),
        (LeafKind::Duration(ns), Written::Float(shown)) => {
            let mut units = DURATION_UNITS.into_iter();
            let units = units.find(|units| *ns as f64 / (1e9 / units) == *shown)?;
            (true, Form::Duration(units))
        }
        _ => return None,
    };
    is_it.then_some(form)
}
