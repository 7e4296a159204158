//! The categories of frames and markers.

use std::collections::HashMap;

use crate::export::write::processed::used_rows::UsedRows;
use crate::json::JsonWriter;
use crate::model::{Category, CategoryPair, Frame, ProfileModel, TextId};

/// The color of the category that frames without one have. The viewer requires it.
const DEFAULT_COLOR: &str = "grey";

/// The categories that are written: the model's, and those that the format requires.
///
/// The format has no field for the engine that runs a script. As in Firefox's own profiles, the
/// engine is a subcategory of the frame's category.
pub(super) struct Categories<'a> {
    profile: &'a ProfileModel,
    categories: Vec<Category>,
    /// Index of the category with the default color.
    default: u16,
    /// The subcategories of engines, by category.
    engines: HashMap<(u16, TextId), u16>,
}

impl<'a> Categories<'a> {
    pub(super) fn of(profile: &'a ProfileModel, rows: &UsedRows) -> Self {
        let mut categories = profile.categories.clone();
        let is_default = |category: &Category| category.color == DEFAULT_COLOR;
        let default = categories.iter().position(is_default).unwrap_or_else(|| {
            categories.push(Category {
                name: "Other".to_owned(),
                color: DEFAULT_COLOR.to_owned(),
                subcategories: vec!["Other".to_owned()],
            });
            categories.len() - 1
        });
        let mut all = Self {
            profile,
            categories,
            default: default as u16,
            engines: HashMap::new(),
        };
        for frame in rows.frames(profile) {
            all.add_engine(frame);
        }
        all
    }

    /// Adds the engine of a script frame as a subcategory.
    fn add_engine(&mut self, frame: &Frame) {
        let (Some(pair), Some(engine)) = (self.pair(frame), frame.implementation) else {
            return;
        };
        // A frame with a subcategory of its own keeps it.
        if pair.subcategory != 0 || self.engines.contains_key(&(pair.category, engine)) {
            return;
        }
        let name = self.profile.text(engine);
        let subcategories = &mut self.categories[usize::from(pair.category)].subcategories;
        let known = subcategories.iter().position(|known| known == name);
        let index = known.unwrap_or_else(|| {
            subcategories.push(name.to_owned());
            subcategories.len() - 1
        });
        if let Ok(index) = u16::try_from(index) {
            self.engines.insert((pair.category, engine), index);
        }
    }

    /// Returns the category of a frame in the model, if it exists there.
    fn pair(&self, frame: &Frame) -> Option<CategoryPair> {
        let pair = frame.category?;
        let category = self.categories.get(usize::from(pair.category))?;
        let has_it = usize::from(pair.subcategory) < category.subcategories.len();
        let subcategory = if has_it { pair.subcategory } else { 0 };
        Some(CategoryPair {
            subcategory,
            ..pair
        })
    }

    /// Returns the category of a frame. `None` for that of its caller.
    pub(super) fn of_frame(&self, frame: &Frame) -> Option<CategoryPair> {
        let pair = self.pair(frame)?;
        let engine = frame.implementation.filter(|_| pair.subcategory == 0);
        let engine = engine.and_then(|engine| self.engines.get(&(pair.category, engine)));
        Some(CategoryPair {
            subcategory: engine.copied().unwrap_or(pair.subcategory),
            ..pair
        })
    }

    /// Returns the category of a marker. One that does not exist breaks the viewer's chart of
    /// markers, so it is replaced.
    pub(super) fn of_marker(&self, category: u16) -> u16 {
        match usize::from(category) < self.categories.len() {
            true => category,
            false => self.default,
        }
    }

    pub(super) fn write(&self, json: &mut JsonWriter<'_>) {
        json.array(|json| {
            for category in &self.categories {
                json.object(|json| {
                    json.key("name").string(&category.name);
                    json.key("color").string(&category.color);
                    json.key("subcategories").array(|json| {
                        category
                            .subcategories
                            .iter()
                            .for_each(|name| json.string(name));
                    });
                });
            }
        });
    }
}
