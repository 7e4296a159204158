//! Unwinding by call frame information, with cached rules.

mod call_frames;
#[cfg(all(test, target_arch = "x86_64"))]
mod framehop_tests;
mod rule;
mod rule_cache;

pub(crate) use call_frames::{CallFrames, Caller, NoCaller};
pub(crate) use rule::{CodeShape, Rule};
pub(crate) use rule_cache::{RuleCache, RuleKey};
