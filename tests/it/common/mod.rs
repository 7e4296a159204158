//! What the tests share.
#![allow(dead_code, unreachable_pub, reason = "each test uses its part of it")]

mod isolated;

pub use isolated::isolated;
