//! The facts of a file, each once: a later fact replaces an earlier one with the same key.

use std::collections::BTreeMap;

use crate::buffer::FoundFacts;
use crate::state::crash_file::fact::Fact;

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
