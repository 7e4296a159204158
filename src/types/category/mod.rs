//! Categories: Gecko's list, and those that the application adds.

#[forbid(unsafe_code)]
mod application;
#[forbid(unsafe_code)]
mod category_info;
#[forbid(unsafe_code)]
mod category_macros;
#[forbid(unsafe_code)]
mod gecko;

pub use application::{CategoryDefinition, HostCategory};
pub(crate) use application::{registered_categories, set_new_category_hook};
pub use category_info::place_among;
pub(crate) use category_info::{
    CategoryInfo, GECKO_CATEGORIES, OTHER as OTHER_CATEGORY, is_known_color,
};
#[cfg(any(test, fuzzing))]
pub(crate) use gecko::CATEGORIES;
pub(crate) use gecko::all_categories;
pub(crate) use gecko::subcategories;
pub use gecko::{ProfilingCategory, ProfilingCategoryPair};
