//! What the writer knows before it writes the first byte: the threads and the rows of the tables
//! that it writes, and the lists of libraries, categories and marker types.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};

use crate::export::options::ExportOptions;
use crate::export::run_loops::is_run_loop;
use crate::export::write::processed::columns::column;
use crate::json::JsonWriter;
use crate::model::{
    Category, CategoryPair, Frame, FrameId, FunctionKind, MarkerSchema, ModuleId, ProfileModel,
    Shown, StackId, TextId, show_threads,
};

/// Facts that all parts of the writer read.
pub(crate) struct Context<'a> {
    pub(crate) profile: &'a ProfileModel,
    pub(crate) options: &'a ExportOptions,
    /// Indices of the written threads, in their order.
    pub(crate) threads: Vec<usize>,
    /// How the file shows each thread of the profile.
    pub(crate) shown: Vec<Shown>,
    pub(crate) rows: UsedRows,
    pub(crate) libs: Libs,
    pub(crate) categories: Categories<'a>,
    pub(crate) schemas: Schemas,
}

impl<'a> Context<'a> {
    pub(crate) fn new(profile: &'a ProfileModel, options: &'a ExportOptions) -> Self {
        let shown = show_threads(profile.threads.iter().map(|thread| {
            let place = (thread.process, thread.asleep_at?);
            Some((thread.name.as_str(), place))
        }));
        let mut threads = options.tracks(profile);
        if options.thread.is_none() {
            threads.retain(|&index| shown[index] != Shown::ByAnother);
        }
        let rows = UsedRows::of(profile, &threads, options);
        Self {
            categories: Categories::of(profile, &rows),
            libs: Libs::of(profile),
            schemas: Schemas::of(profile),
            profile,
            options,
            threads,
            shown,
            rows,
        }
    }
}

/// The rows of the model's tables that the written threads need.
///
/// The model's tables are shared by all threads, and so are those of the format. Only the rows that
/// the written threads refer to are written, in the order of the model.
pub(crate) struct UsedRows {
    pub(crate) stacks: Rows,
    pub(crate) frames: Rows,
    pub(crate) functions: Rows,
    pub(crate) native_symbols: Rows,
    folds_runtime: bool,
}

impl UsedRows {
    /// Finds the rows that these threads need.
    fn of(profile: &ProfileModel, threads: &[usize], options: &ExportOptions) -> Self {
        let mut rows = Self {
            stacks: Rows::new(profile.stack_count()),
            frames: Rows::new(profile.frames().len()),
            functions: Rows::new(profile.functions().len()),
            native_symbols: Rows::new(profile.native_symbols.len()),
            folds_runtime: options.folds_runtime,
        };
        for &index in threads {
            let thread = &profile.threads[index];
            let sampled = options.rows(profile, thread);
            let sampled = sampled.filter_map(|row| row.sample.stack);
            let causes = thread
                .markers
                .iter()
                .filter_map(|marker| marker.payload?.stack);
            for stack in sampled.chain(causes.map(|(stack, _)| stack)) {
                rows.mark_stack(profile, stack);
            }
        }
        rows.stacks.number();
        rows.frames.number();
        rows.functions.number();
        rows.native_symbols.number();
        rows
    }

    fn mark_stack(&mut self, profile: &ProfileModel, stack: StackId) {
        let mut next = Some(stack);
        while let Some(stack) = next {
            if !self.stacks.mark(stack.0) {
                return;
            }
            let (_, frame) = profile.stack(stack);
            if self.frames.mark(frame.0) {
                let frame = profile.frame(frame);
                self.functions.mark(frame.function.0);
                if let Some(symbol) = frame.native_symbol {
                    self.native_symbols.mark(symbol);
                }
            }
            next = self.prefix(profile, stack);
        }
    }

    /// Returns the prefix that a stack has in the file. If the runtime is folded, stacks begin
    /// inside of its innermost run loop, after the root frame. A stack that ends in a run loop
    /// keeps that frame: without it, a sample in the run loop itself would be lost.
    pub(crate) fn prefix(&self, profile: &ProfileModel, stack: StackId) -> Option<StackId> {
        let prefix = profile.stack(stack).0?;
        let function = |stack| profile.frame(profile.stack(stack).1).function;
        let ends_in_run_loop = |stack| is_run_loop(profile, function(stack));
        if !self.folds_runtime || !ends_in_run_loop(stack) && !ends_in_run_loop(prefix) {
            return Some(prefix);
        }
        let outside = std::iter::successors(Some(prefix), |stack| profile.stack(*stack).0);
        let is_structure =
            |stack: &StackId| profile.function(function(*stack)).kind == FunctionKind::Structure;
        outside.last().filter(is_structure)
    }

