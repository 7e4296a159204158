//! The messages of `profile.proto` of google/pprof, with the fields that the writer fills in, and
//! the tables that samples refer to: texts, functions, locations and mappings.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::io::{self, Write};

use prost::Message;

use crate::export::function_groups::main_module;
use crate::export::options::ExportOptions;
use crate::export::run_loops::{folded_runtime, frames_inside};
use crate::model::{
    FrameId, FunctionId, FunctionKind, Module, ModuleId, ProfileModel, StackId, TextId,
};
use crate::util::{NumberMap, TextTable};

/// A profile. The writer writes it in parts: a reader that finds a list in several parts appends
/// them.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Profile {
    #[prost(message, repeated, tag = "1")]
    pub(crate) sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) function: Vec<Function>,
    /// All texts. Other messages refer to them by their index. The first one is empty.
    #[prost(string, repeated, tag = "6")]
    pub(crate) string_table: Vec<String>,
    /// Present so that tests see that it is never written.
    #[prost(int64, tag = "7")]
    pub(crate) drop_frames: i64,
    /// Start of the profile, in ns since the Unix epoch.
    #[prost(int64, tag = "9")]
    pub(crate) time_nanos: i64,
    #[prost(int64, tag = "10")]
    pub(crate) duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    pub(crate) period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    pub(crate) period: i64,
    /// The sample type that a reader shows first; 0 for the last one.
    #[prost(int64, tag = "14")]
    pub(crate) default_sample_type: i64,
}

/// The meaning and the unit of a value, as texts.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct ValueType {
    #[prost(int64, tag = "1")]
    pub(crate) kind: i64,
    #[prost(int64, tag = "2")]
    pub(crate) unit: i64,
}

/// The values of all samples with one stack and the same labels.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Sample {
    /// Ids of the locations, the innermost first.
    #[prost(uint64, repeated, tag = "1")]
    pub(crate) location_id: Vec<u64>,
    /// One value for each sample type.
    #[prost(int64, repeated, tag = "2")]
    pub(crate) value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) label: Vec<Label>,
}

/// A label of a sample: a text or a number.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct Label {
    #[prost(int64, tag = "1")]
    pub(crate) key: i64,
    #[prost(int64, tag = "2")]
    pub(crate) str: i64,
    #[prost(int64, tag = "3")]
    pub(crate) num: i64,
}

/// A module at its addresses.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Mapping {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    #[prost(uint64, tag = "2")]
    pub(crate) memory_start: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) memory_limit: u64,
    #[prost(uint64, tag = "4")]
    pub(crate) file_offset: u64,
    #[prost(int64, tag = "5")]
    pub(crate) filename: i64,
    #[prost(int64, tag = "6")]
    pub(crate) build_id: i64,
    #[prost(bool, tag = "7")]
    pub(crate) has_functions: bool,
    #[prost(bool, tag = "8")]
    pub(crate) has_filenames: bool,
    #[prost(bool, tag = "9")]
    pub(crate) has_line_numbers: bool,
    #[prost(bool, tag = "10")]
    pub(crate) has_inline_frames: bool,
}

/// An address with its functions, or a frame that has no address.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Location {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    /// 0 for none.
    #[prost(uint64, tag = "2")]
    pub(crate) mapping_id: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) address: u64,
    /// The innermost inlined function first, and the one that the others were inlined into last.
    #[prost(message, repeated, tag = "4")]
    pub(crate) line: Vec<Line>,
}

/// A position in a function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub(crate) struct Line {
    #[prost(uint64, tag = "1")]
    pub(crate) function_id: u64,
    #[prost(int64, tag = "2")]
    pub(crate) line: i64,
    #[prost(int64, tag = "3")]
    pub(crate) column: i64,
}

/// A function.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Function {
    #[prost(uint64, tag = "1")]
    pub(crate) id: u64,
    /// The name for people.
    #[prost(int64, tag = "2")]
    pub(crate) name: i64,
    /// The name in the symbol table.
    #[prost(int64, tag = "3")]
    pub(crate) system_name: i64,
    #[prost(int64, tag = "4")]
    pub(crate) filename: i64,
    #[prost(int64, tag = "5")]
    pub(crate) start_line: i64,
}

