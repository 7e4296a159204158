//! Replaces `session` and `record` in builds without the profiler.
//!
//! # Purpose
//! Provides the functions that the API calls with neutral answers, for unsupported targets and for
//! builds without the feature `enabled`.
//!
//! # Threads and locks
//! No threads, no locks.
//!
//! # Imports
//! `markers`, `types`, `util`
//!
//! # Invariants
//! A start fails with `StartError::Unsupported`, so sessions and profiles never exist. Their types
//! are uninhabited.
//!
//! # Read next
//! `crate::api`.

use std::io::{self, Write};
use std::marker::PhantomData;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::markers::{BorrowedFileIO, MarkerDestination, MarkerTiming, NewMarker};
use crate::types::{
    BufferInfo, ContextWords, ControlSignals, CounterParams, DumpError, DumpSettings,
    ExitProfileError, Explanation, ExportOptions, Features, Format, FrameFlags, FunctionName,
    Generation, LabelOfOneThread, NameOptions, Page, ProfilerTime, ProfilingCategoryPair,
    ProfilingState, ProfilingStates, ReadError, RescueError, SamplingState, SaveError,
    ScriptDescription, StackFeatures, StackFrame, StartError, StartParams, SuspendError, ThreadId,
    ThreadProfilingFeatures, ThreadSummary, Wanted, WhileOtherRuns,
};
#[cfg(feature = "push")]
use crate::types::{PushCounts, PushError, PushSettings};
use crate::util::{ProgressLocation, SharedProgress};

/// Defines functions by their names, the types of their parameters, and their only answers.
macro_rules! neutral {
    ($($name:ident($($parameter:ty),*) $(-> $output:ty = $answer:expr)?;)+) => {
        $(#[inline(always)]
        pub(crate) fn $name($(_: $parameter),*) $(-> $output)? {
            $($answer)?
        })+
    };
}

