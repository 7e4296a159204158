//! Comparison of files.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

/// Returns whether both describe the same file.
pub(super) fn is_same_file(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}
