//! The nodes of V8's CPU profiles, which `.cpuprofile` files and traces contain.

use std::collections::HashMap;

use crate::export::options::ExportOptions;
use crate::export::run_loops::folded_runtime;
use crate::export::write::formats::ticks::Activity;
use crate::json::JsonWriter;
use crate::model::{CallNode, CallNodes, FunctionId, NodeId, ProfileModel, StackId};

/// Ids of the nodes that are not functions.
pub(crate) const ROOT: u32 = 1;
const UNUSED_PROGRAM: u32 = 2;
pub(crate) const IDLE: u32 = 3;
pub(crate) const PROGRAM: u32 = 4;
/// Id of the first function's node.
const FIRST_CALL: u32 = 5;

/// The nodes that are always there, with their ids. DevTools knows them by their names.
///
/// DevTools takes the first `(program)` for V8's own node. It replaces a single sample of that node
/// by the sample before, if the stack after it begins with the same function. So the samples
/// without a stack belong to a second node.
pub(crate) const FIXED_NODES: [(u32, &str); 4] = [
    (ROOT, "(root)"),
    (UNUSED_PROGRAM, "(program)"),
    (IDLE, "(idle)"),
    (PROGRAM, "(program)"),
];

/// Returns the id of a call node in the file.
pub(crate) fn id_of_call(node: NodeId) -> u32 {
    node.0 + FIRST_CALL
}

/// Returns the id of the node that calls this one.
pub(crate) fn parent_id(node: &CallNode) -> u32 {
    node.parent.map_or(ROOT, id_of_call)
}

/// The nodes of one thread. Ids are given in the order of first use, a caller's before those of the
/// functions that it calls.
pub(crate) struct ProfileNodes<'a> {
    profile: &'a ProfileModel,
    folds_runtime: bool,
    pub(crate) calls: CallNodes,
    /// The id of each stack's node; 0 if the stack was not looked up.
    ids: Vec<u32>,
    /// The ids of scripts, by URL.
    scripts: HashMap<&'a str, usize>,
}

impl<'a> ProfileNodes<'a> {
    pub(crate) fn new(profile: &'a ProfileModel, options: &ExportOptions) -> Self {
        Self {
            profile,
            folds_runtime: options.folds_runtime,
            calls: CallNodes::new(profile),
            ids: vec![0; profile.stack_count()],
            scripts: HashMap::new(),
        }
    }

    /// Returns the id of the node for a tick, and adds the node if it is new.
    pub(crate) fn id_of(&mut self, activity: Activity) -> u32 {
        match activity {
            Activity::Idle => IDLE,
            Activity::Unknown => PROGRAM,
            Activity::Ran(stack) => match self.ids[stack.0 as usize] {
                0 => self.add(stack),
                known => known,
            },
        }
    }

    #[cold]
    fn add(&mut self, stack: StackId) -> u32 {
        let end = folded_runtime(self.profile, self.folds_runtime, Some(stack));
        let node = self.calls.add_inside(self.profile, stack, end);
        let id = node.map_or(PROGRAM, id_of_call);
        self.ids[stack.0 as usize] = id;
        id
    }

    /// Returns the call node for a tick; `None` if the tick shows no function.
    pub(crate) fn node_of(&mut self, activity: Activity) -> Option<NodeId> {
        self.id_of(activity).checked_sub(FIRST_CALL).map(NodeId)
    }

    /// Writes the `callFrame` of a node that is not a function.
    pub(crate) fn write_fixed_frame(json: &mut JsonWriter<'_>, name: &str) {
        write_call_frame(json, name, 0, "", (-1, -1));
    }

    /// Writes the `callFrame` of a function. Its script is the source file, or the module if the
    /// file is unknown. Lines and columns count from 0 here.
    pub(crate) fn write_frame(&mut self, json: &mut JsonWriter<'_>, function: FunctionId) {
        let profile = self.profile;
        let function = profile.function(function);
        let module = || {
            function
                .module
                .map(|module| profile.module(module).path.as_str())
        };
        let file = function.file.map(|file| profile.text(file));
        let url = file.or_else(module).unwrap_or_default();
        let scripts = self.scripts.len();
        let script = match url {
            "" => 0,
            url => *self.scripts.entry(url).or_insert(scripts + 1),
        };
        let from_zero = |number: Option<u32>| number.map_or(-1, |number| i64::from(number) - 1);
        let place = (from_zero(function.line), from_zero(function.column));
        write_call_frame(json, profile.text(function.name), script, url, place);
    }
}

fn write_call_frame(
    json: &mut JsonWriter<'_>,
    name: &str,
    script: usize,
    url: &str,
    (line, column): (i64, i64),
) {
    json.key("callFrame").object(|json| {
        json.key("functionName").string(name);
        json.key("scriptId").string(&script.to_string());
        json.key("url").string(url);
        json.key("lineNumber").signed(line);
        json.key("columnNumber").signed(column);
    });
}
