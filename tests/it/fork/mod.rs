//! Children of `fork`.

mod child;
mod files;
mod hooks;
