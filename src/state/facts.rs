//! The facts of a session that a rescuer needs in addition to the session's chunks: what each one is,
//! and how it is encoded. Decoding accepts any bytes.
//!
//! A fact has a key, such as a thread's number. A later fact with the same key replaces it.

use std::collections::BTreeMap;

use crate::buffer::{EntryReader, EntryWriter, FoundFacts};

macro_rules! facts {
    ($($(#[$doc:meta])* $kind:literal $variant:ident $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)+ })+) => {
        $(
            $(#[$doc])*
            #[derive(Clone, PartialEq, Debug, Default)]
            pub(crate) struct $name {
                $($(#[$field_doc])* pub(crate) $field: $type,)+
            }

            impl From<$name> for Fact {
                fn from(fact: $name) -> Self {
                    Self::$variant(fact)
                }
            }
        )+

        /// Something that a rescuer needs to know.
        #[derive(Clone, PartialEq, Debug)]
        pub(crate) enum Fact {
            $($variant($name),)+
        }

        impl Fact {
            /// Encodes the fact: its kind, and its fields.
            pub(crate) fn encode(&self, out: &mut EntryWriter) {
                match self {
                    $(Self::$variant(fact) => {
                        out.byte($kind);
                        $(fact.$field.put(out);)+
                    })+
                }
            }

            /// Decodes a fact. Returns `None` if this build does not recognize the bytes.
            pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
                let from = &mut EntryReader::new(bytes);
                match from.byte()? {
                    $($kind => Some(Self::$variant($name {
                        $($field: <$type as Field>::take(from)?,)+
                    })),)+
                    _ => None,
                }
            }
        }
    };
}

facts! {
    /// The process, as the application has described it last.
    1 Process ProcessFact {
        pid: i32,
        product: String,
        name: String,
        process_type: String,
        version: Option<String>,
        etld1: Option<String>,
        /// Start of the process on the monotonic clock, in ns.
        start_ns: u64,
        /// Start of the process in milliseconds of the wall clock.
        start_epoch_ms: f64,
        start_is_known: bool,
    }
    /// The session's settings.
    2 Session SessionFact {
        started_ns: u64,
        capacity_bytes: u64,
        interval_ns: u64,
        max_cpu_ppm: Option<u64>,
        features: u64,
        filters: Vec<String>,
        signal: i32,
        duration_ns: Option<u64>,
        allocation_interval_bytes: u64,
        active_tab_id: u64,
        records_overheads: bool,
        /// Version of this crate.
        crate_version: String,
        /// The names of the session's counts, in the order of their words.
        count_names: Vec<String>,
    }
    /// A thread of the session.
    3 Thread ThreadFact {
        serial: u64,
        tid: i32,
        name: String,
        is_main: bool,
        registered_ns: u64,
        /// When the thread has ended; `None` while it lives.
        ended_ns: Option<u64>,
    }
    /// A type of markers.
    4 Type TypeFact {
        number: u64,
        /// The name in the profile.
        name: String,
        /// The schema, as an element of `meta.markerSchema`; empty if the viewer has one.
        schema: String,
        /// How a payload is printed: see `markers/described/`.
        payload: FactBytes,
    }
    /// A category of the application.
    5 Category CategoryFact {
        number: u64,
        label: String,
        color: String,
        subcategories: Vec<String>,
    }
    6 Counter CounterFact {
        id: u64,
        name: String,
        category: String,
        description: String,
        is_total: bool,
        counts_operations: bool,
        is_bytes: bool,
        /// Index in the list of colors.
        color: Option<u64>,
    }
    /// A module at one address, with the numbers of the lists of modules that have it.
    7 Module ModuleFact {
        path: FactBytes,
        bias: u64,
        start: u64,
        end: u64,
        build_id: FactBytes,
        is_executable: bool,
        from_list: u64,
        until_list: Option<u64>,
    }
    8 Page PageFact {
        inner_window_id: u64,
        tab_id: u64,
        url: String,
        embedder: u64,
        is_private: bool,
    }
    9 Script ScriptFact {
        number: u64,
        name: String,
        file: String,
        line: u64,
        column: u64,
        implementation: u64,
        category: Option<u64>,
        subcategory: u64,
        inner_window_id: u64,
    }
    /// Named code that the application has generated.
    10 Code CodeFact {
        start: u64,
        end: u64,
        name: String,
        script: Option<u64>,
    }
    /// A label of contexts.
    11 ContextLabel ContextLabelFact {
        number: u64,
        key: String,
        value: String,
    }
}

/// Words that change during the session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub(crate) enum OwnerWord {
    /// Start of the pause in progress, of each kind, in ns; 0 for none.
    PausedSince = 0,
    SamplingPausedSince = 1,
    /// When the sampler last noted the session's counts, in ns.
    CountedAt = 2,
    /// The first of the session's counts.
    Counts = 8,
}

/// Kind, number, and second number of a fact.
type Key = (u8, u64, u64);

/// The facts of a file by their keys.
#[derive(Debug, Default)]
pub(crate) struct KeyedFacts {
    facts: BTreeMap<Key, Fact>,
    /// Number of records that this build does not recognize as facts.
    pub(crate) unknown: u64,
}

fn key_of(fact: &Fact) -> Key {
    match fact {
        Fact::Process(_) => (1, 0, 0),
        Fact::Session(_) => (2, 0, 0),
        Fact::Thread(thread) => (3, thread.serial, 0),
        Fact::Type(marker_type) => (4, marker_type.number, 0),
        Fact::Category(category) => (5, category.number, 0),
        Fact::Counter(counter) => (6, counter.id, 0),
        Fact::Module(module) => (7, module.start, module.from_list),
        Fact::Page(page) => (8, page.inner_window_id, 0),
        Fact::Script(script) => (9, script.number, 0),
        Fact::Code(code) => (10, code.start, code.end),
        Fact::ContextLabel(label) => (11, label.number, 0),
    }
}

impl KeyedFacts {
    /// Decodes the facts of a file.
    pub(crate) fn of(found: &FoundFacts) -> Self {
        let mut keyed = Self::default();
        for record in found.all() {
            match Fact::decode(record) {
                Some(fact) => keyed.add(fact),
                None => keyed.unknown += 1,
            }
        }
        keyed
    }

    /// Adds a fact. An end that is known stays: a fact of the other half may be older.
    fn add(&mut self, mut fact: Fact) {
        let key = key_of(&fact);
        match (self.facts.get(&key), &mut fact) {
            (Some(Fact::Thread(before)), Fact::Thread(thread)) => {
                thread.ended_ns = thread.ended_ns.or(before.ended_ns);
            }
            (Some(Fact::Module(before)), Fact::Module(module)) => {
                module.until_list = module.until_list.or(before.until_list);
            }
            _ => {}
        }
        self.facts.insert(key, fact);
    }

    /// Returns all facts, those of a kind in the order of their numbers.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Fact> {
        self.facts.values()
    }
}

/// A field of a fact.
trait Field: Sized {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn examples() -> Vec<Fact> {
        vec![
            ProcessFact {
                pid: -5,
                product: "product".to_owned(),
                version: Some("1.2".to_owned()),
                start_ns: u64::MAX,
                start_epoch_ms: 1.7e12 + 0.5,
                ..ProcessFact::default()
            }
            .into(),
            SessionFact {
                filters: vec!["a".to_owned(), String::new()],
                duration_ns: Some(7),
                ..SessionFact::default()
            }
            .into(),
            ThreadFact {
                serial: 300,
                name: "thread \u{b5}".to_owned(),
                is_main: true,
                ended_ns: Some(0),
                ..ThreadFact::default()
            }
            .into(),
            TypeFact::default().into(),
            CategoryFact::default().into(),
            CounterFact {
                color: Some(3),
                ..CounterFact::default()
            }
            .into(),
            ModuleFact {
                path: FactBytes(vec![0xff, 0]),
                build_id: FactBytes((0..64).collect()),
                until_list: Some(2),
                ..ModuleFact::default()
            }
            .into(),
            PageFact::default().into(),
            ScriptFact::default().into(),
            CodeFact::default().into(),
            ContextLabelFact::default().into(),
        ]
    }

    #[test]
    fn facts_of_each_kind_are_read_back_and_no_beginning_of_one_is_taken_for_it() {
        for fact in examples() {
            let mut out = EntryWriter::default();
            fact.encode(&mut out);
            assert_eq!(Fact::decode(out.bytes()).as_ref(), Some(&fact));
            for length in 0..out.bytes().len() {
                assert_eq!(Fact::decode(&out.bytes()[..length]), None, "{fact:?}");
            }
        }
    }

    #[test]
    fn damaged_facts_are_refused() {
        // An unknown kind, a list of 2^63 texts, and a text that is not UTF-8.
        let long = [
            2, 1, 1, 1, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f,
        ];
        for bytes in [&[0][..], &[99, 1, 2], &long, &[3, 1, 0, 1, 0xff, 0, 0, 0]] {
            assert_eq!(Fact::decode(bytes), None, "{bytes:?}");
        }
    }
}
