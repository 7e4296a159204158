//! The model that is being read, and what the reader must find in it again.

use std::borrow::Cow;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use crate::export::read::value::{Object, Value};
use crate::model::{Category, MarkerSchema, Module, ModuleId, NativeSymbol, ProfileModel, TextId};
use crate::types::ReadError;

/// The name of the category of everything that has none.
const OTHER: &str = "Other";

#[derive(Default)]
pub(crate) struct ModelBuilder {
    pub(crate) profile: ProfileModel,
    /// Indices of the profile's categories by their names.
    category_index: HashMap<String, u16>,
    /// Indices of their subcategories, by the category and the name.
    subcategory_index: HashMap<(u16, String), u16>,
    /// Names of the marker schemas.
    schema_names: HashSet<String>,
    /// Indices of the profile's native symbols.
    native_symbols: HashMap<(ModuleId, u64, TextId), u32>,
    /// Modules without a known place, by their process and name.
    unplaced_modules: HashMap<(usize, String), ModuleId>,
}

/// A category of a process, as the profile has it.
pub(crate) struct KnownCategory {
    pub(crate) category: u16,
    pub(crate) subcategories: Vec<u16>,
}

/// The categories of a process; `None` for a profile of a time without them.
pub(crate) type Categories = Option<Vec<KnownCategory>>;

impl ModelBuilder {
    /// Returns a builder that adds further processes to a profile.
    pub(crate) fn extending(profile: ProfileModel) -> Self {
        let categories = || profile.categories.iter().zip(0..=u16::MAX);
        let mut subcategory_index = HashMap::new();
        for (category, index) in categories() {
            for (name, number) in category.subcategories.iter().zip(0..=u16::MAX) {
                let known = subcategory_index.entry((index, name.clone()));
                known.or_insert(number);
            }
        }
        let schemas = profile.marker_schemas.iter();
        Self {
            category_index: categories()
                .map(|(category, index)| (category.name.clone(), index))
                .collect(),
            subcategory_index,
            schema_names: schemas.map(|schema| schema.name.clone()).collect(),
            profile,
            ..Self::default()
        }
    }

    pub(crate) fn finish(mut self) -> ProfileModel {
        if self.profile.categories.is_empty() {
            self.profile.categories.push(Category {
                name: OTHER.to_owned(),
                color: "grey".to_owned(),
                subcategories: vec![OTHER.to_owned()],
            });
        }
        self.profile
    }

    /// Adds the categories of a process. Those of the first process keep their numbers; the others
    /// are found by their names.
    pub(crate) fn read_categories(
        &mut self,
        meta: &Object<'_, '_>,
    ) -> Result<Categories, ReadError> {
        let Some(list) = meta.get("categories") else {
            return Ok(None);
        };
        let is_first = self.profile.categories.is_empty();
        let mut known = Vec::new();
        for value in list.elements("an array of categories")? {
            let category = value.object("a category")?;
            let name = category.text("name")?;
            let color = category.text("color")?;
            let mut subcategories = Vec::new();
            let names = category.list("subcategories");
            for name in names.elements("an array of names")? {
                subcategories.push(name.string("the name of a subcategory")?.into_owned());
            }
            if subcategories.is_empty() {
                subcategories.push(OTHER.to_owned());
            }
            let too_many = || value.error("at most 65536 categories and subcategories");
            let found = self.category_index.get(&name).filter(|_| !is_first);
            let index = match found {
                Some(&index) => index,
                None => {
                    let categories = &mut self.profile.categories;
                    let index = u16::try_from(categories.len()).map_err(|_| too_many())?;
                    categories.push(Category {
                        name: name.clone(),
                        color,
                        subcategories: Vec::new(),
                    });
                    self.category_index.entry(name).or_insert(index);
                    index
                }
            };
            let merged = &mut self.profile.categories[usize::from(index)].subcategories;
            let is_new = merged.is_empty();
            let mut at = Vec::new();
            for (own, name) in subcategories.into_iter().enumerate() {
                let next = u16::try_from(merged.len());
                let known = self.subcategory_index.entry((index, name.clone()));
                let number = match known {
                    // Keeps the number of a name that a list has twice.
                    _ if merged.get(own) == Some(&name) => own as u16,
                    Entry::Occupied(known) if !is_new => *known.get(),
                    known => {
                        let next = next.map_err(|_| too_many())?;
                        merged.push(name);
                        known.or_insert(next);
                        next
                    }
                };
                at.push(number);
            }
            known.push(KnownCategory {
                category: index,
                subcategories: at,
            });
        }
        Ok(Some(known))
    }

