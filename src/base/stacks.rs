//! Words for a single stack: what to take of it, and what it is made of.

use crate::base::CodeAddress;

/// What a stack on demand is to hold: a set.
///
/// ```
/// use gekkota::stack::StackFeatures;
///
/// let labels_and_where_it_is = StackFeatures::LABELS | StackFeatures::LEAF;
/// assert!(StackFeatures::FULL.contains(labels_and_where_it_is));
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
    /// All native frames, the innermost one included. Without it no stack is copied and none unwound.
    #[doc(alias = "StackWalk")]
    pub const NATIVE: Self = Self(4 | 2);
    /// Labels, script frames and all native frames: the default.
    #[doc(alias = "Full")]
    pub const FULL: Self = Self(7);

    /// Whether all of `other` are in here.
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
    /// A function, or several that were inlined into one another, by an address in it.
    Native {
        /// The instruction that was about to run where this is the innermost native frame; else a return address, which
        /// belongs to the call one byte before it. One that a signal interrupted stands as if a call of one byte had
        /// returned there.
        address: CodeAddress,
    },
    /// A label, with its dynamic text. “(newer labels left out)” stands for labels and script frames that the copy of the
    /// stack had no room for.
    Label {
        /// The label's text, then a space and the dynamic text if it has one; or as its [`LabelFlags`](crate::label::LabelFlags) say.
        text: String,
        /// Whether there is a dynamic text of which nobody has said that others may see it:
        /// [`LabelFlags::NONSENSITIVE`](crate::label::LabelFlags::NONSENSITIVE).
        is_sensitive: bool,
    },
    /// A function of a script: see [`AutoProfilerScriptFrame`](crate::script::AutoProfilerScriptFrame).
    Script {
        /// The function's name; empty for what is in no function, which is shown as “(root scope)”.
        function: String,
        /// The file; empty when it is not known.
        file: String,
        /// The line that ran, counted from 1.
        line: Option<u32>,
        /// The column in it, counted from 1.
        column: Option<u32>,
    },
}

/// What an address stands for: a function, and where in its source.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct FunctionName {
    /// The function's name, demangled; a label's text; the name of a script's function, “(root scope)” for what is in none.
    pub name: String,
    /// The source file, where debug information or the interpreter tells.
    pub file: Option<String>,
    /// The line in it, counted from 1.
    pub line: Option<u32>,
}

#[cfg(has_profiler)]
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
    fn features_are_a_set_and_the_whole_stack_has_its_leaf() {
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
    fn a_function_is_shown_with_its_place_as_far_as_it_is_known() {
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
