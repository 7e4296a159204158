//! The callsites that have recorded markers. Each has a number, which entries in the buffer refer
//! to.
//!
//! The number is an index into a hash table, found by the address of the callsite's `tracing`
//! metadata, which is `'static`. The first lookup allocates the table. A lookup of a known callsite
//! takes no lock.

use std::borrow::Cow;
use std::sync::{LazyLock, OnceLock};

use tracing_core::Metadata;

use crate::integrations::tracing::span_context::TRACE_ID;
use crate::markers::{Format, MarkerSchema};

const SLOT_COUNT: usize = 4096;
/// Maximum number of slots tried for a callsite. If all are taken, the callsite gets no number. 64
/// suffice for more than 3,000 callsites.
const MAX_PROBES: usize = 64;

type Slot = OnceLock<&'static Metadata<'static>>;

static TABLE: LazyLock<Box<[Slot]>> =
    LazyLock::new(|| (0..SLOT_COUNT).map(|_| OnceLock::new()).collect());

/// The number of a callsite.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Callsite(u16);

impl Callsite {
    /// A callsite without a number: its markers have no fields.
    const UNKNOWN: Self = Self(u16::MAX);

    /// Returns the number of a callsite. The first call for a callsite assigns it.
    #[inline]
    pub(crate) fn of(metadata: &'static Metadata<'static>) -> Self {
        // Metadata addresses share many bits; the multiplication spreads them over the table.
        let address = std::ptr::from_ref(metadata).addr() as u64;
        let first = (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
        for probe in 0..MAX_PROBES {
            let number = (first + probe) % SLOT_COUNT;
            if std::ptr::eq(*TABLE[number].get_or_init(|| metadata), metadata) {
                return Self(number as u16);
            }
        }
        Self::UNKNOWN
    }

    #[inline]
    pub(crate) fn number(self) -> u64 {
        self.0.into()
    }

    pub(crate) fn from_number(number: u64) -> Self {
        u16::try_from(number).map_or(Self::UNKNOWN, Self)
    }

    pub(crate) fn metadata(self) -> Option<&'static Metadata<'static>> {
        TABLE.get(usize::from(self.0))?.get().copied()
    }
}

/// Adds the fields of all span callsites, or of all event callsites, to a schema.
pub(crate) fn add_fields_to(schema: &mut MarkerSchema, is_span: bool, reserved: &[&str]) {
    let known = TABLE
        .iter()
        .filter_map(|slot| slot.get())
        .filter(|known| known.is_span() == is_span);
    let mut names: Vec<&str> = known
        .flat_map(|known| known.fields().iter().map(|field| field.name()))
        .collect();
    // Spans have the id of their trace, even if they have no such field.
    names.extend(is_span.then_some(TRACE_ID));
    names.sort_unstable();
    names.dedup();
    for name in names {
        if let Some(key) = key_of(name, reserved) {
            schema.add_key_label_format(&key, name, Format::String);
        }
    }
}

/// Returns the key of an application's field in the profile: its name, with a `_` appended if the
/// layer or the viewer reserves the name.
///
/// Returns `None` for the message of an event, which the layer writes itself.
pub(crate) fn key_of<'a>(name: &'a str, reserved: &[&str]) -> Option<Cow<'a, str>> {
    match name {
        MESSAGE if reserved.contains(&MESSAGE) => None,
        "innerWindowID" => Some(Cow::Owned(format!("{name}_"))),
        _ if reserved.contains(&name) => Some(Cow::Owned(format!("{name}_"))),
        _ => Some(Cow::Borrowed(name)),
    }
}

/// The field in which `tracing` stores the text of an event.
pub(crate) const MESSAGE: &str = "message";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_of_renames_reserved_fields() {
        let reserved = &["level", MESSAGE];
        assert_eq!(key_of("path", reserved).as_deref(), Some("path"));
        assert_eq!(key_of("level", reserved).as_deref(), Some("level_"));
        assert_eq!(
            key_of("innerWindowID", reserved).as_deref(),
            Some("innerWindowID_")
        );
        assert_eq!(key_of(MESSAGE, reserved), None);
        assert_eq!(key_of(MESSAGE, &["span"]).as_deref(), Some(MESSAGE));
    }
}
