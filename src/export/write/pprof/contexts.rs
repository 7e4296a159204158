//! The labels that markers give to samples.

use std::collections::{HashMap, HashSet};

use crate::export::markers::is_of_contexts;
use crate::export::options::sampled_range;
use crate::export::write::intervals_and_flows::{FlowFields, MarkerInterval, marker_intervals};
use crate::model::{FieldValue, Markers, ProfileModel, TextId, Thread};
use crate::util::UniqueList;

/// A sample gets labels of at most this many fields.
const MAX_FIELDS: usize = 8;
/// A field's further values become one label. Otherwise a field with unique values, such as an id,
/// would make each sample a sample of its own.
const MAX_VALUES: usize = 128;
/// Of the intervals that contain a sample, only this many that began last are looked at.
const MAX_OPEN: usize = 32;

/// A field of a marker type: the type's name, and the field's key.
pub(crate) type Field = (TextId, TextId);

/// What markers say about a sample.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct Context {
    /// Name of the innermost interval that contains the sample.
    pub(crate) marker: Option<TextId>,
    /// The texts in the innermost interval of each type; `None` for a value beyond the limit.
    pub(crate) fields: Vec<(Field, Option<TextId>)>,
    /// Keys and values of the context that the application has set.
    pub(crate) own: Vec<(TextId, TextId)>,
}

/// The contexts of a profile's samples.
pub(crate) struct Contexts<'a> {
    profile: &'a ProfileModel,
    flows: FlowFields<'a>,
    contexts: UniqueList<Context>,
    values: HashMap<Field, HashSet<TextId>>,
}

/// Finds the contexts of one thread's samples.
pub(crate) struct ThreadContexts<'t> {
    thread: &'t Thread,
    /// By start, the last one first.
    upcoming: Vec<MarkerInterval>,
    /// By start.
    open: Vec<MarkerInterval>,
    /// The interval of the context that the application has set.
    own: Option<MarkerInterval>,
    current: u32,
}

impl<'a> Contexts<'a> {
    pub(crate) fn new(profile: &'a ProfileModel) -> Self {
        let mut contexts = UniqueList::default();
        contexts.index(&Context::default());
        Self {
            profile,
            flows: FlowFields::of(profile),
            contexts,
            values: HashMap::new(),
        }
    }

    pub(crate) fn get(&self, number: u32) -> &Context {
        &self.contexts.elements[number as usize]
    }

    pub(crate) fn of_thread<'t>(&self, thread: &'t Thread) -> ThreadContexts<'t> {
        let mut upcoming = marker_intervals(thread, entry_times(thread));
        upcoming.reverse();
        ThreadContexts {
            thread,
            upcoming,
            open: Vec::new(),
            own: None,
            current: 0,
        }
    }

    /// Returns the number of the context that these intervals give. The application has asked for
    /// the values of `own`, so all of them are kept.
    fn context(
        &mut self,
        thread: &Thread,
        open: &[MarkerInterval],
        own: Option<MarkerInterval>,
    ) -> u32 {
        let mut context = Context::default();
        let own_fields = own.iter().flat_map(|own| fields_of(own, &thread.markers));
        for (_, key, value) in own_fields {
            if let FieldValue::Text(value) | FieldValue::UniqueText(value) = value {
                context.own.push((key, value));
            }
        }
        let mut types = Vec::new();
        for interval in open.iter().rev() {
            let name = thread.markers.get(interval.first).name;
            context.marker.get_or_insert(name);
            let inner_types = types.len();
            for (type_name, key, value) in fields_of(interval, &thread.markers) {
                if !types[..inner_types].contains(&type_name) {
                    self.add_field(&mut context, (type_name, key), value);
                    types.push(type_name);
                }
            }
        }
        self.contexts.index(&context)
    }

    fn add_field(&mut self, context: &mut Context, field: Field, value: FieldValue) {
        let (FieldValue::Text(value) | FieldValue::UniqueText(value)) = value else {
            return;
        };
        let is_known = context.fields.iter().any(|(known, _)| *known == field);
        let is_flow = self.flows.get(field.0, field.1).is_some();
        if is_known || is_flow || context.fields.len() == MAX_FIELDS {
            return;
        }
        let values = self.values.entry(field).or_default();
        let is_within_limit = values.contains(&value) || values.len() < MAX_VALUES;
        if is_within_limit {
            values.insert(value);
        }
        context
            .fields
            .push((field, is_within_limit.then_some(value)));
    }
}

impl ThreadContexts<'_> {
    /// Returns the number of the context at a time. The times must not decrease.
    pub(crate) fn at(&mut self, contexts: &mut Contexts<'_>, time_ns: i64) -> u32 {
        let before = self.open.len();
        self.open.retain(|interval| interval.end_ns >= time_ns);
        let had_own = self.own.is_some();
        self.own = self.own.filter(|own| own.end_ns >= time_ns);
        let mut has_changed = self.open.len() != before || self.own.is_some() != had_own;
        let has_begun = |interval: &mut MarkerInterval| interval.start_ns <= time_ns;
        while let Some(interval) = self.upcoming.pop_if(has_begun) {
            if interval.end_ns < time_ns {
                continue;
            }
            has_changed = true;
            let marker = self.thread.markers.get(interval.first);
            // Its fields become labels with the fields' own keys.
            if is_of_contexts(contexts.profile, &marker) {
                self.own = Some(interval);
                continue;
            }
            if self.open.len() == MAX_OPEN {
                self.open.remove(0);
            }
            self.open.push(interval);
        }
        if has_changed {
            self.current = contexts.context(self.thread, &self.open, self.own);
        }
        self.current
    }

    /// Returns a time up to which [`Self::at`] returns the same number as in the last call.
    pub(crate) fn unchanged_until_ns(&self) -> i64 {
        let next_start = self.upcoming.last();
        let before_next = next_start.map(|interval| interval.start_ns.saturating_sub(1));
        let ends = self.open.iter().chain(&self.own);
        let ends = ends.map(|interval| interval.end_ns);
        ends.chain(before_next).min().unwrap_or(i64::MAX)
    }
}

/// Returns the types, keys and values of all fields of an interval, those of its beginning first.
fn fields_of(
    interval: &MarkerInterval,
    markers: &Markers,
) -> impl Iterator<Item = (TextId, TextId, FieldValue)> {
    let indices = [Some(interval.first), interval.last].into_iter().flatten();
    let payloads = indices.filter_map(|index| markers.get(index).payload);
    payloads.flat_map(|payload| {
        let fields = payload.fields.iter();
        fields.map(move |(key, value)| (payload.type_name, *key, *value))
    })
}

/// Returns the times of the first and the last entry of a thread; 0 if it has none.
pub(crate) fn entry_times(thread: &Thread) -> (i64, i64) {
    let of_samples = sampled_range(std::iter::once(&thread.samples));
    let markers = thread.markers.iter();
    let of_markers = markers.flat_map(|marker| [marker.start_ns, marker.end_ns]);
    let of_markers = of_markers.flatten().map(|time_ns| (time_ns, time_ns));
    let ranges = of_samples.into_iter().chain(of_markers);
    let all = ranges.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
    all.unwrap_or_default()
}