/// A part of the profile is written once it has this many samples.
const SAMPLES_IN_PART: usize = 1024;

/// Writes a profile in parts, and gives texts, functions and locations their numbers. Each of them
/// is written before or with the first sample that refers to it, and then only its number is kept.
pub(crate) struct Tables<'a> {
    profile: &'a ProfileModel,
    out: &'a mut dyn Write,
    /// What is not written yet.
    pub(crate) part: Profile,
    encoded: Vec<u8>,
    texts: TextTable,
    text_count: u32,
    /// By the function and its name in the symbol table. The key `None` is the function of samples
    /// without a stack.
    functions: HashMap<Option<(FunctionId, TextId)>, u64>,
    locations: HashMap<LocationKey, u32>,
    /// The locations of frames without inlined functions.
    frame_locations: NumberMap<u32>,
    /// The places of the stacks, as far as they were asked for.
    places: Vec<Option<Place>>,
    /// For each stack, as far as it was asked for: the stack that ends in its innermost label.
    labeled: Vec<Option<Option<StackId>>>,
    /// The texts with all labels of the stacks that end in a label, by index.
    label_paths: NumberMap<i64>,
    /// What the profile knows about the frames of each module; `None` for a module without frames.
    modules: Vec<Option<KnownOfModule>>,
}

/// The id of the mapping, the address, and the positions of a location.
type LocationKey = (u64, u64, Vec<Line>);

/// The innermost location of a stack, and what is outside of it.
#[derive(Clone, Copy)]
struct Place {
    /// `None` if the stack shows no frame.
    location: Option<u32>,
    caller: Option<StackId>,
}

/// What the frames of a module have.
#[derive(Clone, Copy, Default)]
struct KnownOfModule {
    functions: bool,
    files: bool,
    lines: bool,
    inlined: bool,
}

impl<'a> Tables<'a> {
    pub(crate) fn new(profile: &'a ProfileModel, out: &'a mut dyn Write) -> Self {
        let mut tables = Self {
            profile,
            out,
            part: Profile::default(),
            encoded: Vec::new(),
            texts: TextTable::default(),
            text_count: 0,
            functions: HashMap::new(),
            locations: HashMap::new(),
            frame_locations: NumberMap::default(),
            places: vec![None; profile.stack_count()],
            labeled: vec![None; profile.stack_count()],
            label_paths: NumberMap::default(),
            modules: vec![None; profile.modules.len()],
        };
        // The format requires that the first text is empty.
        tables.text("");
        tables
    }

    /// Returns the index of a text.
    pub(crate) fn text(&mut self, text: &str) -> i64 {
        let index = self.texts.intern(text);
        if index == self.text_count {
            self.text_count += 1;
            self.part.string_table.push(text.to_owned());
        }
        i64::from(index)
    }

    pub(crate) fn value_type(&mut self, kind: &str, unit: &str) -> ValueType {
        ValueType {
            kind: self.text(kind),
            unit: self.text(unit),
        }
    }

    /// Returns the ids of a stack's locations, the innermost first.
    pub(crate) fn stack(&mut self, options: &ExportOptions, stack: Option<StackId>) -> Vec<u64> {
        let profile = self.profile;
        // Looked for once, because that goes through the whole stack.
        let runtime = OnceCell::new();
        let mut ids = Vec::new();
        let mut next = stack;
        while let Some(current) = next {
            let place = self.places[current.0 as usize].unwrap_or_else(|| {
                let folded = || folded_runtime(profile, options.folds_runtime, stack);
                let runtime = runtime.get_or_init(folded);
                self.place(current, *runtime)
            });
            self.places[current.0 as usize] = Some(place);
            ids.extend(place.location.map(u64::from));
            next = place.caller;
        }
        if ids.is_empty() {
            ids.push(self.no_stack());
        }
        ids
    }

