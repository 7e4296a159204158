//! From decoded threads to the neutral model, which every format but Gecko's is written from.

mod builder;
mod frames;
mod marker_fields;

pub(crate) use builder::{MODEL_END, build_model};
