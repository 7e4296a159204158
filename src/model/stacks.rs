//! Functions, frames and stacks.

use crate::model::ids::{CategoryPair, FunctionId, ModuleId, TextId};

/// What a function is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum FunctionKind {
    /// Machine code. Without a name, the text is the address: `0x1f40`.
    Native,
    /// A label of the application.
    Label,
    /// A function of a script.
    Script,
    /// Not code: the root, or a placeholder for missing frames, such as `(truncated)`.
    Structure,
}

/// A function, or a text that replaces one.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Function {
    /// The name alone, without library or file.
    pub(crate) name: TextId,
    pub(crate) kind: FunctionKind,
    pub(crate) module: Option<ModuleId>,
    /// Path of the source file, or URL of the script.
    pub(crate) file: Option<TextId>,
    /// Where the function is defined, from 1 on, if known.
    pub(crate) line: Option<u32>,
    pub(crate) column: Option<u32>,
    /// Whether the Firefox Profiler shows a label in its script view.
    pub(crate) is_relevant_for_js: bool,
}

/// A function at an address, or at a position in a script.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Frame {
    pub(crate) function: FunctionId,
    /// Address relative to the module; without a module, the address in the process. That of a
    /// caller's frame lies within the call.
    pub(crate) address: Option<u64>,
    /// 0 for a function that is called. 1 for a function that was inlined into it, and so on. The
    /// frames of one address follow each other, and have its address.
    pub(crate) inline_depth: u16,
    /// Index in `ProfileModel::native_symbols` of the function with depth 0.
    pub(crate) native_symbol: Option<u32>,
    /// The position that ran, from 1 on, in the function's file.
    pub(crate) line: Option<u32>,
    pub(crate) column: Option<u32>,
    pub(crate) category: Option<CategoryPair>,
    /// Id of the page; 0 for none.
    pub(crate) inner_window_id: u64,
    /// The engine or compiler of a script frame, such as `baseline`.
    pub(crate) implementation: Option<TextId>,
}

/// A function of the symbol table, with its place in the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NativeSymbol {
    pub(crate) module: ModuleId,
    /// Address relative to the module.
    pub(crate) address: u64,
    pub(crate) size: Option<u64>,
    pub(crate) name: TextId,
}

/// The contents of a source file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SourceText(pub(crate) String);

impl Function {
    /// Returns a function without module and file.
    pub(crate) fn new(name: TextId, kind: FunctionKind) -> Self {
        Self {
            name,
            kind,
            module: None,
            file: None,
            line: None,
            column: None,
            is_relevant_for_js: false,
        }
    }
}

impl Frame {
    /// Returns a frame of a function, without address and position.
    pub(crate) fn new(function: FunctionId) -> Self {
        Self {
            function,
            address: None,
            inline_depth: 0,
            native_symbol: None,
            line: None,
            column: None,
            category: None,
            inner_window_id: 0,
            implementation: None,
        }
    }
}
