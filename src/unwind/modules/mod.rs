//! Loaded modules: the table, its history, and the bounds of functions.

mod function_bounds;
mod loaded_module;
mod module_history;
mod module_table;

pub(crate) use function_bounds::FunctionBounds;
pub(crate) use loaded_module::{LoadedModule, module_at};
pub(crate) use module_history::AddressMeaning;
pub(crate) use module_table::ModuleTable;
