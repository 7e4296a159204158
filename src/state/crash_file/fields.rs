//! How the fields of facts are encoded. Accepts any bytes.

use crate::buffer::{EntryReader, EntryWriter};

/// A field of a fact.
pub(super) trait Field: Sized {
    fn put(&self, out: &mut EntryWriter);

    /// Reads the field; `None` if the bytes are not one.
    fn take(from: &mut EntryReader<'_>) -> Option<Self>;
}

impl Field for u64 {
    fn put(&self, out: &mut EntryWriter) {
        out.number(*self);
    }

    fn take(from: &mut EntryReader<'_>) -> Option<Self> {
        from.number()
    }
}

impl Field for i32 {
    fn put(&self, out: &mut EntryWriter) {
        out.signed((*self).into());
    }

    fn take(from: &mut EntryReader<'_>) -> Option<Self> {
        from.signed()?.try_into().ok()
    }
}

impl Field for bool {
    fn put(&self, out: &mut EntryWriter) {
        out.byte((*self).into());
    }

    fn take(from: &mut EntryReader<'_>) -> Option<Self> {
        match from.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl Field for f64 {
    fn put(&self, out: &mut EntryWriter) {
        out.raw(&self.to_le_bytes());
    }

    fn take(from: &mut EntryReader<'_>) -> Option<Self> {
        let bytes = from.bytes(size_of::<Self>() as u64)?;
        bytes.try_into().ok().map(Self::from_le_bytes)
    }
}

impl Field for String {
    fn put(&self, out: &mut EntryWriter) {
        out.text(self.as_bytes());
    }

    fn take(from: &mut EntryReader<'_>) -> Option<Self> {
        std::str::from_utf8(from.text()?).ok().map(str::to_owned)
    }
}

/// Bytes that need not be UTF-8.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct FactBytes(pub(crate) Vec<u8>);

impl Field for FactBytes {
    fn put(&self, out: &mut EntryWriter) {
        out.text(&self.0);
    }

    fn take(from: &mut EntryReader<'_>) -> Option<Self> {
        from.text().map(|bytes| Self(bytes.to_vec()))
    }
}

impl<T: Field> Field for Option<T> {
    fn put(&self, out: &mut EntryWriter) {
        self.is_some().put(out);
        self.iter().for_each(|value| value.put(out));
    }

    fn take(from: &mut EntryReader<'_>) -> Option<Self> {
        match bool::take(from)? {
            true => T::take(from).map(Some),
            false => Some(None),
        }
    }
}

impl<T: Field> Field for Vec<T> {
    fn put(&self, out: &mut EntryWriter) {
        out.number(self.len() as u64);
        self.iter().for_each(|value| value.put(out));
    }

    fn take(from: &mut EntryReader<'_>) -> Option<Self> {
        let mut values = Self::new();
        // Each value takes a byte at least, so the loop ends with the fact.
        for _ in 0..from.number()? {
            values.push(T::take(from)?);
        }
        Some(values)
    }
}
