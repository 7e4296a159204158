//! The markers of a thread, in columns.

use crate::model::stacks::{StackId, TextId};
use crate::types::MarkerPhase;

/// Key of the number of markers that a marker represents, itself included. Only a marker that
/// represents others has this field.
pub(crate) const STANDS_FOR: &str = "standsFor";

/// A marker of a thread.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Marker<'a> {
    pub(crate) name: TextId,
    pub(crate) phase: MarkerPhase,
    /// `None` for [`MarkerPhase::IntervalEnd`].
    pub(crate) start_ns: Option<i64>,
    /// `None` for [`MarkerPhase::Instant`] and [`MarkerPhase::IntervalStart`].
    pub(crate) end_ns: Option<i64>,
    /// Index in `ProfileModel::categories`.
    pub(crate) category: u16,
    pub(crate) payload: Option<MarkerPayload<'a>>,
}

/// The data of a marker.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct MarkerPayload<'a> {
    /// Name of the marker's type.
    pub(crate) type_name: TextId,
    /// The fields with their keys, in their order, without the type and the stack.
    pub(crate) fields: &'a [(TextId, FieldValue)],
    /// The stack that caused the marker, and its time.
    pub(crate) stack: Option<(StackId, i64)>,
}

/// The value of a marker's field.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum FieldValue {
    Null,
    Bool(bool),
    Integer(i64),
    Number(f64),
    /// A text that the field itself contains.
    Text(TextId),
    /// A text that the Firefox formats replace by its index in the table of strings: a
    /// `unique-string`, or the id of a flow.
    UniqueText(TextId),
    /// A list or an object, as JSON.
    Json(TextId),
}

/// The markers of a thread, in the order in which they were added.
#[derive(Debug, Default)]
pub(crate) struct Markers {
    rows: Vec<Row>,
    fields: Vec<(TextId, FieldValue)>,
    /// The stacks of markers, by the index of the marker, in ascending order.
    stacks: Vec<(u32, StackId, i64)>,
}

#[derive(Debug)]
struct Row {
    name: TextId,
    start_ns: i64,
    end_ns: i64,
    /// The number of the type's name plus one; 0 for a marker without payload.
    type_name: u32,
    /// The end of the marker's fields. They begin where those of the previous marker end.
    fields_end: u32,
    category: u16,
    phase: MarkerPhase,
}

impl Markers {
    pub(crate) fn push(&mut self, marker: Marker<'_>) {
        if let Some(payload) = marker.payload {
            self.fields.extend_from_slice(payload.fields);
            if let Some((stack, time_ns)) = payload.stack {
                self.stacks.push((self.rows.len() as u32, stack, time_ns));
            }
        }
        self.rows.push(Row {
            name: marker.name,
            start_ns: marker.start_ns.unwrap_or_default(),
            end_ns: marker.end_ns.unwrap_or_default(),
            type_name: marker.payload.map_or(0, |payload| payload.type_name.0 + 1),
            fields_end: self.fields.len() as u32,
            category: marker.category,
            phase: marker.phase,
        });
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns the marker with this index. Panics if the index is out of bounds.
    pub(crate) fn get(&self, index: usize) -> Marker<'_> {
        let row = &self.rows[index];
        let fields_start = index
            .checked_sub(1)
            .map_or(0, |last| self.rows[last].fields_end);
        let fields = &self.fields[fields_start as usize..row.fields_end as usize];
        let stack = || {
            let at = self
                .stacks
                .binary_search_by_key(&(index as u32), |stack| stack.0)
                .ok()?;
            let (_, stack, time_ns) = self.stacks[at];
            Some((stack, time_ns))
        };
        let payload = row.type_name.checked_sub(1).map(|type_name| MarkerPayload {
            type_name: TextId(type_name),
            fields,
            stack: stack(),
        });
        let (has_start, has_end) = match row.phase {
            MarkerPhase::Instant | MarkerPhase::IntervalStart => (true, false),
            MarkerPhase::Interval => (true, true),
            MarkerPhase::IntervalEnd => (false, true),
        };
        Marker {
            name: row.name,
            phase: row.phase,
            start_ns: has_start.then_some(row.start_ns),
            end_ns: has_end.then_some(row.end_ns),
            category: row.category,
            payload,
        }
    }

    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = Marker<'_>> + '_ {
        (0..self.len()).map(|index| self.get(index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_keep_their_fields_and_stacks() {
        let fields = [
            (TextId(4), FieldValue::Integer(-1)),
            (TextId(5), FieldValue::Bool(true)),
        ];
        let plain = Marker {
            name: TextId(1),
            phase: MarkerPhase::Instant,
            start_ns: Some(7),
            end_ns: None,
            category: 2,
            payload: None,
        };
        let typed = |fields, stack| Marker {
            phase: MarkerPhase::Interval,
            end_ns: Some(9),
            payload: Some(MarkerPayload {
                type_name: TextId(0),
                fields,
                stack,
            }),
            ..plain
        };
        let all = [
            typed(&fields[..1], None),
            plain,
            typed(&fields, Some((StackId(3), 8))),
            Marker {
                phase: MarkerPhase::IntervalEnd,
                start_ns: None,
                ..typed(&[], None)
            },
        ];
        let mut markers = Markers::default();
        for marker in all {
            markers.push(marker);
        }
        assert!(markers.iter().eq(all));
    }
}