    /// Returns the new index of a stack of a written thread.
    pub(crate) fn stack(&self, stack: StackId) -> u64 {
        self.stacks.new_index(stack.0).into()
    }

    pub(crate) fn frames<'a>(
        &'a self,
        profile: &'a ProfileModel,
    ) -> impl Iterator<Item = &'a Frame> {
        let used = self.frames.iter();
        used.map(|frame| profile.frame(FrameId(frame)))
    }
}

/// Marks a row that is not written.
const UNUSED: u32 = u32::MAX;

/// The rows of one table that are written, with their new indices.
pub(crate) struct Rows {
    /// By index in the model.
    new_indices: Vec<u32>,
    /// Indices in the model, in ascending order.
    used: Vec<u32>,
}

impl Rows {
    fn new(count: usize) -> Self {
        Self {
            new_indices: vec![UNUSED; count],
            used: Vec::new(),
        }
    }

    /// Marks a row as used. Returns whether it was not marked before.
    fn mark(&mut self, row: u32) -> bool {
        let index = &mut self.new_indices[row as usize];
        std::mem::replace(index, 0) == UNUSED
    }

    /// Gives the marked rows their new indices.
    fn number(&mut self) {
        for (row, index) in self.new_indices.iter_mut().enumerate() {
            if *index != UNUSED {
                *index = self.used.len() as u32;
                self.used.push(row as u32);
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.used.len()
    }

    /// Returns the indices in the model.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.used.iter().copied()
    }

    /// Returns the new index of a row that is written.
    pub(crate) fn new_index(&self, row: u32) -> u32 {
        self.new_indices[row as usize]
    }
}

/// The list of libraries. Unlike the model's modules, a library has no place in memory: modules
/// that several processes loaded from the same file are one library.
pub(crate) struct Libs {
    /// Index of the library of each module.
    by_module: Vec<u32>,
    /// The first module of each library.
    modules: Vec<ModuleId>,
}

impl Libs {
    fn of(profile: &ProfileModel) -> Self {
        let (mut known, mut modules) = (HashMap::new(), Vec::new());
        let by_module = (0..).zip(&profile.modules).map(|(index, module)| {
            let key = (&module.path, &module.debug_name, &module.breakpad_id);
            *known.entry(key).or_insert_with(|| {
                modules.push(ModuleId(index));
                modules.len() as u32 - 1
            })
        });
        Self {
            by_module: by_module.collect(),
            modules,
        }
    }

    pub(crate) fn of_module(&self, module: ModuleId) -> u32 {
        self.by_module[module.0 as usize]
    }

    /// Returns the library that a frame's code is in.
    pub(crate) fn of_frame(&self, profile: &ProfileModel, frame: &Frame) -> Option<u32> {
        let symbol = frame.native_symbol;
        let of_symbol = || Some(profile.native_symbols[symbol? as usize].module);
        let module = profile.function(frame.function).module.or_else(of_symbol);
        module.map(|module| self.of_module(module))
    }

    /// Writes all libraries, so that addresses without a name can be looked up later.
    pub(crate) fn write(&self, json: &mut JsonWriter<'_>, profile: &ProfileModel) {
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
                    let code_id = module.code_id.as_deref();
                    json.key("codeId").or_null(code_id, JsonWriter::string);
                });
            }
        });
    }
}

/// The color of the category that frames without one have. The viewer requires it.
const DEFAULT_COLOR: &str = "grey";

/// The categories that are written: the model's, and those that the format requires.
///
/// The format has no field for the engine that runs a script. As in Firefox's own profiles, the
/// engine is a subcategory of the frame's category.
pub(crate) struct Categories<'a> {
    profile: &'a ProfileModel,
    categories: Vec<Category>,
    /// Index of the category with the default color.
    default: u16,
    /// The subcategories of engines, by category.
    engines: HashMap<(u16, TextId), u16>,
}

impl<'a> Categories<'a> {
    fn of(profile: &'a ProfileModel, rows: &UsedRows) -> Self {
        let mut categories = profile.categories.clone();
        let is_default = |category: &Category| category.color == DEFAULT_COLOR;
        let default = categories.iter().position(is_default).unwrap_or_else(|| {
            categories.push(Category {
                name: "Other".to_owned(),
                color: DEFAULT_COLOR.to_owned(),
                subcategories: vec!["Other".to_owned()],
            });
            categories.len() - 1
        });
        let mut all = Self {
            profile,
            categories,
            default: default as u16,
            engines: HashMap::new(),
        };
        for frame in rows.frames(profile) {
            all.add_engine(frame);
        }
        all
    }

