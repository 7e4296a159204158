//! Types for a single stack: which parts to capture, and its frames.

use crate::types::address::CodeAddress;

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
