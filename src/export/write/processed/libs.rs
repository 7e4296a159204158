//! The libraries of all processes.

use std::collections::HashMap;

use crate::json::JsonWriter;
use crate::model::{Frame, Module, ModuleId, ProfileModel};

/// The list of libraries. Unlike the model's modules, a library has no place in memory: modules that
/// several processes loaded from the same file are one library.
pub(super) struct Libs {
    /// Index of the library of each module.
    by_module: Vec<u32>,
    /// The first module of each library.
    modules: Vec<ModuleId>,
}

impl Libs {
    pub(super) fn of(profile: &ProfileModel) -> Self {
        let mut known = HashMap::new();
        let mut modules = Vec::new();
        let mut add = |(index, module): (usize, &'_ Module)| -> u32 {
            let key = (
                module.path.clone(),
                module.debug_name.clone(),
                module.breakpad_id.clone(),
            );
            *known.entry(key).or_insert_with(|| {
                modules.push(ModuleId(index as u32));
                modules.len() as u32 - 1
            })
        };
        let by_module = profile.modules.iter().enumerate().map(&mut add).collect();
        Self { by_module, modules }
    }

    pub(super) fn of_module(&self, module: ModuleId) -> u32 {
        self.by_module[module.0 as usize]
    }

    /// Returns the library that a frame's code is in.
    pub(super) fn of_frame(&self, profile: &ProfileModel, frame: &Frame) -> Option<u32> {
        let symbol = frame
            .native_symbol
            .map(|at| &profile.native_symbols[at as usize]);
        let module = profile.function(frame.function).module;
        let module = module.or(symbol.map(|symbol| symbol.module));
        module.map(|module| self.of_module(module))
    }

    /// Writes all libraries, so that addresses without a name can be looked up later.
    pub(super) fn write(&self, json: &mut JsonWriter<'_>, profile: &ProfileModel) {
        json.array(|json| {
            for &module in &self.modules {
                let module = profile.module(module);
                json.object(|json| {
                    json.key("arch")
                        .string(module.arch.as_deref().unwrap_or(""));
                    json.key("name").string(&module.name);
                    json.key("path").string(&module.path);
                    json.key("debugName").string(&module.debug_name);
                    json.key("debugPath").string(&module.debug_path);
                    json.key("breakpadId").string(&module.breakpad_id);
                    match &module.code_id {
                        Some(id) => json.key("codeId").string(id),
                        None => json.key("codeId").null(),
                    }
                });
            }
        });
    }
}
