//! The fields of `meta` that the model does not keep as JSON.

/// Fields that the model has in its own fields, or that depend on the format.
pub(super) const MODELED_FIELDS: &[&str] = &[
    "version",
    "preprocessedProfileVersion",
    "startTime",
    "profilingStartTime",
    "profilingEndTime",
    "shutdownTime",
    "categories",
    "markerSchema",
    "interval",
    "product",
    "sampleUnits",
    "presymbolicated",
    "symbolicated",
];
