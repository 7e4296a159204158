//! The environment variables that start, configure and save a session.

pub(crate) mod env_notices;
pub(crate) mod environment;
mod environment_table;
pub(crate) mod notices;
#[cfg(feature = "push")]
mod push_variables;

pub(crate) use env_notices::look_on;
pub(crate) use environment::http_variables;
pub(crate) use environment::{
    StartUp, env_vars_for_child_process, env_vars_for_next_image, wants_names,
};
pub(crate) use environment_table::{environment_docs, lacking_features_of_program};
#[cfg(feature = "push")]
pub(crate) use push_variables::{
    certificate_file_of_variables, push_settings_of_variables, service_name,
};
