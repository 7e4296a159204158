//! The facts of a session that a rescuer needs in addition to the session's chunks.
//!
//! A fact has a key, such as a thread's number. A later fact with the same key replaces it.

use crate::buffer::{EntryReader, EntryWriter};
use crate::state::crash_file::fields::{FactBytes, Field};

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
