//! The places in the program that have made markers, each by a number, which stands in the buffer.
//!
//! A number is a place in a table, found by the address of what `tracing` knows of the callsite, which stays for ever. No lock, and
//! no allocation but that of the table.

use std::borrow::Cow;
use std::sync::{LazyLock, OnceLock};

use tracing_core::Metadata;

use crate::markers::{Format, MarkerSchema};

const PLACES: usize = 4096;
/// A callsite that finds no place within so many has no number. It takes more than 3,000 of them.
const MOST_PROBES: usize = 64;

type Place = OnceLock<&'static Metadata<'static>>;

static TABLE: LazyLock<Box<[Place]>> =
    LazyLock::new(|| (0..PLACES).map(|_| OnceLock::new()).collect());

/// A callsite by its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Callsite(u16);

impl Callsite {
    /// One without a number: its markers have no fields.
    const UNKNOWN: Self = Self(u16::MAX);

    /// Gives it a number the first time.
    #[inline]
    pub(super) fn of(metadata: &'static Metadata<'static>) -> Self {
        // A multiplication spreads addresses, which have much in common.
        let address = std::ptr::from_ref(metadata).addr() as u64;
        let first = (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
        for probe in 0..MOST_PROBES {
            let number = (first + probe) % PLACES;
            if std::ptr::eq(*TABLE[number].get_or_init(|| metadata), metadata) {
                return Self(number as u16);
            }
        }
        Self::UNKNOWN
    }

    #[inline]
    pub(super) fn number(self) -> u64 {
        self.0.into()
    }

    pub(super) fn from_number(number: u64) -> Self {
        u16::try_from(number).map_or(Self::UNKNOWN, Self)
    }

    pub(super) fn metadata(self) -> Option<&'static Metadata<'static>> {
        TABLE.get(usize::from(self.0))?.get().copied()
    }
}

/// Lists the fields of all spans that have markers, or of all events.
pub(super) fn add_fields_to(schema: &mut MarkerSchema, of_spans: bool, reserved: &[&str]) {
    let known = TABLE
        .iter()
        .filter_map(|place| place.get())
        .filter(|known| known.is_span() == of_spans);
    let mut names: Vec<&str> = known
        .flat_map(|known| known.fields().iter().map(|field| field.name()))
        .collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        if let Some(key) = key_of(name, reserved) {
            schema.add_key_label_format(&key, name, Format::String);
        }
    }
}

/// What a field of the host's is called in the profile: as it is called, unless a field of ours is called so, or one of the viewer's.
/// `None` for the message of an event, which is ours.
pub(super) fn key_of<'a>(name: &'a str, reserved: &[&str]) -> Option<Cow<'a, str>> {
    match name {
        MESSAGE if reserved.contains(&MESSAGE) => None,
        "innerWindowID" => Some(Cow::Owned(format!("{name}_"))),
        _ if reserved.contains(&name) => Some(Cow::Owned(format!("{name}_"))),
        _ => Some(Cow::Borrowed(name)),
    }
}

/// The field in which `tracing` has an event's text.
pub(super) const MESSAGE: &str = "message";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_the_hosts_have_other_names_than_ours() {
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
