//! The request that a thread works on.

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
