//! Texts that replace functions in a stack.

use crate::types::NoStack;

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
