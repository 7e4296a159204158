//! Adds the frames and stacks of a process to the model.

use std::collections::HashMap;

use crate::model::{
    CategoryPair, Frame, FrameId, Function, FunctionKind, LABELS_LEFT_OUT, Module, ModuleId,
    NativeSymbol, OTHER_STACK, ProfileModel, ROOT, StackId, TRUNCATED, UNLOADED,
};
use crate::platform::ModuleImage;
use crate::stream::decode::{FrameKey, ProcessStreamingContext, ProfileSource};
use crate::stream::resolve::{
    Locations, ProfileNames, UNKNOWN_SCRIPT, breakpad_id, code_id, is_own_function, library_name,
};
use crate::symbols::{AddressName, SampledAddress};
use crate::types::{IDLE_INDEX, ScriptDescription, Wait};
use crate::unwind::{LoadedModule, module_at};

/// Adds frames to the model, each with the functions at its address.
pub(super) struct FrameBuilder<'a> {
    source: &'a ProfileSource,
    process: &'a ProcessStreamingContext,
    names: &'a ProfileNames,
    locations: Locations<'a>,
    /// The model's modules, in the order of the process's.
    modules: Vec<ModuleId>,
    /// Modules whose place another module has taken, by their number.
    replaced: HashMap<usize, Option<ModuleId>>,
    /// Indices of `ProfileModel::native_symbols`, by module and address.
    symbols: HashMap<(ModuleId, u64), u32>,
}

/// Where the code at an address comes from.
#[derive(Clone, Copy)]
struct Origin {
    module: Option<ModuleId>,
    /// The address in the process to which the model's addresses are relative; 0 without a module.
    base: u64,
}

fn add_module(profile: &mut ProfileModel, image: &ModuleImage, end: u64) -> ModuleId {
    let name = library_name(&image.path);
    let path = image.path.to_string_lossy();
    let path = path.trim_end_matches(" (deleted)");
    profile.modules.push(Module {
        process: 0,
        start: image.range.start,
        end,
        offset: 0,
        debug_name: name.clone(),
        name,
        path: path.to_owned(),
        debug_path: path.to_owned(),
        breakpad_id: breakpad_id(&image.build_id),
        code_id: code_id(&image.build_id),
        arch: Some(std::env::consts::ARCH.to_owned()),
    });
    ModuleId(profile.modules.len() as u32 - 1)
}

impl<'a> FrameBuilder<'a> {
    /// Adds the process's modules to the model.
    pub(super) fn new(
        profile: &mut ProfileModel,
        source: &'a ProfileSource,
        process: &'a ProcessStreamingContext,
        names: &'a ProfileNames,
    ) -> Self {
        let add =
            |LoadedModule { image, .. }: &LoadedModule| add_module(profile, image, image.range.end);
        Self {
            source,
            process,
            names,
            locations: Locations::new(source, &process.modules),
            modules: process.modules.iter().map(add).collect(),
            replaced: HashMap::new(),
            symbols: HashMap::new(),
        }
    }

    /// Adds all stacks. Returns the model's stack for each of the process.
    pub(super) fn add_stacks(&mut self, profile: &mut ProfileModel) -> Vec<StackId> {
        let keys = self.process.stacks.frames().iter();
        let frames: Vec<_> = keys.map(|key| self.frames_of(profile, key)).collect();
        let mut stacks: Vec<StackId> = Vec::with_capacity(self.process.stacks.stacks().len());
        for &(prefix, frame) in self.process.stacks.stacks() {
            let mut stack = prefix.map(|prefix| stacks[prefix as usize]);
            let functions = &frames[frame as usize];
            for (function, left) in functions.iter().zip((0..functions.len()).rev()) {
                let function = match self.process.stacks.frames()[frame as usize] {
                    FrameKey::Waiting(_, wait) if left == 0 => {
                        waiting_frame(profile, stack, *function, wait)
                    }
                    _ => *function,
                };
                stack = Some(profile.append_frame(stack, function));
            }
            // Every frame of the process has at least one in the model.
            stacks.extend(stack);
        }
        stacks
    }

    /// Returns the frames of a sampled frame, outermost first.
    fn frames_of(&mut self, profile: &mut ProfileModel, key: &FrameKey) -> Vec<FrameId> {
        let structure = |profile: &mut ProfileModel, text: &str| {
            let name = profile.intern(text);
            let function = Function::new(name, FunctionKind::Structure);
            let function = profile.intern_function(function);
            vec![profile.intern_frame(&Frame::new(function))]
        };
        match *key {
            FrameKey::Root => structure(profile, ROOT),
            FrameKey::OtherStack => structure(profile, OTHER_STACK),
            FrameKey::Truncated => structure(profile, TRUNCATED),
            FrameKey::LabelsLeftOut => structure(profile, LABELS_LEFT_OUT),
            FrameKey::NoStack(reason) => structure(profile, &reason.text()),
            FrameKey::Unknown => structure(profile, UNLOADED),
            FrameKey::Label {
                text,
                category,
                subcategory,
                relevant_for_js,
            } => {
                let name = profile.intern(self.process.label_texts.get(text));
                let function = profile.intern_function(Function {
                    is_relevant_for_js: relevant_for_js,
                    ..Function::new(name, FunctionKind::Label)
                });
                let category = category_pair(category, subcategory);
                vec![profile.intern_frame(&Frame {
                    category: Some(category),
                    ..Frame::new(function)
                })]
            }
            FrameKey::Script {
                function,
                line,
                column,
            } => {
                let unknown = ScriptDescription::new(UNKNOWN_SCRIPT, "", 0, 0);
                let description = self.source.script(function).unwrap_or(unknown);
                vec![script_frame(profile, &description, (line, column))]
            }
            FrameKey::Native(address) | FrameKey::Waiting(address, _) => {
                self.native(profile, address)
            }
            FrameKey::Replaced(number, address) => self.in_replaced(profile, number, address),
        }
    }