    /// Returns the innermost location of a stack. Functions that were inlined at one address share
    /// its location. `runtime` is the part of the stack that is left out.
    fn place(&mut self, stack: StackId, runtime: Option<StackId>) -> Place {
        let profile = self.profile;
        let mut visible = frames_inside(profile, Some(stack), runtime);
        let mut inlined: Vec<FrameId> = Vec::new();
        let caller = loop {
            let Some((stack, id)) = visible.next() else {
                break None;
            };
            if let Some(inner) = inlined.last() {
                let (inner, frame) = (profile.frame(*inner), profile.frame(id));
                let is_its_caller = inner.inline_depth == frame.inline_depth.saturating_add(1)
                    && inner.address == frame.address;
                if inner.inline_depth == 0 || !is_its_caller {
                    break Some(stack);
                }
            }
            inlined.push(id);
        };
        Place {
            location: (!inlined.is_empty()).then(|| self.location(&inlined)),
            caller,
        }
    }

    /// Returns the index of the text with the labels in a stack, the outermost first. `None` if it
    /// has no labels.
    pub(crate) fn label_path(&mut self, stack: Option<StackId>) -> Option<i64> {
        let labeled = self.innermost_label(stack?)?;
        if let Some(known) = self.label_paths.get(&labeled.0.into()) {
            return Some(*known);
        }
        let profile = self.profile;
        let frames = profile.stack_frames(Some(labeled));
        let functions = frames.map(|frame| profile.function(profile.frame(frame).function));
        let labels = functions.filter(|function| function.kind == FunctionKind::Label);
        let mut path: Vec<_> = labels.map(|label| profile.text(label.name)).collect();
        path.reverse();
        let path = self.text(&path.join(";"));
        self.label_paths.insert(labeled.0.into(), path);
        Some(path)
    }

    /// Returns the stack that ends in the innermost label of a stack.
    fn innermost_label(&mut self, stack: StackId) -> Option<StackId> {
        let profile = self.profile;
        let mut unknown = Vec::new();
        let mut next = Some(stack);
        let found = loop {
            let Some(stack) = next else {
                break None;
            };
            if let Some(known) = self.labeled[stack.0 as usize] {
                break known;
            }
            unknown.push(stack);
            let (prefix, frame) = profile.stack(stack);
            if profile.function(profile.frame(frame).function).kind == FunctionKind::Label {
                break Some(stack);
            }
            next = prefix;
        };
        for stack in unknown {
            self.labeled[stack.0 as usize] = Some(found);
        }
        found
    }

    /// Returns the id of the location of samples without a stack. Readers leave a sample without
    /// locations out of some views, so their totals would differ.
    fn no_stack(&mut self) -> u64 {
        let line = Line {
            function_id: self.function(None),
            ..Line::default()
        };
        self.location_id((0, 0, vec![line])).into()
    }

    /// Returns the id of the location of frames that share an address, the innermost first.
    fn location(&mut self, frames: &[FrameId]) -> u32 {
        let &[frame] = frames else {
            return self.new_location(frames);
        };
        if let Some(known) = self.frame_locations.get(&frame.0.into()) {
            return *known;
        }
        let location = self.new_location(frames);
        self.frame_locations.insert(frame.0.into(), location);
        location
    }

    fn new_location(&mut self, frames: &[FrameId]) -> u32 {
        let profile = self.profile;
        let outermost = profile.frame(frames[frames.len() - 1]);
        let module = profile.function(outermost.function).module;
        let relative = outermost.address.unwrap_or(0);
        let address = module.map_or(relative, |module| {
            let Module { start, offset, .. } = profile.module(module);
            relative.wrapping_sub(*offset).wrapping_add(*start)
        });
        let lines: Vec<Line> = frames.iter().filter_map(|id| self.line(*id)).collect();
        if let Some(module) = module {
            let known = self.modules[module.0 as usize].get_or_insert_default();
            known.functions |= !lines.is_empty();
            known.lines |= lines.iter().any(|line| line.line != 0);
            known.inlined |= frames.len() > 1;
        }
        self.location_id((module.map_or(0, mapping_id), address, lines))
    }

    fn location_id(&mut self, key: LocationKey) -> u32 {
        if let Some(known) = self.locations.get(&key) {
            return *known;
        }
        let id = self.locations.len() as u32 + 1;
        self.part.location.push(Location {
            id: id.into(),
            mapping_id: key.0,
            address: key.1,
            line: key.2.clone(),
        });
        self.locations.insert(key, id);
        id
    }

