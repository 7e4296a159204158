//! The names and module paths of Mozilla's crate `gecko_profiler`, for code that was written
//! against it.
//!
//! ```
//! use gekkota::gecko_profiler;
//! use gekkota::gecko_profiler::{MarkerOptions, gecko_profiler_category};
//!
//! if gecko_profiler::is_active_and_unpaused() {
//!     gecko_profiler::add_text_marker(
//!         "Loaded",
//!         gecko_profiler_category!(Network),
//!         MarkerOptions::default(),
//!         "https://example.org",
//!     );
//! }
//! ```
//!
//! Only these items differ in name from the rest of the crate:
//!
//! | Mozilla's name | in the rest of the crate |
//! |---|---|
//! | [`is_active`], [`is_active_and_unpaused`] | [`profiler_is_active`](crate::api::profiler_is_active), [`profiler_is_active_and_unpaused`](crate::api::profiler_is_active_and_unpaused) |
//! | [`current_thread_is_being_profiled_for_markers`], formerly [`can_accept_markers`] | [`profiler_thread_is_being_profiled(ThreadProfilingFeatures::MARKERS)`](crate::thread::profiler_thread_is_being_profiled) |
//! | [`marker::options::StackCaptureOptions`] | [`MarkerStack`] |
//! | [`gecko_profiler_label!`], [`auto_profiler_marker_tracing!`], [`AutoProfilerTracingMarker`] | only here |
//!
//! One item has another shape: Mozilla's `AutoProfilerLabel::new(&mut MaybeUninit<…>, …)` is
//! unsafe, because that label must not be moved. [`AutoProfilerLabel`] is a guard, which is safe to
//! move. [`gecko_profiler_label!`] and
//! [`gecko_profiler_fn_label`](macro@crate::gecko_profiler_fn_label) are used as in Mozilla's
//! crate.

#[doc(hidden)]
pub use crate::__private;
pub use crate::api::AutoProfilerTracingMarker;
pub use crate::api::records_markers_of_current_thread as current_thread_is_being_profiled_for_markers;
#[doc(inline)]
pub use crate::{
    __auto_profiler_marker_tracing as auto_profiler_marker_tracing,
    __gecko_profiler_label as gecko_profiler_label,
};

#[doc(no_inline)]
pub use crate::api::{
    AutoProfilerLabel, AutoProfilerMarker, AutoProfilerTextMarker, add_marker, add_text_marker,
    add_untyped_marker, profiler_is_active as is_active,
    profiler_is_active_and_unpaused as is_active_and_unpaused, register_thread, unregister_thread,
};
#[doc(no_inline)]
pub use crate::category::*;
#[cfg(feature = "attributes")]
#[doc(no_inline)]
pub use crate::gecko_profiler_fn_label;
#[doc(no_inline)]
pub use crate::marker::built_in::{CowString, FlowStackMarker, StackMarker, Tracing};
#[doc(no_inline)]
pub use crate::marker::{AutoProfilerFlowMarker, auto_profiler_flow_marker};
#[doc(no_inline)]
pub use crate::markers::{FlowId, MarkerOptions, MarkerStack, MarkerTiming, ProfilerMarker};
#[doc(no_inline)]
pub use crate::schema;
#[cfg(feature = "serde")]
#[doc(no_inline)]
pub use crate::schema::{Deserialize, Serialize};
#[doc(no_inline)]
pub use crate::schema::{JSONWriter, MarkerSchema};
#[doc(no_inline)]
pub use crate::types::{ProfilerTime, ProfilingCategoryPair};
#[doc(no_inline)]
pub use crate::{
    auto_profiler_marker, auto_profiler_marker_text, gecko_profiler_category, lazy_add_marker,
};
#[doc(no_inline)]
pub use current_thread_is_being_profiled_for_markers as can_accept_markers;
pub use marker::options;

/// Markers, as in Mozilla's `gecko_profiler::marker`.
pub mod marker {
    #[doc(no_inline)]
    pub use crate::api::{
        AutoProfilerMarker, AutoProfilerTextMarker, add_marker, add_text_marker, add_untyped_marker,
    };
    #[doc(no_inline)]
    pub use crate::gecko_profiler::AutoProfilerTracingMarker;
    #[doc(no_inline)]
    pub use crate::marker::AutoProfilerFlowMarker;
    #[doc(no_inline)]
    pub use crate::marker::built_in::{CowString, FlowStackMarker, StackMarker, Tracing};
    #[doc(no_inline)]
    pub use crate::markers::{FlowId, ProfilerMarker};
    #[doc(no_inline)]
    pub use crate::schema;
    #[doc(no_inline)]
    pub use crate::schema::MarkerSchema;
    #[doc(no_inline)]
    pub use options::*;

    /// Timing and stack of a marker, as in Mozilla's `gecko_profiler::marker::options`.
    pub mod options {
        #[doc(no_inline)]
        pub use crate::markers::MarkerStack as StackCaptureOptions;
        #[doc(no_inline)]
        pub use crate::markers::{MarkerOptions, MarkerStack, MarkerTiming};
    }
}

/// What Mozilla's build generates from Gecko's C++ headers.
pub mod gecko_bindings {
    /// Gecko's categories and subcategories.
    pub mod profiling_categories {
        #[doc(no_inline)]
        pub use crate::category::*;
        #[doc(no_inline)]
        pub use crate::types::ProfilingCategoryPair;
    }
}
