//! What the threads of a profile share while the processed format is read.

use std::collections::HashMap;

use crate::export::read::builder::Categories;
use crate::export::read::marker_fields::IndexFields;
use crate::export::read::meta::CpuUnit;
use crate::model::ModuleId;

/// What the threads of a profile share.
pub(super) struct ProcessedProfile {
    pub(super) categories: Categories,
    pub(super) index_fields: IndexFields,
    pub(super) cpu_unit: CpuUnit,
    pub(super) modules: Vec<ModuleId>,
    /// Indices of the processes by their ids.
    pub(super) processes: HashMap<String, usize>,
}
