//! Tables without duplicates, whose first element is empty.

use std::collections::HashMap;
use std::hash::Hash;

use super::messages::{
    AnyValue, Attribute, Dictionary, Function, Link, Location, Mapping, Stack, Value,
};

/// A table, and the place of each element.
pub(super) struct Table<T> {
    elements: Vec<T>,
    places: HashMap<T, i32>,
}

impl<T: Clone + Default + Eq + Hash> Table<T> {
    fn new() -> Self {
        Self {
            elements: vec![T::default()],
            places: HashMap::from([(T::default(), 0)]),
        }
    }

    /// Returns the index of an element, and adds it if it is new.
    pub(super) fn index(&mut self, element: T) -> i32 {
        let Self { elements, places } = self;
        *places.entry(element).or_insert_with_key(|element| {
            elements.push(element.clone());
            i32::try_from(elements.len() - 1).unwrap_or(0)
        })
    }
}

/// The tables of a message. An element is added when it is referred to, so each is used.
pub(super) struct Tables {
    texts: Table<String>,
    attributes: Table<Attribute>,
    pub(super) links: Table<Link>,
    pub(super) mappings: Table<Mapping>,
    pub(super) functions: Table<Function>,
    pub(super) locations: Table<Location>,
    pub(super) stacks: Table<Stack>,
}

impl Tables {
    pub(super) fn new() -> Self {
        Self {
            texts: Table::new(),
            attributes: Table::new(),
            links: Table::new(),
            mappings: Table::new(),
            functions: Table::new(),
            locations: Table::new(),
            stacks: Table::new(),
        }
    }

    pub(super) fn text(&mut self, text: &str) -> i32 {
        self.texts.index(text.to_owned())
    }

    pub(super) fn attribute(&mut self, key: &str, value: Value) -> i32 {
        let key_strindex = self.text(key);
        let value = Some(AnyValue { value: Some(value) });
        self.attributes.index(Attribute {
            key_strindex,
            value,
        })
    }

    pub(super) fn into_dictionary(self) -> Dictionary {
        Dictionary {
            mapping_table: self.mappings.elements,
            location_table: self.locations.elements,
            function_table: self.functions.elements,
            link_table: self.links.elements,
            string_table: self.texts.elements,
            attribute_table: self.attributes.elements,
            stack_table: self.stacks.elements,
        }
    }
}
