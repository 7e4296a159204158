//! A module of the session, and the comparison of two modules.

use std::sync::Arc;

use crate::platform::ModuleImage;

/// A module of the session.
#[derive(Clone, Debug)]
pub(crate) struct LoadedModule {
    pub(crate) image: Arc<ModuleImage>,
    /// Whether the module was unloaded, so that its addresses may belong to other code now.
    pub(crate) unloaded: bool,
}

/// Returns whether both are the same file at the same address.
pub(crate) fn is_same_module(one: &ModuleImage, other: &ModuleImage) -> bool {
    one.range == other.range && one.path == other.path && one.build_id == other.build_id
}

/// Returns the index of the module at an address, among modules in the order of their addresses.
pub(crate) fn module_at(modules: &[LoadedModule], address: u64) -> Option<usize> {
    let after = modules.partition_point(|module| module.image.range.start <= address);
    let index = after.checked_sub(1)?;
    let range = &modules[index].image.range;
    range.contains(&address).then_some(index)
}