/// Defines types that have no values, with their methods.
macro_rules! uninhabited {
    ($($(#[$attribute:meta])+ $type:ident {
        $($name:ident($($parameter:ty),*) $(-> $output:ty)?;)*
    })+) => {
        $($(#[$attribute])+
        #[derive(Clone, Copy, Debug)]
        pub(crate) enum $type {}

        #[allow(clippy::wrong_self_convention, reason = "there is nothing to convert")]
        impl $type {
            $(pub(crate) fn $name(&self $(, _: $parameter)*) $(-> $output)? {
                match *self {}
            })*
        })+
    };
}

// Life cycle.
neutral! {
    init();
    init_with_end(Option<&Path>, bool);
    shutdown();
    shutdown_after(Duration);
    save_at_exit(&Path) -> Result<(), StartError> = Err(StartError::Unsupported);
    start(&StartParams) -> Result<Generation, StartError> = Err(StartError::Unsupported);
    start_guarded(&StartParams, &'static Location<'static>, WhileOtherRuns)
        -> Result<Generation, StartError> = Err(StartError::Unsupported);
    ensure_started(&StartParams) -> Result<Generation, StartError> = Err(StartError::Unsupported);
    start_early(usize);
    join_session(&StartParams) -> Result<SessionClient, StartError> = Err(StartError::Unsupported);
    end_guarded_session(Generation, Option<FrozenProfile>);
    stop();
    pause();
    resume();
    pause_sampling();
    resume_sampling();
    control_by_signals(&ControlSignals) -> Result<(), StartError> = Err(StartError::Unsupported);
    add_state_change_callback(ProfilingStates, u64, Box<dyn Fn(ProfilingState) + Send + Sync>);
    remove_state_change_callback(u64);
    callback_after_sampling(Box<dyn FnOnce(SamplingState) + Send>) -> bool = false;
}

// State.
neutral! {
    is_active() -> bool = false;
    is_active_and_unpaused() -> bool = false;
    is_paused() -> bool = false;
    is_sampling_paused() -> bool = false;
    features_if_active() -> Option<Features> = None;
    features_if_active_and_unpaused() -> Option<Features> = None;
    start_params() -> Option<StartParams> = None;
    buffer_info() -> Option<BufferInfo> = None;
    running_session() -> Option<Generation> = None;
    is_locked_on_current_thread() -> bool = false;
    now() -> ProfilerTime = ProfilerTime::from_monotonic_ns(0);
}

// Threads and processes.
neutral! {
    register_thread(&str);
    unregister_thread();
    // No thread has to be registered.
    is_thread_registered() -> bool = true;
    is_thread_being_profiled(ThreadProfilingFeatures) -> bool = false;
    is_other_thread_being_profiled(ThreadId, ThreadProfilingFeatures) -> bool = false;
    main_thread_id() -> ThreadId = ThreadId::UNSPECIFIED;
    own_thread_id() -> ThreadId = ThreadId::UNSPECIFIED;
    is_main_thread() -> bool = false;
    is_current_thread(ThreadId) -> bool = false;
    announce_sleep(bool);
    is_announced_asleep() -> bool = false;
    set_process_name(&str, Option<&str>);
    set_process_type(&str);
    set_version(&str);
    register_page(Page);
    unregister_page(u64);
    clear_all_pages();
    env_vars_for_child_process() -> Vec<(String, String)> = Vec::new();
    wait_for_children(Duration) -> usize = 0;
    wait_for_sampling_of_children(Duration) -> usize = 0;
    received_exit_profile(String) -> Result<(), ExitProfileError> = Err(ExitProfileError::Unsupported);
    prepare_exec(&mut Command) -> io::Result<Option<ExecHandover>> = Ok(None);
}

// Profiles.
neutral! {
    freeze(Option<Generation>) -> Option<FrozenProfile> = None;
    heap_snapshot() -> Option<FrozenProfile> = None;
    rescue(&Path) -> Result<FrozenProfile, RescueError> = Err(RescueError::Unsupported);
    default_options() -> WriteOptions = WriteOptions {
        format: Format::Gecko,
        stream: StreamOptions,
        export: ExportOptions::default(),
    };
    dump(Option<Duration>, std::fmt::Arguments<'_>) -> Result<WrittenDump, DumpError>
        = Err(DumpError::Unsupported);
    set_dumps(Option<DumpSettings>) -> Result<(), DumpError> = Err(DumpError::Unsupported);
    dumps_at_panic() -> bool = false;
}

// Labels, contexts and events.
neutral! {
    stack_pointer() -> u64 = 0;
    push_label(u64, &'static str, ProfilingCategoryPair, FrameFlags) -> LabelToken
        = LabelToken(PhantomData);
    push_label_with_text(u64, &'static str, ProfilingCategoryPair, FrameFlags, &str) -> LabelToken
        = LabelToken(PhantomData);
    push_script_frame(u64, u32, u32, u32) -> LabelToken = LabelToken(PhantomData);
    set_script_frame_position(&LabelToken, u32, u32);
    pop_labels(&LabelToken);
    current_context() -> ContextWords = ContextWords::NONE;
    replace_context(ContextWords) -> ContextWords = ContextWords::NONE;
    add_context_label([u32; 4], &str, &str) -> [u32; 4] = [0; 4];
    are_waits_recorded() -> bool = false;
    begin_event(Option<ProfilerTime>) -> EventToken = EventToken(PhantomData);
    end_event(&EventToken);
    watch_event_loop(Box<dyn FnMut(ProbeToken) + Send>) -> Option<EventWatchToken> = None;
    unwatch_event_loop(&EventWatchToken);
    register_code_range(u64, u64, &str, Option<u32>) -> Option<CodeRangeToken> = None;
    unregister_code_range(&CodeRangeToken);
}

// Stacks and markers.
neutral! {
    capture_backtrace() -> Option<CapturedBacktrace> = None;
    suspend_and_sample(ThreadId, StackFeatures, Duration) -> Result<SampledStack, SuspendError>
        = Err(SuspendError::Unsupported);
    record_backtrace(&CapturedBacktrace) -> u64 = 0;
    record_return_addresses(&[u64]) -> u64 = 0;
    record_own_stack(&MarkerDestination, StackFeatures) -> u64 = 0;
    marker_destination(Option<Generation>, ThreadId) -> Option<MarkerDestination> = None;
    chosen_destination(Option<Generation>, &str, &MarkerTiming) -> Option<MarkerDestination>
        = None;
    chosen(&MarkerDestination, &str, &MarkerTiming) -> Option<MarkerDestination> = None;
    session_that_records_markers(ThreadId) -> Option<Generation> = None;
    put_file_io_marker(&MarkerDestination, &NewMarker<'_>, &BorrowedFileIO<'_>);
}

pub(crate) fn resolve_backtrace(backtrace: &CapturedBacktrace, _: StackFeatures) -> SampledStack {
    match *backtrace {}
}

/// No marker is ever recorded.
pub(crate) trait MarkerPayload: Sized {
    #[inline(always)]
    fn add_now(self, _: &str, _: u8) {}

    #[inline(always)]
    fn add(self, _: Option<Generation>, _: &NewMarker<'_>) {}

    #[inline(always)]
    fn put(self, _: &MarkerDestination, _: &NewMarker<'_>) {}
}

impl MarkerPayload for Option<&str> {}

impl<T> MarkerPayload for &T {}

// Allocations.
neutral! {
    allocation_modes() -> AllocationModes = AllocationModes;
    on_allocated(AllocationModes, usize) -> bool = false;
    on_free(AllocationModes, u64, usize) -> bool = false;
    undo_free(u64, usize, Option<LiveAllocation>);
    sample_allocation(u64, usize);
    sample_free(u64);
    sample_move(u64) -> Option<LiveAllocation> = None;
}

uninhabited! {
    /// Profiles never exist, because sessions do not, and this build reads none.
    FrozenProfile {
        write(&WriteOptions, &mut dyn Write) -> io::Result<()>;
        write_once(&WriteOptions, &mut dyn Write) -> io::Result<()>;
        into_text(&WriteOptions) -> io::Result<Vec<u8>>;
        save(&Path) -> Result<PathBuf, SaveError>;
        save_with(WriteOptions, &Path) -> Result<PathBuf, SaveError>;
        save_once(&Path) -> Result<PathBuf, SaveError>;
        to_read() -> io::Result<ReadProfile>;
        compare(&Self, Option<&str>) -> io::Result<Diff>;
        explain(&Wanted) -> io::Result<Explanation>;
        texts() -> io::Result<(String, Option<String>)>;
        summarize() -> Vec<ThreadSummary>;
        counts() -> Vec<(&'static str, u64)>;
    }
    /// This build compares no profiles.
    Diff {
        is_regression() -> bool;
        text() -> String;
        write_json(&mut dyn Write) -> io::Result<()>;
    }
    /// Clients join no session.
    SessionClient {
        leave_with_profile() -> Option<FrozenProfile>;
        since() -> ProfilerTime;
        is_running() -> bool;
        interval() -> Option<Duration>;
    }
    /// No dump is ever written.
    WrittenDump {
        path() -> &Path;
        wait(Duration);
    }
    /// Backtraces are never captured.
    CapturedBacktrace {
        thread() -> ThreadId;
    }
    /// Stacks are never sampled.
    SampledStack {
        thread() -> ThreadId;
        time() -> ProfilerTime;
        is_truncated() -> bool;
        frames() -> &[StackFrame];
        names() -> &[Vec<FunctionName>];
    }
    /// Event loops are never probed.
    ProbeToken {
        answer();
    }
    /// Event loops are never watched.
    EventWatchToken {}
    /// Code ranges are never registered.
    #[derive(PartialEq, Eq)]
    CodeRangeToken {}
    /// No profile is ever handed over.
    ExecHandover {}
    /// No allocation is ever sampled.
    LiveAllocation {}
    /// No session records where a future waits.
    BegunPoll {}
}

pub(crate) use FrozenProfile as ReadProfile;

impl FrozenProfile {
    pub(crate) fn read_from(_: impl io::Read) -> Result<Self, ReadError> {
        Err(ReadError::Unsupported)
    }

    pub(crate) fn read(_: &Path) -> Result<Self, ReadError> {
        Err(ReadError::Unsupported)
    }
}

#[derive(Debug)]
pub(crate) struct LabelToken(LabelOfOneThread);

/// An event of an event loop.
#[derive(Debug)]
pub(crate) struct EventToken(PhantomData<*const ()>);

/// Options for writing a profile. No profile is ever written, so their creation sets the progress
/// to done.
#[derive(Debug)]
pub(crate) struct StreamOptions;

impl StreamOptions {
    pub(crate) fn new(
        _: NameOptions,
        _: Option<ProfilerTime>,
        _: u64,
        progress: Option<&SharedProgress>,
    ) -> Self {
        if let Some(progress) = progress {
            progress.reach(1.0, ProgressLocation::Done);
        }
        Self
    }

    pub(crate) fn child_timeout(self, _: Duration) -> Self {
        self
    }
}

/// The options that the API makes. No profile is ever written with them.
#[derive(Debug)]
pub(crate) struct WriteOptions {
    pub(crate) format: Format,
    pub(crate) stream: StreamOptions,
    pub(crate) export: ExportOptions,
}

/// What a session records of allocations: nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AllocationModes;

impl AllocationModes {
    #[inline(always)]
    pub(crate) fn is_off(self) -> bool {
        true
    }
}

/// No session records where a future waits.
#[derive(Debug, Default)]
pub(crate) struct TaskWait;

impl TaskWait {
    pub(crate) const fn new() -> Self {
        Self
    }

    pub(crate) fn begin_poll(&mut self, _: Option<(&str, &str)>, _: u64) -> Option<BegunPoll> {
        None
    }

    pub(crate) fn end_poll(&mut self, begun: BegunPoll, _: bool, _: &str) {
        match begun {}
    }

    pub(crate) fn exit_span(&mut self, begun: BegunPoll, _: ContextWords) {
        match begun {}
    }

    pub(crate) fn abandon_poll(&mut self, begun: BegunPoll) {
        match begun {}
    }
}

/// The only script function, which every registration returns.
#[derive(PartialEq, Eq, Hash, Debug)]
pub(crate) struct ScriptFunction {
    pub(crate) description: ScriptDescription<'static>,
}

#[inline(always)]
pub(crate) fn register_script_function(_: ScriptDescription<'_>) -> &'static ScriptFunction {
    static ONLY: ScriptFunction = ScriptFunction {
        description: ScriptDescription::new("", "", 0, 0),
    };
    &ONLY
}

impl ScriptFunction {
    pub(crate) const fn number(&self) -> u32 {
        0
    }
}

/// A counter that counts nothing.
#[derive(Debug)]
pub(crate) struct StaticCounter;

impl StaticCounter {
    pub(crate) const fn new(_: CounterParams<&'static str>) -> Self {
        Self
    }

    pub(crate) fn add(&'static self, _: i64) {}

    pub(crate) fn add_operation(&'static self, _: i64) {}

    pub(crate) fn set(&'static self, _: i64) {}
}

/// A counter that counts nothing.
#[derive(Debug)]
pub(crate) struct OwnedCounter;

impl OwnedCounter {
    pub(crate) fn new(_: &CounterParams<&str>) -> Self {
        Self
    }

    pub(crate) fn add(&self, _: i64) {}

    pub(crate) fn add_operation(&self, _: i64) {}

    pub(crate) fn set(&self, _: i64) {}

    pub(crate) fn of_float(_: &CounterParams<&str>, _: ScaledFloat) -> Self {
        Self
    }

    pub(crate) fn is_listed(&self) -> bool {
        false
    }
}

/// A number that is never read.
#[derive(Debug, Default)]
pub(crate) struct FloatValues;

impl FloatValues {
    pub(crate) fn add(&self, _: f64) {}

    pub(crate) fn add_operations(&self, _: f64, _: u64) {}

    pub(crate) fn set(&self, _: f64) {}
}

/// A view of a number that is never read.
#[derive(Debug)]
pub(crate) struct ScaledFloat;

impl ScaledFloat {
    pub(crate) fn new(_: &Arc<FloatValues>, _: f64) -> Self {
        Self
    }

    pub(crate) fn from_now(_: &Arc<FloatValues>, _: f64) -> Self {
        Self
    }
}

/// Changes nothing, because no handler of the profiler runs.
#[derive(Debug)]
pub(crate) struct SignalStack;

impl SignalStack {
    pub(crate) fn install(_: usize) -> io::Result<Self> {
        Ok(Self)
    }
}

/// Runs the task at once: no question takes time in this build.
pub(crate) fn spawn_task(task: impl FnOnce() + Send + 'static) -> io::Result<()> {
    task();
    Ok(())
}

neutral! {
    destination_time(&MarkerDestination) -> ProfilerTime = ProfilerTime::from_monotonic_ns(0);
    may_list_counters() -> bool = false;
}

#[cfg(feature = "push")]
neutral! {
    push(&PushSettings) -> Result<Arc<RunningPush>, PushError> = Err(PushError::Unsupported);
}

#[cfg(feature = "push")]
uninhabited! {
    /// No profile is ever pushed.
    RunningPush {
        counts() -> PushCounts;
        set_interval(Duration) -> Result<(), PushError>;
        set_session(StartParams) -> Result<(), PushError>;
        stop();
    }
}