    fn native(&mut self, profile: &mut ProfileModel, address: SampledAddress) -> Vec<FrameId> {
        let at = address.lookup_address();
        if let Some(function) = self.locations.script_at(at) {
            return vec![script_frame(
                profile,
                &function,
                (function.line, function.column),
            )];
        }
        let index = module_at(&self.process.modules, at);
        let origin = match index {
            Some(index) => Origin {
                module: Some(self.modules[index]),
                base: self.process.modules[index].image.range.start,
            },
            None => Origin {
                module: None,
                base: 0,
            },
        };
        let names = self.names;
        self.functions(profile, at, origin, names.now(address))
    }

    fn in_replaced(
        &mut self,
        profile: &mut ProfileModel,
        number: usize,
        address: SampledAddress,
    ) -> Vec<FrameId> {
        let image = self.source.modules.replaced(number);
        let module = *self.replaced.entry(number).or_insert_with(|| {
            // Its range is empty, because the range of another module has taken its place.
            image.map(|image| add_module(profile, image, image.range.start))
        });
        let origin = Origin {
            module,
            base: image.map_or(0, |image| image.range.start),
        };
        let names = self.names;
        let name = names.in_replaced(number, address);
        self.functions(profile, address.lookup_address(), origin, name)
    }

    /// Returns a frame for each function at an address, outermost first.
    fn functions(
        &mut self,
        profile: &mut ProfileModel,
        at: u64,
        Origin { module, base }: Origin,
        named: Option<&AddressName>,
    ) -> Vec<FrameId> {
        let relative = at.wrapping_sub(base);
        let Some(AddressName { functions, symbol }) = named else {
            let name = profile.intern(&format!("{relative:#x}"));
            let function = profile.intern_function(Function {
                module,
                ..Function::new(name, FunctionKind::Native)
            });
            return vec![profile.intern_frame(&Frame {
                address: Some(relative),
                ..Frame::new(function)
            })];
        };
        let place = module.zip(*symbol);
        let native_symbol = place.map(|(module, place)| {
            let name = functions.last().map_or("", |function| &function.function);
            let address = place.start.wrapping_sub(base);
            *self.symbols.entry((module, address)).or_insert_with(|| {
                let name = profile.intern(name);
                profile.native_symbols.push(NativeSymbol {
                    module,
                    address,
                    size: Some(place.size).filter(|size| *size > 0),
                    name,
                });
                profile.native_symbols.len() as u32 - 1
            })
        });
        let outermost_first = functions.iter().rev().zip(0..=u16::MAX);
        let frame = |(name, inline_depth): (&crate::symbols::FrameName, u16)| {
            let file = name.file.as_ref().map(|file| profile.intern(file));
            let name_text = profile.intern(&name.function);
            let function = profile.intern_function(Function {
                module,
                file,
                ..Function::new(name_text, FunctionKind::Native)
            });
            profile.intern_frame(&Frame {
                address: Some(relative),
                inline_depth,
                native_symbol,
                line: name.line,
                column: name.column,
                ..Frame::new(function)
            })
        };
        outermost_first.map(frame).collect()
    }
}

/// Returns the frame of a function in which a thread waits, called by this stack.
fn waiting_frame(
    profile: &mut ProfileModel,
    stack: Option<StackId>,
    frame: FrameId,
    wait: Wait,
) -> FrameId {
    let callers = profile.stack_frames(stack);
    let names = callers.map(|frame| profile.function_name(profile.frame(frame).function));
    let wait = wait.in_functions(names);
    let waiting = Frame {
        category: Some(category_pair(IDLE_INDEX, wait.subcategory())),
        ..profile.frame(frame).clone()
    };
    profile.intern_frame(&waiting)
}

fn category_pair(category: u8, subcategory: u8) -> CategoryPair {
    CategoryPair {
        category: category.into(),
        subcategory: subcategory.into(),
    }
}

fn script_frame(
    profile: &mut ProfileModel,
    description: &ScriptDescription<'_>,
    (line, column): (u32, u32),
) -> FrameId {
    let known = |number: u32| Some(number).filter(|number| *number > 0);
    let name = profile.intern(description.name);
    let file = Some(description.file).filter(|file| !file.is_empty());
    let file = file.map(|file| profile.intern(file));
    let function = profile.intern_function(Function {
        file,
        line: known(description.line),
        column: known(description.column),
        is_relevant_for_js: true,
        ..Function::new(name, FunctionKind::Script)
    });
    let implementation = description.implementation.name();
    let implementation = implementation.map(|name| profile.intern(name));
    let (category, subcategory) = description.category_indices();
    profile.intern_frame(&Frame {
        line: known(line),
        column: known(column),
        category: Some(category_pair(category, subcategory)),
        inner_window_id: description.inner_window_id,
        implementation,
        ..Frame::new(function)
    })
}

/// Returns the stack without the profiler's functions at its inner end: functions that were inlined
/// into the caller, and functions that drop a guard.
pub(super) fn without_own_functions(profile: &ProfileModel, stack: StackId) -> StackId {
    profile.without_inner(stack, |frame| {
        let function = profile.function(frame.function);
        function.kind == FunctionKind::Native && is_own_function(profile.text(function.name))
    })
}
