//! The features that this program or this machine has no data for.

use crate::allocations::is_hook_installed;
use crate::platform::lacking_features;
use crate::types::{Features, UnavailableFeature};

/// Returns those of the features that record nothing here, with the reasons.
pub(super) fn lacking_features_of_program(features: Features) -> Vec<UnavailableFeature> {
    let mut lacking = lacking_features(features);
    for feature in [Features::MEMORY, Features::NATIVE_ALLOCATIONS] {
        if features.contains(feature) && !is_hook_installed() {
            lacking.push(UnavailableFeature {
                feature,
                reason: "the global allocator is not a gekkota::memory::ProfilerAllocator"
                    .to_owned(),
            });
        }
    }
    lacking
}
