//! What the threads of a process share while Gecko's JSON is read.

use std::collections::HashMap;

use crate::export::read::builder::Categories;
use crate::export::read::marker_fields::IndexFields;
use crate::export::read::meta::CpuUnit;
use crate::model::ModuleId;

/// What the threads of a process share.
pub(super) struct GeckoProcess {
    /// Start of the process, in ns since the profile's start. Its times are relative to it.
    pub(super) offset_ns: i64,
    pub(super) categories: Categories,
    pub(super) index_fields: IndexFields,
    pub(super) cpu_unit: CpuUnit,
    /// Sorted by address.
    pub(super) modules: Vec<ModuleId>,
    /// By their names.
    pub(super) module_names: HashMap<String, ModuleId>,
    /// Index of the process in the model.
    pub(super) process: usize,
}
