//! Categories: Gecko's list, and those that the application adds.

#[forbid(unsafe_code)]
mod application;
#[forbid(unsafe_code)]
mod gecko;

#[cfg(has_profiler)]
pub(crate) use application::all_categories;
pub use application::{CategoryDefinition, HostCategory, place_among};
#[cfg(all(has_profiler, any(test, fuzzing)))]
pub(crate) use gecko::CATEGORIES;
#[cfg(has_profiler)]
pub(crate) use gecko::CategoryInfo;
pub(crate) use gecko::subcategories;
pub use gecko::{ProfilingCategory, ProfilingCategoryPair};