    /// Returns the position of a frame in its function. A native function without a name has none,
    /// so that a reader can still look for the name.
    fn line(&mut self, frame: FrameId) -> Option<Line> {
        let profile = self.profile;
        let frame = profile.frame(frame);
        let function = profile.function(frame.function);
        let name = profile.text(function.name);
        if function.kind == FunctionKind::Native && name.starts_with("0x") {
            return None;
        }
        if let (Some(module), Some(_)) = (function.module, function.file) {
            let known = self.modules[module.0 as usize].get_or_insert_default();
            known.files = true;
        }
        let symbol = frame.native_symbol.filter(|_| frame.inline_depth == 0);
        let symbol = symbol.and_then(|symbol| profile.native_symbols.get(symbol as usize));
        let system_name = symbol.map_or(function.name, |symbol| symbol.name);
        Some(Line {
            function_id: self.function(Some((frame.function, system_name))),
            line: i64::from(frame.line.unwrap_or(0)),
            column: i64::from(frame.column.unwrap_or(0)),
        })
    }

    /// Returns the id of a function with its name in the symbol table, or of the function of samples
    /// without a stack.
    fn function(&mut self, key: Option<(FunctionId, TextId)>) -> u64 {
        if let Some(known) = self.functions.get(&key) {
            return *known;
        }
        let id = self.functions.len() as u64 + 1;
        let message = match key {
            Some((function, system_name)) => {
                let profile = self.profile;
                let function = profile.function(function);
                let file = function.file.map(|file| profile.text(file));
                Function {
                    id,
                    name: self.text(profile.text(function.name)),
                    system_name: self.text(profile.text(system_name)),
                    filename: file.map_or(0, |file| self.text(file)),
                    start_line: i64::from(function.line.unwrap_or(0)),
                }
            }
            None => {
                let name = self.text("(no stack)");
                Function {
                    id,
                    name,
                    system_name: name,
                    ..Function::default()
                }
            }
        };
        self.part.function.push(message);
        self.functions.insert(key, id);
        id
    }

    pub(crate) fn sample(&mut self, sample: Sample) -> io::Result<()> {
        self.part.sample.push(sample);
        if self.part.sample.len() >= SAMPLES_IN_PART {
            self.write_part()?;
        }
        Ok(())
    }

    /// Writes the mappings of all modules that have a location, and the rest of the profile. The
    /// mapping of the program comes first, as readers expect.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        let main = main_module(self.profile);
        let modules = (0..self.modules.len()).filter(|index| Some(*index) != main);
        for index in main.into_iter().chain(modules) {
            let known = match self.modules[index] {
                Some(known) => known,
                None if Some(index) == main => KnownOfModule::default(),
                None => continue,
            };
            let mapping = self.mapping(index, known);
            self.part.mapping.push(mapping);
        }
        self.write_part()
    }

    fn mapping(&mut self, index: usize, known: KnownOfModule) -> Mapping {
        let profile = self.profile;
        let module = &profile.modules[index];
        let file = [&module.path, &module.name, &module.debug_name];
        let file = file.into_iter().find(|name| !name.is_empty());
        let build_id = module.code_id.as_ref().unwrap_or(&module.breakpad_id);
        Mapping {
            id: mapping_id(ModuleId(index as u32)),
            memory_start: module.start,
            memory_limit: module.end,
            file_offset: module.offset,
            filename: file.map_or(0, |file| self.text(file)),
            build_id: self.text(build_id),
            has_functions: known.functions,
            has_filenames: known.files,
            has_line_numbers: known.lines,
            has_inline_frames: known.inlined,
        }
    }

    fn write_part(&mut self) -> io::Result<()> {
        self.encoded.clear();
        self.part
            .encode(&mut self.encoded)
            .map_err(io::Error::other)?;
        self.part = Profile::default();
        self.out.write_all(&self.encoded)
    }
}

fn mapping_id(module: ModuleId) -> u64 {
    u64::from(module.0) + 1
}
