//! The writers, one file for each format.

pub(crate) mod collapsed;
mod flame_tree;
