//! The writers, one file for each format.

pub(crate) mod collapsed;
pub(crate) mod flame_graph;
mod flame_tree;
pub(crate) mod speedscope;
pub(crate) mod svg;
pub(crate) mod timed_flame_graph;
