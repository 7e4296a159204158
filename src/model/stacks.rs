//! Texts, modules, functions, frames and stacks: the ids by which they refer to each other, the texts
//! that replace functions, and the tables that hold each frame and stack once.
//!
//! A stack is a frame on top of another stack, its prefix, which always comes before it.

use std::hash::Hash;

use crate::types::NoStack;
use crate::util::{NumberMap, UniqueList, pair_key};

/// A text of the profile, such as a name, a path, or a value in JSON.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct TextId(pub(crate) u32);

/// Index of a module in `ProfileModel::modules`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct ModuleId(pub(crate) u32);

/// Index of a function.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct FunctionId(pub(crate) u32);

/// Index of a frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct FrameId(pub(crate) u32);

/// Index of a stack.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct StackId(pub(crate) u32);

/// A category, and one of its subcategories, by index.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct CategoryPair {
    pub(crate) category: u16,
    pub(crate) subcategory: u16,
}

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

/// A table of unique frames and a table of their unique stacks.
#[derive(Debug)]
pub(crate) struct UniqueStacks<F> {
    frames: UniqueList<F>,
    /// By the index of the prefix plus one, and the index of the frame.
    stack_indices: NumberMap<u32>,
    stacks: Vec<(Option<u32>, u32)>,
}

impl<F> Default for UniqueStacks<F> {
    fn default() -> Self {
        Self::complete(Vec::new(), Vec::new())
    }
}

impl<F> UniqueStacks<F> {
    /// Returns tables with these contents. Do not append to them: a known frame or stack would be
    /// added a second time.
    pub(crate) fn complete(frames: Vec<F>, stacks: Vec<(Option<u32>, u32)>) -> Self {
        Self {
            frames: UniqueList::from(frames),
            stack_indices: NumberMap::default(),
            stacks,
        }
    }

    pub(crate) fn frames(&self) -> &[F] {
        &self.frames.elements
    }

    /// Returns the prefix and the innermost frame of each stack.
    pub(crate) fn stacks(&self) -> &[(Option<u32>, u32)] {
        &self.stacks
    }

    /// Returns the frames of a stack by their indices, the innermost one first.
    pub(crate) fn frames_of(&self, stack: Option<u32>) -> impl Iterator<Item = u32> + '_ {
        let stacks = std::iter::successors(stack, |&stack| self.stacks[stack as usize].0);
        stacks.map(|stack| self.stacks[stack as usize].1)
    }

    /// Returns the stack without the frames at its inner end that `is_left_out` accepts. The outermost
    /// frame remains.
    pub(crate) fn without_inner(&self, mut stack: u32, is_left_out: impl Fn(&F) -> bool) -> u32 {
        while let (Some(prefix), frame) = self.stacks[stack as usize]
            && is_left_out(&self.frames.elements[frame as usize])
        {
            stack = prefix;
        }
        stack
    }
}

impl<F: Hash + Eq + Clone> UniqueStacks<F> {
    /// Returns the index of the frame, and adds the frame if it is new.
    pub(crate) fn intern_frame(&mut self, frame: &F) -> u32 {
        self.frames.index(frame)
    }

    /// Returns the stack of a frame on top of `prefix`, and adds the stack if it is new.
    #[doc(alias = "AppendFrame")]
    pub(crate) fn append_frame(&mut self, prefix: Option<u32>, frame: u32) -> u32 {
        let key = pair_key(prefix.map_or(0, |prefix| prefix + 1), frame);
        *self.stack_indices.entry(key).or_insert_with(|| {
            self.stacks.push((prefix, frame));
            self.stacks.len() as u32 - 1
        })
    }
}

/// The outermost frame of a stack that was followed to its beginning.
pub(crate) const ROOT: &str = "(root)";

/// The missing outer end of a stack.
pub(crate) const TRUNCATED: &str = "(truncated)";

/// The parent frame of a signal stack, of a coroutine's stack, or of another stack that the thread
/// did not start on.
pub(crate) const OTHER_STACK: &str = "(other stack)";

/// A frame of unloaded code whose module is no longer known.
pub(crate) const UNLOADED: &str = "(unloaded library)";

/// The innermost labels and script frames, if they did not fit into the copy of a stack.
pub(crate) const LABELS_LEFT_OUT: &str = "(newer labels left out)";

const PARTS_OF_STACKS: &[&str] = &[ROOT, TRUNCATED, OTHER_STACK, UNLOADED, LABELS_LEFT_OUT];

/// Returns whether a text replaces a function.
pub(crate) fn is_placeholder(text: &str) -> bool {
    PARTS_OF_STACKS.contains(&text) || is_whole_stack(text)
}

/// Returns whether a text replaces all functions of a stack, so that a table of functions has a row
/// for its time.
pub(crate) fn is_whole_stack(text: &str) -> bool {
    NoStack::is_text(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_stacks_are_stored_once_and_after_their_prefix() {
        let mut stacks = UniqueStacks::default();
        let mut append = |prefix, frame| {
            let frame = stacks.intern_frame(&frame);
            stacks.append_frame(prefix, frame)
        };
        let root = append(None, "root");
        let a = append(Some(root), "a");
        let b = append(Some(a), "b");
        assert_eq!(append(Some(root), "a"), a);
        let recursive = append(Some(b), "a");
        assert_ne!(recursive, a);
        assert_eq!(stacks.frames(), ["root", "a", "b"]);
        assert_eq!(
            stacks.stacks(),
            [(None, 0), (Some(0), 1), (Some(1), 2), (Some(2), 1)]
        );
    }
}
