//! Gecko's marker types that make sense outside of a browser, with Gecko's names and fields.
//!
//! [`Tracing`], [`StackMarker`] and [`FlowStackMarker`] have the shape that Mozilla's crate gives
//! them; each other type has one field for each of Gecko's.
//! Labels for the chart and the table do not repeat the marker's name, which the viewer shows there
//! anyway: some of Gecko's do.
//! For a marker that has only a text, use [`add_text_marker`](crate::api::add_text_marker).
//!
//! Left out are `Java`, `JavaWithDetails` and `CONTENT_FULL_PAINT_TIME`, which only Android or a
//! browser needs.

#[macro_use]
mod keywords_macro;

mod flow;
mod interface;
mod ipc;
mod media;
mod memory;
mod network;
mod system;
mod text;

pub use flow::*;
pub use interface::*;
pub use ipc::*;
pub use media::*;
pub use memory::*;
pub use network::*;
pub use system::*;
pub use text::*;
