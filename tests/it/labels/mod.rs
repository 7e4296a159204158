//! Labels, categories and script frames.

#[cfg(feature = "attributes")]
mod attributes;
mod host_categories;
mod label_forms;
mod many_labels;
mod placement;
mod script_frames;
#[cfg(target_arch = "x86_64")]
mod unloaded_categories;
