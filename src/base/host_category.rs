//! Categories that the host makes beside Gecko's.
//!
//! A category gets its number when it is first used: there is no one who knows those of all libraries of a program before.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::base::category::{CATEGORIES, CategoryInfo};

/// So many there may be; what is beyond shows as “Other”.
const MOST: usize = u8::MAX as usize + 1 - CATEGORIES.len();

/// By their numbers, less those of Gecko's. One may be missing for a moment, between its number and its place here.
static REGISTERED: [OnceLock<&'static CategoryInfo>; MOST] = [const { OnceLock::new() }; MOST];
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// “Other”, for whose number there is no room.
const OTHER: u8 = 1;

/// The colours that the viewer has for categories.
const COLORS: [&str; 14] = [
    "transparent",
    "blue",
    "brown",
    "darkgrey",
    "green",
    "grey",
    "lightblue",
    "lightgreen",
    "lightred",
    "magenta",
    "orange",
    "purple",
    "red",
    "yellow",
];

const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    if one.len() != other.len() {
        return false;
    }
    let mut index = 0;
    while index < one.len() {
        if one[index] != other[index] {
            return false;
        }
        index += 1;
    }
    true
}

/// The place of a word in a list that has it.
#[doc(hidden)]
pub const fn place_among(words: &[&str], word: &str) -> u8 {
    let mut index = 0;
    while index < words.len() {
        if is_same(words[index], word) {
            return index as u8;
        }
        index += 1;
    }
    panic!("the list has each word that is asked for")
}

pub(crate) const fn is_known_color(color: &str) -> bool {
    let mut index = 0;
    while index < COLORS.len() {
        if is_same(COLORS[index], color) {
            return true;
        }
        index += 1;
    }
    false
}

/// What [`profiler_categories!`](crate::profiler_categories) makes a category of.
#[doc(hidden)]
#[derive(Debug)]
pub struct CategoryDefinition {
    info: CategoryInfo,
    number: OnceLock<u8>,
}

impl CategoryDefinition {
    /// # Panics
    /// At compile time: a colour that the viewer does not know, or no subcategory.
    pub const fn new(
        label: &'static str,
        color: &'static str,
        subcategories: &'static [&'static str],
    ) -> Self {
        assert!(
            is_known_color(color),
            "the Firefox Profiler's colours of categories are transparent, blue, brown, darkgrey, green, grey, \
             lightblue, lightgreen, lightred, magenta, orange, purple, red and yellow"
        );
        assert!(
            !subcategories.is_empty(),
            "a category has at least one subcategory, its default"
        );
        assert!(
            subcategories.len() <= u8::MAX as usize + 1,
            "a category has at most 256 subcategories"
        );
        Self {
            info: CategoryInfo {
                label,
                color,
                subcategories,
            },
            number: OnceLock::new(),
        }
    }

    fn number(&'static self) -> u8 {
        match self.number.get() {
            Some(&number) => number,
            None => self.register(),
        }
    }

    #[cold]
    fn register(&'static self) -> u8 {
        *self.number.get_or_init(|| {
            // It does not grow for ever.
            let place = COUNT.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |count| {
                (count < MOST).then_some(count + 1)
            });
            match place {
                Ok(place) => {
                    // Nobody else has this place.
                    let _ = REGISTERED[place].set(&self.info);
                    (CATEGORIES.len() + place) as u8
                }
                Err(_) => OTHER,
            }
        })
    }
}

/// A category of the host's with one of its subcategories: made by [`profiler_categories!`](crate::profiler_categories).
#[derive(Clone, Copy)]
pub struct HostCategory {
    definition: fn() -> &'static CategoryDefinition,
    subcategory: u8,
}

impl HostCategory {
    #[doc(hidden)]
    pub const fn new(definition: fn() -> &'static CategoryDefinition, subcategory: u8) -> Self {
        Self {
            definition,
            subcategory,
        }
    }

    /// The category's index in the profile's list, and the subcategory's in the category's.
    #[inline(always)]
    pub(crate) fn indices(self) -> (u8, u8) {
        match (self.definition)().number() {
            OTHER => (OTHER, 0),
            number => (number, self.subcategory),
        }
    }

    /// The subcategory's label.
    pub(crate) fn label(self) -> &'static str {
        let subcategories = (self.definition)().info.subcategories;
        subcategories
            .get(usize::from(self.subcategory))
            .copied()
            .unwrap_or_default()
    }
}

impl PartialEq for HostCategory {
    fn eq(&self, other: &Self) -> bool {
        let same_definition = std::ptr::eq((self.definition)(), (other.definition)());
        same_definition && self.subcategory == other.subcategory
    }
}

impl Eq for HostCategory {}

impl Hash for HostCategory {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (std::ptr::from_ref((self.definition)()), self.subcategory).hash(state);
    }
}

impl fmt::Debug for HostCategory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CategoryInfo {
            label,
            subcategories,
            ..
        } = (self.definition)().info;
        write!(
            f,
            "{label}: {}",
            subcategories
                .get(usize::from(self.subcategory))
                .unwrap_or(&"?")
        )
    }
}

/// All categories that a profile may name: Gecko's, then those of the host's that were ever used.
#[cfg(has_profiler)]
pub(crate) fn all_categories() -> Vec<&'static CategoryInfo> {
    let count = COUNT.load(Ordering::Acquire);
    let registered = REGISTERED[..count].iter().map(|place| match place.get() {
        Some(info) => info,
        None => &CATEGORIES[usize::from(OTHER)],
    });
    CATEGORIES.iter().chain(registered).collect()
}

#[cfg(all(test, has_profiler))]
mod tests {
    use super::*;
    use crate::base::ProfilingCategoryPair;

    fn definition() -> &'static CategoryDefinition {
        static DEFINITION: CategoryDefinition =
            CategoryDefinition::new("Mine", "red", &["Other", "Second"]);
        &DEFINITION
    }

    #[test]
    fn a_category_gets_its_number_once_and_is_listed_from_then_on() {
        let second = ProfilingCategoryPair::Host(HostCategory::new(definition, 1));
        let (number, subcategory) = second.indices();
        assert!(usize::from(number) >= CATEGORIES.len());
        assert_eq!((second.indices(), subcategory), ((number, 1), 1));
        let first = ProfilingCategoryPair::Host(HostCategory::new(definition, 0));
        assert_eq!(first.indices(), (number, 0));
        assert_ne!(first, second);
        let info = all_categories()[usize::from(number)];
        assert_eq!(
            (info.label, info.color, info.subcategories),
            ("Mine", "red", &["Other", "Second"][..])
        );
        assert_eq!(format!("{second:?}"), "Host(Mine: Second)");
        assert_eq!(
            second.to_cpp_enum_value(),
            ProfilingCategoryPair::Other(None).to_cpp_enum_value()
        );
    }

    #[test]
    fn colours_are_told_apart() {
        assert!(is_known_color("grey") && is_known_color("lightgreen"));
        assert!(!is_known_color("gray") && !is_known_color("pink") && !is_known_color(""));
    }
}
