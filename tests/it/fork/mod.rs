//! Children of `fork`.

mod before_first_session;
mod child;
mod files;
mod hooks;
mod locked_environment;
