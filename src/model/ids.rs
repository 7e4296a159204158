//! The ids by which the parts of a profile refer to each other.

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
