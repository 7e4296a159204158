//! Categories that the application defines in addition to Gecko's.
//!
//! A category gets its number on first use, because no part of a program knows the categories of
//! all its libraries in advance.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::types::category::gecko::{CATEGORIES, CategoryInfo};

/// Maximum number of categories: the number of a category, including Gecko's, is a byte. Further
/// ones show as “Other”.
const MAX_REGISTERED: usize = u8::MAX as usize + 1 - CATEGORIES.len();

/// The registered categories. The index is the category's number minus the number of Gecko's
/// categories.
///
/// An entry below [`COUNT`] may still be empty: registration raises the count before it sets the
/// entry.
static REGISTERED: [OnceLock<&'static CategoryInfo>; MAX_REGISTERED] =
    [const { OnceLock::new() }; MAX_REGISTERED];
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Index of Gecko's category “Other”, used for categories beyond the maximum.
const OTHER: u8 = 1;

/// The colours that the viewer supports for categories.
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

/// Returns the index of a word in a list that contains it.
#[doc(hidden)]
pub const fn place_among(words: &[&str], word: &str) -> u8 {
    let mut index = 0;
    while index < words.len() {
        if is_same(words[index], word) {
            return index as u8;
        }
        index += 1;
    }
    panic!("the list contains the word")
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

/// A category defined by [`profiler_categories!`](crate::profiler_categories).
#[doc(hidden)]
#[derive(Debug)]
pub struct CategoryDefinition {
    info: CategoryInfo,
    number: OnceLock<u8>,
}

impl CategoryDefinition {
    /// Creates a definition.
    ///
    /// # Panics
    /// Panics at compile time if the viewer does not support the colour, or if there is no
    /// subcategory or more than 256.
    pub const fn new(
        label: &'static str,
        color: &'static str,
        subcategories: &'static [&'static str],
    ) -> Self {
        assert!(
            is_known_color(color),
            "unknown category colour, expected transparent, blue, brown, darkgrey, green, grey, \
             lightblue, lightgreen, lightred, magenta, orange, purple, red or yellow"
        );
        assert!(
            !subcategories.is_empty(),
            "got no subcategory, expected at least one, the default"
        );
        assert!(
            subcategories.len() <= u8::MAX as usize + 1,
            "got too many subcategories, expected at most 256"
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
            // Not `fetch_add`: the count must not exceed the maximum.
            let index = COUNT.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |count| {
                (count < MAX_REGISTERED).then_some(count + 1)
            });
            match index {
                Ok(index) => {
                    // Never fails: no other category has this index.
                    let _ = REGISTERED[index].set(&self.info);
                    (CATEGORIES.len() + index) as u8
                }
                Err(_) => OTHER,
            }
        })
    }
}

/// A category of the application with one of its subcategories, created by
/// [`profiler_categories!`](crate::profiler_categories).
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

    /// Returns the category's index in the profile, and the subcategory's index in the category.
    #[inline(always)]
    pub(crate) fn indices(self) -> (u8, u8) {
        match (self.definition)().number() {
            OTHER => (OTHER, 0),
            number => (number, self.subcategory),
        }
    }

    /// Returns the subcategory's label.
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

/// Returns all categories that a profile may refer to: Gecko's, then those of the application that
/// were used.
#[cfg(has_profiler)]
pub(crate) fn all_categories() -> Vec<&'static CategoryInfo> {
    let count = COUNT.load(Ordering::Acquire);
    let registered = REGISTERED[..count].iter().map(|entry| match entry.get() {
        Some(info) => info,
        None => &CATEGORIES[usize::from(OTHER)],
    });
    CATEGORIES.iter().chain(registered).collect()
}

#[cfg(all(test, has_profiler))]
mod tests {
    use super::*;
    use crate::types::category::gecko::ProfilingCategoryPair;

    fn definition() -> &'static CategoryDefinition {
        static DEFINITION: CategoryDefinition =
            CategoryDefinition::new("Mine", "red", &["Other", "Second"]);
        &DEFINITION
    }

    #[test]
    fn category_keeps_its_number_and_is_listed_after_first_use() {
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
    fn is_known_color_accepts_only_the_viewers_colours() {
        assert!(is_known_color("grey") && is_known_color("lightgreen"));
        assert!(!is_known_color("gray") && !is_known_color("pink") && !is_known_color(""));
    }
}
