//! What the application says of a counter.

use crate::types::GraphColor;

/// The unit of a counter's values.
///
/// The viewer shows it, if the profile is in its processed format.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum CounterUnit {
    /// A number of things.
    #[default]
    Number,
    /// Bytes.
    Bytes,
}

/// Names and looks of a counter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CounterParams<Text> {
    pub(crate) label: Text,
    pub(crate) category: Text,
    pub(crate) description: Text,
    /// Whether the value is a sum that grows with time, and not a level.
    pub(crate) is_total: bool,
    pub(crate) unit: CounterUnit,
    pub(crate) color: Option<GraphColor>,
}