    /// Adds the description of a marker type, unless another process has described it.
    pub(crate) fn add_schema(&mut self, name: String, json: String) {
        if self.schema_names.insert(name.clone()) {
            self.profile
                .marker_schemas
                .push(MarkerSchema { name, json });
        }
    }

    /// Returns a module that only its name is known of.
    pub(crate) fn unplaced_module(&mut self, process: usize, name: &str) -> ModuleId {
        let modules = &mut self.profile.modules;
        let key = (process, name.to_owned());
        *self.unplaced_modules.entry(key).or_insert_with(|| {
            modules.push(Module {
                process,
                name: name.to_owned(),
                debug_name: name.to_owned(),
                ..Module::default()
            });
            ModuleId(modules.len() as u32 - 1)
        })
    }

    /// Returns the index of a native symbol, and adds the symbol if it is new.
    pub(crate) fn native_symbol(&mut self, symbol: NativeSymbol) -> u32 {
        let key = (symbol.module, symbol.address, symbol.name);
        let symbols = &mut self.profile.native_symbols;
        *self.native_symbols.entry(key).or_insert_with(|| {
            symbols.push(symbol);
            symbols.len() as u32 - 1
        })
    }

    /// Returns the index of the process with this id.
    pub(crate) fn process_with(&self, pid: &str) -> Option<usize> {
        let mut processes = self.profile.processes.iter();
        processes.position(|process| process.pid == pid)
    }
}

/// The texts of a table of strings, and their ids once they were used.
pub(crate) struct Strings<'a> {
    texts: Vec<Cow<'a, str>>,
    ids: Vec<Option<TextId>>,
}

impl<'a> Strings<'a> {
    pub(crate) fn read(list: Value<'a, '_>) -> Result<Self, ReadError> {
        let texts = list.elements("an array of texts")?;
        let texts = texts.map(|text| text.string("a text"));
        let texts = texts.collect::<Result<Vec<_>, _>>()?;
        let ids = vec![None; texts.len()];
        Ok(Self { texts, ids })
    }

    pub(crate) fn get(&self, index: Value<'_, '_>) -> Result<&str, ReadError> {
        let index = index.index(self.texts.len(), "a string index")?;
        Ok(&self.texts[index])
    }

    /// Returns the id of a text in the profile.
    pub(crate) fn id(
        &mut self,
        profile: &mut ProfileModel,
        index: Value<'_, '_>,
    ) -> Result<TextId, ReadError> {
        let index = index.index(self.texts.len(), "a string index")?;
        let texts = &self.texts;
        let id = self.ids[index].get_or_insert_with(|| profile.intern(&texts[index]));
        Ok(*id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subcategories_of_processes_are_merged_by_name() {
        let mut builder = ModelBuilder::default();
        let mut read = |names: &str| {
            let text = format!(
                r#"{{"categories": [{{"name": "A", "color": "grey", "subcategories": {names}}}]}}"#
            );
            let meta = Value::parse(&text).expect("JSON");
            let meta = meta.object("an object").expect("an object");
            let known = builder.read_categories(&meta).expect("categories");
            known.expect("a list")[0].subcategories.clone()
        };
        assert_eq!(read(r#"["a", "b", "a"]"#), [0, 1, 2]);
        assert_eq!(read(r#"["c", "b", "a", "a"]"#), [3, 1, 2, 0]);

        let mut builder = ModelBuilder::extending(builder.finish());
        let text = r#"{"categories": [{"name": "A", "subcategories": ["c", "d"]}]}"#;
        let meta = Value::parse(text).expect("JSON");
        let meta = meta.object("an object").expect("an object");
        let known = builder.read_categories(&meta).expect("categories");
        assert_eq!(known.expect("a list")[0].subcategories, [3, 4]);
        let names = &builder.profile.categories[0].subcategories;
        assert_eq!(names, &["a", "b", "a", "c", "d"]);
    }
}
