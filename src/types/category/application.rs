//! Categories that the application defines in addition to Gecko's.
//!
//! A category gets its number on first use, because no part of a program knows the categories of
//! all its libraries in advance.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};

use crate::types::category::category_info::{
    CategoryInfo, GECKO_CATEGORIES, OTHER, is_known_color,
};

/// Maximum number of categories: the number of a category, including Gecko's, is a byte. Further
/// ones show as “Other”.
const MAX_REGISTERED: usize = u8::MAX as usize + 1 - GECKO_CATEGORIES;

/// The registered categories. The index is the category's number minus the number of Gecko's
/// categories. They are copies, because a definition may be unloaded together with its library
/// before a profile is written.
///
/// An entry below [`COUNT`] may be empty: registration raises the count before it sets the entry,
/// and leaves the entry empty if another thread has registered the same category.
///
/// A cell of std, because this code is also built without dependencies. No thread waits for another
/// here: only one sets an entry, and `get` does not block.
static REGISTERED: [OnceLock<CategoryInfo>; MAX_REGISTERED] =
    [const { OnceLock::new() }; MAX_REGISTERED];
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// A category defined by [`profiler_categories!`](crate::profiler_categories).
#[doc(hidden)]
#[derive(Debug)]
pub struct CategoryDefinition {
    info: CategoryInfo,
    /// The category's number plus 1; 0 until the category is registered. Not a `OnceLock`, which
    /// the child of a fork could inherit in the middle of its initialization.
    number_plus_one: AtomicU16,
}

impl CategoryDefinition {
    /// Creates a definition.
    ///
    /// # Panics
    /// Panics at compile time if the viewer does not support the color, or if there is no
    /// subcategory or more than 256.
    pub const fn new(
        label: &'static str,
        color: &'static str,
        subcategories: &'static [&'static str],
    ) -> Self {
        assert!(
            is_known_color(color),
            "unknown category color, expected transparent, blue, brown, darkgrey, green, grey, \
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
            number_plus_one: AtomicU16::new(0),
        }
    }

    fn number(&'static self) -> u8 {
        match self.number_plus_one.load(Ordering::Relaxed) {
            0 => self.register(),
            known => (known - 1) as u8,
        }
    }

    /// Returns a new number, or the number of an equal category. A library that is loaded again
    /// defines the same categories again. Allocates a copy of a new category.
    #[cold]
    fn register(&'static self) -> u8 {
        if let Some(number) = self.number_of_equal() {
            self.number_plus_one
                .store(u16::from(number) + 1, Ordering::Relaxed);
            return number;
        }
        // Not `fetch_add`: the count must not exceed the maximum.
        let index = COUNT.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |count| {
            (count < MAX_REGISTERED).then_some(count + 1)
        });
        let number = index.map_or(OTHER, |index| (GECKO_CATEGORIES + index) as u8);
        let before = self.number_plus_one.compare_exchange(
            0,
            u16::from(number) + 1,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        if let Err(known) = before {
            return (known - 1) as u8;
        }
        if let Ok(index) = index {
            // The number is set by now, so an allocator that uses the category does not register it
            // again. Never fails: no other thread has this index.
            let _ = REGISTERED[index].set(self.info.leaked_copy());
            if let Some(hook) = NEW_CATEGORY_HOOK.get() {
                hook();
            }
        }
        number
    }

    fn number_of_equal(&self) -> Option<u8> {
        let count = COUNT.load(Ordering::Acquire);
        let index = REGISTERED[..count]
            .iter()
            .position(|known| known.get() == Some(&self.info))?;
        Some((GECKO_CATEGORIES + index) as u8)
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

/// Called after a category was registered. Set once, by a higher layer.
static NEW_CATEGORY_HOOK: OnceLock<fn()> = OnceLock::new();
static HAS_HOOK: AtomicBool = AtomicBool::new(false);

/// Sets the function that is called after a category was registered, on the thread that uses it
/// first. The first one stays.
pub(crate) fn set_new_category_hook(hook: fn()) {
    // One thread sets it, so none waits, not even in the child of a fork.
    if !HAS_HOOK.swap(true, Ordering::Relaxed) {
        let _ = NEW_CATEGORY_HOOK.set(hook);
    }
}

/// Returns the categories of the application that were used, by their numbers; `None` for a number
/// that no category has, or whose category is being registered.
pub(crate) fn registered_categories() -> impl Iterator<Item = Option<&'static CategoryInfo>> {
    let count = COUNT.load(Ordering::Acquire);
    REGISTERED[..count].iter().map(OnceLock::get)
}