    /// Adds the engine of a script frame as a subcategory.
    fn add_engine(&mut self, frame: &Frame) {
        let (Some(pair), Some(engine)) = (self.pair(frame), frame.implementation) else {
            return;
        };
        // A frame with a subcategory of its own keeps it.
        if pair.subcategory != 0 || self.engines.contains_key(&(pair.category, engine)) {
            return;
        }
        let name = self.profile.text(engine);
        let subcategories = &mut self.categories[usize::from(pair.category)].subcategories;
        let known = subcategories.iter().position(|known| known == name);
        let index = known.unwrap_or_else(|| {
            subcategories.push(name.to_owned());
            subcategories.len() - 1
        });
        if let Ok(index) = u16::try_from(index) {
            self.engines.insert((pair.category, engine), index);
        }
    }

    /// Returns the category of a frame in the model, if it exists there.
    fn pair(&self, frame: &Frame) -> Option<CategoryPair> {
        let pair = frame.category?;
        let category = self.categories.get(usize::from(pair.category))?;
        let has_it = usize::from(pair.subcategory) < category.subcategories.len();
        let subcategory = if has_it { pair.subcategory } else { 0 };
        Some(CategoryPair {
            subcategory,
            ..pair
        })
    }

    /// Returns the category of a frame. `None` for that of its caller.
    pub(crate) fn of_frame(&self, frame: &Frame) -> Option<CategoryPair> {
        let pair = self.pair(frame)?;
        let engine = frame.implementation.filter(|_| pair.subcategory == 0);
        let engine = engine.and_then(|engine| self.engines.get(&(pair.category, engine)));
        Some(CategoryPair {
            subcategory: engine.copied().unwrap_or(pair.subcategory),
            ..pair
        })
    }

    /// Returns the category of a marker. One that does not exist breaks the viewer's chart of
    /// markers, so it is replaced.
    pub(crate) fn of_marker(&self, category: u16) -> u16 {
        match usize::from(category) < self.categories.len() {
            true => category,
            false => self.default,
        }
    }

    pub(crate) fn write(&self, json: &mut JsonWriter<'_>) {
        json.array(|json| {
            for category in &self.categories {
                json.object(|json| {
                    json.key("name").string(&category.name);
                    json.key("color").string(&category.color);
                    let names = category.subcategories.iter();
                    column(json, "subcategories", names, |json, name| json.string(name));
                });
            }
        });
    }
}

/// Display location of markers that the viewer shows next to the graph of their thread.
const OVERVIEW: &str = "timeline-overview";

/// The descriptions of all marker types.
pub(crate) struct Schemas {
    /// In the JSON of this format.
    schemas: Vec<String>,
    /// Names of the types with that display location.
    in_overview: HashSet<String>,
}

impl Schemas {
    fn of(profile: &ProfileModel) -> Self {
        let (mut schemas, mut in_overview) = (Vec::new(), HashSet::new());
        for schema in &profile.marker_schemas {
            let converted = convert(schema);
            let display = converted.get("display").and_then(Value::as_array);
            if display.is_some_and(|display| display.iter().any(|place| place == OVERVIEW)) {
                in_overview.insert(schema.name.clone());
            }
            schemas.push(Value::Object(converted).to_string());
        }
        Self {
            schemas,
            in_overview,
        }
    }

    pub(crate) fn is_in_overview(&self, type_name: &str) -> bool {
        self.in_overview.contains(type_name)
    }

    pub(crate) fn write(&self, json: &mut JsonWriter<'_>) {
        json.array(|json| self.schemas.iter().for_each(|schema| json.splice(schema)));
    }
}

/// Converts a description from Gecko's form. Gecko lists fields and fixed texts together, as
/// `data`. This format has the fields in `fields`, and one text, as `description`.
fn convert(schema: &MarkerSchema) -> Map<String, Value> {
    let parsed = serde_json::from_str(&schema.json).unwrap_or_default();
    let mut object = match parsed {
        Value::Object(object) => object,
        _ => Map::new(),
    };
    if let Some(Value::Array(data)) = object.remove("data") {
        let (fields, texts): (Vec<_>, Vec<_>) =
            data.into_iter().partition(|item| item.get("key").is_some());
        let is_description = |text: &&Value| text["label"] == "Description";
        let text = texts.iter().find(is_description).or(texts.first());
        if let Some(value) = text.and_then(|text| text.get("value")) {
            object.insert("description".to_owned(), value.clone());
        }
        object.insert("fields".to_owned(), fields.into());
    }
    // The viewer requires these.
    let required = [
        ("name", json!(schema.name)),
        ("display", json!(["marker-chart", "marker-table"])),
        ("fields", json!([])),
    ];
    for (key, value) in required {
        object.entry(key).or_insert(value);
    }
    object
}
