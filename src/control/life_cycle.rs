//! From `profiler_init` to `profiler_shutdown`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::{Features, LockRank, NamedMutex, PsLock, StartError, StartParams, ThreadFilter};
use crate::control::environment::{self, StartUp};
use crate::control::fork::fork_hooks;
use crate::control::snapshot::freeze;
use crate::counters::PROCESS_CPU;
use crate::platform::{
    current_process_id, install_fork_handlers, install_handler, is_main_thread, monotonic_now,
    signal_is_acceptable,
};
use crate::sampler::{capture_in_handler, spawn_sampler};
use crate::state::{
    ACTIVE_PS, ActivePs, CORE_PS, CorePs, RacyFeatures, Session, SessionSettings, core_buffer,
};
use crate::threads::{ThreadRegistry, register_current_thread, unregister_current_thread};

/// Start, stop and fork take turns. Held while the sampler is joined.
pub(super) static LIFE_CYCLE: NamedMutex<()> = NamedMutex::new("life cycle", LockRank::Lifecycle, ());

static LAST_GENERATION: AtomicU64 = AtomicU64::new(0);

/// Which session of the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Generation(u64);

/// See `profiler_init`.
pub(crate) fn init() {
    if !ensure_core() {
        return;
    }
    if environment::wants_help() {
        environment::print_help();
    }
    match environment::start_up() {
        StartUp::Off => {}
        StartUp::Start(params) => {
            if let Err(error) = start(&params) {
                environment::print_problem(&error.to_string());
            }
        }
        StartUp::Problem(problem) => environment::print_problem(&problem),
    }
}

/// Makes `CorePs` if there is none, and registers the main thread if this is it; true when it was made.
fn ensure_core() -> bool {
    let made = {
        let mut lock = PsLock::acquire();
        let core = CORE_PS.get_mut(&mut lock);
        let made = core.is_none();
        core.get_or_insert_with(|| CorePs::new(is_main_thread()));
        made
    };
    if made {
        install_fork_handlers(fork_hooks());
        if is_main_thread() {
            register_current_thread("");
        }
    }
    made
}

/// See `profiler_shutdown`.
pub(crate) fn shutdown() {
    if let Some(path) = environment::shutdown_path()
        && let Some(profile) = freeze(None)
        && let Err(error) = profile.save(&path, true)
    {
        environment::print_problem(&error.to_string());
    }
    stop();
    let core = {
        let mut lock = PsLock::acquire();
        CORE_PS.get_mut(&mut lock).take()
    };
    if core.is_some_and(|core| core.registered_main_thread) && is_main_thread() {
        unregister_current_thread();
    }
}

pub(crate) fn is_active() -> bool {
    RacyFeatures::is_active()
}

/// See `profiler_start`.
pub(crate) fn start(params: &StartParams) -> Result<Generation, StartError> {
    params.validate()?;
    let signal = signal_is_acceptable(params.signal)?;
    ensure_core();
    let filter = ThreadFilter::new(&params.filters);
    if filter.excludes_process(current_process_id()) {
        return Err(StartError::BadValue {
            field: "filters",
            value: format!("{:?}, which name other processes alone", params.filters),
            accepted: format!(
                "filters of which one is pid:{} or names threads",
                current_process_id().to_number()
            ),
        });
    }

    let _turn = LIFE_CYCLE.lock();
    // Before the old session ends, so that a refusal changes nothing.
    install_handler(signal, capture_in_handler)?;
    end_session();

    let settings = SessionSettings {
        capacity_bytes: params.capacity_bytes,
        interval: params.interval,
        features: params.features.adjusted(),
        filters: params.filters.clone(),
        signal,
        engine: params.engine,
    };
    let features = settings.features;
    let counters = if features.contains(Features::PROCESS_CPU) { vec![&PROCESS_CPU] } else { Vec::new() };
    let process_start = CorePs::process_start().monotonic;
    let session = Arc::new(Session::new(settings, process_start, monotonic_now(), counters));
    core_buffer().begin_session(params.capacity_bytes);
    ThreadRegistry::set_session_filter(Some(filter));
    let sampler = match spawn_sampler(Arc::clone(&session), core_buffer()) {
        Ok(sampler) => sampler,
        Err(error) => {
            ThreadRegistry::set_session_filter(None);
            core_buffer().end_session();
            return Err(error);
        }
    };
    let generation = LAST_GENERATION.fetch_add(1, Ordering::Relaxed) + 1;
    let mut lock = PsLock::acquire();
    *ACTIVE_PS.get_mut(&mut lock) = Some(ActivePs { generation, session, sampler });
    RacyFeatures::set_active(features);
    Ok(Generation(generation))
}

/// See `profiler_stop`.
pub(crate) fn stop() {
    let _turn = LIFE_CYCLE.lock();
    end_session();
}

/// Stops, if it is this session that runs.
pub(crate) fn stop_generation(generation: Generation) {
    let _turn = LIFE_CYCLE.lock();
    if running_generation() == Some(generation) {
        end_session();
    }
}

fn running_generation() -> Option<Generation> {
    let lock = PsLock::acquire();
    ACTIVE_PS.get(&lock).as_ref().map(ActivePs::generation).map(Generation)
}

impl ActivePs {
    pub(super) fn is_generation(&self, generation: Generation) -> bool {
        self.generation() == generation.0
    }
}

/// Ends the session, if there is one. Under the life-cycle lock.
fn end_session() {
    let ended = {
        let mut lock = PsLock::acquire();
        RacyFeatures::set_inactive();
        ACTIVE_PS.get_mut(&mut lock).take()
    };
    if let Some(active) = ended {
        active.session.request_stop();
        active.sampler.join();
        ThreadRegistry::set_session_filter(None);
        core_buffer().end_session();
    }
}
