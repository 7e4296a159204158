//! Hands the profile over to the program that replaces this one by `exec`.
//!
//! The process stays the same, so its profile should go on. Before the call, the profile is written
//! to a file without a name, whose descriptor the new image inherits. A variable tells the new
//! image of it. Its first session keeps the profile as it keeps those of child processes that have
//! exited.

use std::io;
use std::process::Command;

use crate::platform::{PassedFile, current_process_id, take_passed_file};
use crate::session::env::{env_vars_for_next_image, environment, notices};
use crate::session::family::{Family, family};
use crate::session::running::{pause_sampling, resume_sampling, running_generation};
use crate::session::saving::exit_profile::{keep_exit_profile, max_exit_profile_bytes};
use crate::session::saving::frozen_profile::spool_profile;
use crate::session::saving::snapshot::freeze;
use crate::state::ChildText;
use crate::types::Generation;
use crate::util::{PsCell, PsLock};

/// Set for the next image: the process's id, a colon, and the file.
const VARIABLE: &str = "GEKKOTA_BEFORE_EXEC";

/// A profile that waits for `exec`. Dropping it, which happens if `exec` fails, lets the session go
/// on.
#[derive(Debug)]
pub(crate) struct ExecHandover {
    session: Generation,
    /// Whether this has paused the sampling.
    has_paused: bool,
    _file: PassedFile,
}

/// See `profiler_prepare_exec`.
pub(crate) fn prepare_exec(command: &mut Command) -> io::Result<Option<ExecHandover>> {
    let Some(session) = running_generation() else {
        return Ok(None);
    };
    command.envs(env_vars_for_next_image());
    // A parent process rescues what the program that is replaced leaves in memory.
    if family().is_some_and(Family::has_parent) {
        return Ok(None);
    }
    let has_paused = pause_sampling();
    let passed = pass_profile(session, command);
    if !matches!(passed, Ok(Some(_))) && has_paused {
        resume_sampling();
    }
    Ok(passed?.map(|file| ExecHandover {
        session,
        has_paused,
        _file: file,
    }))
}

/// Writes the profile to a file that the next image inherits.
fn pass_profile(session: Generation, command: &mut Command) -> io::Result<Option<PassedFile>> {
    let (Some(max_bytes), Some(profile)) = (max_exit_profile_bytes(), freeze(Some(session))) else {
        return Ok(None);
    };
    // The next image keeps no more than this.
    let spool = spool_profile(profile.before_exec(), max_bytes, None)?;
    let file = PassedFile::new(&spool)?;
    let process = current_process_id().to_number();
    command.env(VARIABLE, format!("{process}:{}", file.to_text()?));
    Ok(Some(file))
}

impl Drop for ExecHandover {
    fn drop(&mut self) {
        if self.has_paused && running_generation() == Some(self.session) {
            resume_sampling();
        }
    }
}

/// The profile from before `exec`, until the first session of this image keeps it.
static BEFORE_EXEC: PsCell<Option<ChildText>> = PsCell::new(None);

/// Takes the profile that an earlier image of this process has passed on, if any.
pub(crate) fn take_profile_before_exec() {
    let process = current_process_id().to_number().to_string();
    let passed = environment::variable(VARIABLE)
        .and_then(|text| text.into_string().ok())
        .and_then(|text| {
            Some(text.split_once(':')?.1.to_owned()).filter(|_| {
                // Children inherit the variable.
                text.split_once(':')
                    .is_some_and(|(owner, _)| owner == process)
            })
        });
    if let Some(mapping) = passed.and_then(|text| take_passed_file(&text)) {
        let text = Some(ChildText::File(mapping));
        let _older = std::mem::replace(BEFORE_EXEC.get_mut(&mut PsLock::acquire()), text);
    }
}

/// Adds the profile from before `exec` to the session that has just begun, if it is the first one.
pub(crate) fn keep_profile_before_exec() {
    let text = BEFORE_EXEC.get_mut(&mut PsLock::acquire()).take();
    if let Some(text) = text
        && let Err(error) = keep_exit_profile(text)
    {
        notices::notify(&format!("the profile from before exec is lost: {error}"));
    }
}
