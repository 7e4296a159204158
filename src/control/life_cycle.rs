//! From `profiler_init` to `profiler_shutdown`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::base::{
    ControlSignals, Features, LockRank, NamedMutex, PsLock, StartError, StartParams, ThreadFilter,
};
use crate::control::control_signals::{control_by_signals, end_control};
use crate::control::environment::{self, StartUp};
use crate::control::fork::fork_hooks;
use crate::control::notices;
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

/// From `profiler_init` to `profiler_shutdown`.
static HAS_READ_ENVIRONMENT: AtomicBool = AtomicBool::new(false);

static LAST_GENERATION: AtomicU64 = AtomicU64::new(0);

/// Which session of the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Generation(u64);

/// See `profiler_init`.
pub(crate) fn init() {
    ensure_core();
    if HAS_READ_ENVIRONMENT.swap(true, Ordering::AcqRel) {
        return;
    }
    match environment::read() {
        StartUp::Off => {}
        StartUp::Start(params) => match start_if_inactive(&params) {
            Ok(Some(_)) => environment::tell_if_nothing_will_be_saved(),
            // The program was first.
            Ok(None) => {}
            Err(error) => notices::tell(&error.to_string()),
        },
        StartUp::Problems(problems) => environment::tell_problems(&problems),
    }
    if environment::wants_signals()
        && let Err(error) = control_by_signals(&ControlSignals::default())
    {
        notices::tell(&error.to_string());
    }
}

/// Makes `CorePs` if there is none, and registers the main thread if this is it.
pub(super) fn ensure_core() {
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
}

/// See `profiler_shutdown`.
pub(crate) fn shutdown() {
    // What a signal has asked for is done first.
    end_control();
    HAS_READ_ENVIRONMENT.store(false, Ordering::Release);
    if let Some(path) = environment::shutdown_path() {
        match freeze(None) {
            None => environment::tell_nothing_to_save(&path),
            Some(profile) => match profile.save(&path, environment::wants_names()) {
                Ok(saved) => notices::tell(&format!("the profile was saved as {}", saved.display())),
                Err(error) => notices::tell(&error.to_string()),
            },
        }
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
    let checked = CheckedParams::new(params)?;
    let _turn = LIFE_CYCLE.lock();
    checked.start()
}

/// Starts, if no session runs; `None` if one does.
pub(super) fn start_if_inactive(params: &StartParams) -> Result<Option<Generation>, StartError> {
    let checked = CheckedParams::new(params)?;
    let _turn = LIFE_CYCLE.lock();
    match running_generation() {
        Some(_) => Ok(None),
        None => checked.start().map(Some),
    }
}

/// What can be started with.
struct CheckedParams<'a> {
    params: &'a StartParams,
    signal: i32,
    filter: ThreadFilter,
}

impl<'a> CheckedParams<'a> {
    fn new(params: &'a StartParams) -> Result<Self, StartError> {
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

        Ok(Self { params, signal, filter })
    }

    /// Starts, after the session that may run. Under the life-cycle lock.
    fn start(self) -> Result<Generation, StartError> {
        let Self { params, signal, filter } = self;
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
            duration: params.duration,
            active_tab_id: params.active_tab_id,
            records_overheads: environment::records_overheads(),
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

pub(super) fn running_generation() -> Option<Generation> {
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
