//! Types for a single stack: which parts to capture, its frames, the flags of its labels, and the
//! request that the thread works on.

use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};

use crate::types::newtypes::CodeAddress;

/// A set of the parts that a stack on demand contains.
///
/// ```
/// use gekkota::stack::StackFeatures;
///
/// let labels_and_leaf = StackFeatures::LABELS | StackFeatures::LEAF;
/// assert!(StackFeatures::FULL.contains(labels_and_leaf));
/// ```
#[doc(alias = "StackCaptureOptions")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct StackFeatures(u8);

impl StackFeatures {
    /// The labels and script frames.
    #[doc(alias = "NonNative")]
    pub const LABELS: Self = Self(1);
    /// The innermost native frame: the instruction that was about to run.
    #[doc(alias = "Leaf")]
    pub const LEAF: Self = Self(2);
    /// All native frames, including the innermost one. Without this part, no stack memory is copied
    /// or unwound.
    #[doc(alias = "StackWalk")]
    pub const NATIVE: Self = Self(4 | 2);
    /// Labels, script frames and all native frames: the default.
    #[doc(alias = "Full")]
    pub const FULL: Self = Self(7);

    /// Returns whether the set contains all parts of `other`.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl Default for StackFeatures {
    fn default() -> Self {
        Self::FULL
    }
}

impl std::ops::BitOr for StackFeatures {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl std::fmt::Debug for StackFeatures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all = [
            ("LABELS", Self::LABELS),
            ("NATIVE", Self::NATIVE),
            ("LEAF", Self::LEAF),
        ];
        let is_named = |name: &str| name != "LEAF" || !self.contains(Self::NATIVE);
        let names = all
            .iter()
            .filter(|(name, feature)| self.contains(*feature) && is_named(name));
        f.debug_set().entries(names.map(|(name, _)| name)).finish()
    }
}

/// A frame of a [`StackSample`](crate::stack::StackSample).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum StackFrame {
    /// An address in a function, or in several functions that were inlined into one another.
    Native {
        /// In the innermost native frame, the instruction that was about to run. In all other
        /// frames, a return address: look it up minus one byte, which lies inside the call. If a
        /// signal interrupted an outer frame, its address is raised by one byte to follow the same
        /// rule.
        address: CodeAddress,
    },
    /// A label, with its dynamic text. “(newer labels left out)” replaces labels and script frames
    /// that did not fit into the copy of the stack.
    Label {
        /// The label's text, followed by a space and the dynamic text, if any.
        /// [`LabelFlags`](crate::label::LabelFlags) may change this format.
        text: String,
        /// Whether the label has a dynamic text, but not the flag
        /// [`LabelFlags::NONSENSITIVE`](crate::label::LabelFlags::NONSENSITIVE).
        is_sensitive: bool,
    },
    /// A script function: see [`AutoProfilerScriptFrame`](crate::script::AutoProfilerScriptFrame).
    Script {
        /// The function's name. Empty for code outside of any function, which is shown as “(root
        /// scope)”.
        function: String,
        /// The file; empty when it is not known.
        file: String,
        /// The line being executed, counted from 1.
        line: Option<u32>,
        /// The column in the line, counted from 1.
        column: Option<u32>,
    },
}

/// The function and source location of a frame.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct FunctionName {
    /// The demangled name of a function, the text of a label, or the name of a script function.
    /// Script code outside of any function is named “(root scope)”.
    pub name: String,
    /// The source file, if debug information or the interpreter names it.
    pub file: Option<String>,
    /// The line in the file, counted from 1.
    pub line: Option<u32>,
}

impl FunctionName {
    pub(crate) fn new(name: String, file: Option<String>, line: Option<u32>) -> Self {
        Self { name, file, line }
    }
}

impl std::fmt::Display for FunctionName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)?;
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(f, " at {file}:{line}"),
            (Some(file), None) => write!(f, " at {file}"),
            (None, _) => Ok(()),
        }
    }
}

/// The flags of a label-stack frame.
#[doc(alias = "ProfilingStackFrame::Flags")]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(transparent)]
pub(crate) struct FrameFlags(u8);

impl FrameFlags {
    /// An ordinary label. Gecko has a flag for these; here the empty set means it.
    pub(crate) const NONE: Self = Self(0);
    /// A script function.
    #[doc(alias = "IS_JS_FRAME")]
    pub(crate) const SCRIPT: Self = Self(4);
    /// A label whose text contains nothing private.
    ///
    /// Gecko's number does not fit into a byte. 8 is Gecko's number for a kind of frame that this
    /// crate does not have.
    pub(crate) const NONSENSITIVE: Self = Self(8);
    /// Label and dynamic text are a class and its method.
    #[doc(alias = "STRING_TEMPLATE_METHOD")]
    pub(crate) const METHOD: Self = Self(16);
    /// Label and dynamic text are a class and a property that is read.
    #[doc(alias = "STRING_TEMPLATE_GETTER")]
    pub(crate) const GETTER: Self = Self(32);
    /// Label and dynamic text are a class and a property that is set.
    #[doc(alias = "STRING_TEMPLATE_SETTER")]
    pub(crate) const SETTER: Self = Self(64);
    /// The viewer shows the label also when it shows only script frames.
    pub(crate) const RELEVANT_FOR_JS: Self = Self(128);

