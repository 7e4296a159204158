//! What is known from `profiler_init` on.

use std::sync::OnceLock;

use crate::base::PsCell;
use crate::platform::{ProcessStart, process_start, read_exe_path};

/// Facts of the process, from `profiler_init` to `profiler_shutdown`.
#[doc(alias = "CorePS")]
#[derive(Debug)]
pub(crate) struct CorePs {
    pub(crate) process_start: ProcessStart,
    pub(crate) process_name: String,
    /// Whether initialisation registered the main thread, so that the shutdown takes that back.
    pub(crate) registered_main_thread: bool,
}

/// `None` before `profiler_init` and after `profiler_shutdown`.
pub(crate) static CORE_PS: PsCell<Option<CorePs>> = PsCell::new(None);

/// The same for the whole life of the process, so that times of two sessions can be compared.
static PROCESS_START: OnceLock<ProcessStart> = OnceLock::new();

impl CorePs {
    pub(crate) fn new(registered_main_thread: bool) -> Self {
        let name = read_exe_path().file_name().map(|name| name.to_string_lossy().into_owned());
        let process_name = name.unwrap_or_else(|| "rust".to_owned());
        Self { process_start: Self::process_start(), process_name, registered_main_thread }
    }

    /// When the process began; known to anyone without the lock, since it never changes.
    pub(crate) fn process_start() -> ProcessStart {
        *PROCESS_START.get_or_init(process_start)
    }
}