    pub(crate) const fn from_byte(byte: u8) -> Self {
        Self(byte)
    }

    pub(crate) const fn to_byte(self) -> u8 {
        self.0
    }

    pub(crate) const fn has(self, flag: Self) -> bool {
        self.0 & flag.0 != 0
    }
}

/// A set of label properties.
///
/// ```
/// use gekkota::AutoProfilerLabel;
/// use gekkota::label::LabelFlags;
///
/// let category = gekkota::gecko_profiler_category!(DOM);
/// let flags = LabelFlags::METHOD | LabelFlags::RELEVANT_FOR_JS;
/// // Shown as “Element.append”.
/// let _label = AutoProfilerLabel::with_flags("Element", "append", category, flags);
/// ```
#[doc(alias = "ProfilingStackFrame::Flags")]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LabelFlags(pub(crate) FrameFlags);

impl LabelFlags {
    /// No flag.
    pub const NONE: Self = Self(FrameFlags::NONE);
    /// The viewer shows the label also when it shows only script frames.
    pub const RELEVANT_FOR_JS: Self = Self(FrameFlags::RELEVANT_FOR_JS);
    /// The dynamic text contains nothing private.
    ///
    /// The application's own hang reports can read this flag in
    /// [`StackFrame::Label`](crate::stack::StackFrame::Label).
    pub const NONSENSITIVE: Self = Self(FrameFlags::NONSENSITIVE);
    /// Label and dynamic text are a class and its method, shown as `Class.method`.
    pub const METHOD: Self = Self(FrameFlags::METHOD);
    /// Label and dynamic text are a class and a property that is read. They are shown as
    /// `get Class.property`.
    pub const GETTER: Self = Self(FrameFlags::GETTER);
    /// Label and dynamic text are a class and a property that is set. They are shown as
    /// `set Class.property`.
    pub const SETTER: Self = Self(FrameFlags::SETTER);
}

impl std::ops::BitOr for LabelFlags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(FrameFlags::from_byte(self.0.to_byte() | other.0.to_byte()))
    }
}

/// Maximum number of labels of a context.
pub(crate) const MAX_CONTEXT_LABELS: usize = 4;

/// A context: the ids of a trace and a span, and labels. All zero without a context.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct ContextWords {
    /// The id of the trace, its upper half first; 0 if it is not known.
    pub(crate) trace: [u64; 2],
    /// The id of the span; 0 if it is not known.
    pub(crate) span: u64,
    /// The numbers of the labels (`context_labels.rs`), each 0 for no label.
    pub(crate) labels: [u32; MAX_CONTEXT_LABELS],
}

impl ContextWords {
    /// A context that says nothing.
    pub(crate) const NONE: Self = Self {
        trace: [0; 2],
        span: 0,
        labels: [0; MAX_CONTEXT_LABELS],
    };

    pub(crate) fn is_none(&self) -> bool {
        *self == Self::NONE
    }
}

/// Makes the guard of a label neither `Send` nor `Sync`, because no type implements those traits for
/// this one. A runtime with several threads then refuses a future that holds a label across an
/// `.await`, and the compiler names this trait in its error.
///
/// The traits that it requires stay those of a guard that holds a number.
pub(crate) trait UseLabeledFutureAcrossAwait: Unpin + UnwindSafe + RefUnwindSafe {}

/// A field of the guard of a label.
pub(crate) type LabelOfOneThread = PhantomData<dyn UseLabeledFutureAcrossAwait>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn native_feature_contains_leaf() {
        assert!(StackFeatures::NATIVE.contains(StackFeatures::LEAF));
        assert!(!StackFeatures::LEAF.contains(StackFeatures::NATIVE));
        assert_eq!(
            StackFeatures::LABELS | StackFeatures::NATIVE,
            StackFeatures::default()
        );
        assert_eq!(
            format!("{:?}", StackFeatures::FULL),
            "{\"LABELS\", \"NATIVE\"}"
        );
        assert_eq!(format!("{:?}", StackFeatures::LEAF), "{\"LEAF\"}");
    }

    #[test]
    fn function_name_displays_known_source_location() {
        let name = |file: Option<&str>, line| FunctionName {
            name: "f".to_owned(),
            file: file.map(str::to_owned),
            line,
        };
        assert_eq!(name(Some("a.rs"), Some(3)).to_string(), "f at a.rs:3");
        assert_eq!(name(Some("a.rs"), None).to_string(), "f at a.rs");
        assert_eq!(name(None, Some(3)).to_string(), "f");
    }
}
