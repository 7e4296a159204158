//! Empty implementations of the functions that the API calls.

use std::io::{self, Write};
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::process::Command;
#[cfg(any(feature = "metrics", feature = "push"))]
use std::sync::Arc;
use std::time::Duration;

use crate::export::{Explanation, ExportOptions, Format, ThreadSummary, Wanted};
use crate::markers::{BorrowedFileIO, MarkerTiming, ProfilerMarker};
use crate::types::{
    BufferInfo, ControlSignals, CounterParams, DumpError, DumpSettings, ExitProfileError, Features,
    FrameFlags, FunctionName, LabelOfOneThread, NameOptions, Page, ProfilerTime,
    ProfilingCategoryPair, ProfilingState, ProfilingStates, ReadError, RescueError, SamplingState,
    SaveError, ScriptDescription, StackFeatures, StackFrame, StartError, StartParams, SuspendError,
    ThreadId, ThreadProfilingFeatures,
};
#[cfg(feature = "push")]
use crate::types::{PushCounts, PushError, PushSettings};
use crate::util::{ProgressLocation, SharedProgress};

/// Uninhabited, because sessions never exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Generation {}

/// Uninhabited, because profiles never exist.
#[derive(Clone, Debug)]
pub(crate) enum FrozenProfile {}

/// Uninhabited, because stacks are never sampled.
#[derive(Clone, Debug)]
pub(crate) enum SampledStack {}

/// Uninhabited, because backtraces are never captured.
#[derive(Debug)]
pub(crate) enum CapturedBacktrace {}

#[derive(Debug)]
pub(crate) struct LabelToken(LabelOfOneThread);

/// Uninhabited, because code ranges are never registered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum CodeRangeToken {}

pub(crate) fn init() {}

pub(crate) fn init_with_end(_: Option<&Path>, _: bool) {}

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
#[expect(dead_code, reason = "this build writes no profile")]
pub(crate) struct WriteOptions {
    pub(crate) format: Format,
    pub(crate) stream: StreamOptions,
    pub(crate) export: ExportOptions,
}

pub(crate) fn default_options() -> WriteOptions {
    WriteOptions {
        format: Format::Gecko,
        stream: StreamOptions,
        export: ExportOptions::default(),
    }
}

pub(crate) fn wait_for_children(_: Duration) -> usize {
    0
}

pub(crate) fn wait_for_sampling_of_children(_: Duration) -> usize {
    0
}

pub(crate) fn rescue(_: &Path) -> Result<FrozenProfile, RescueError> {
    Err(RescueError::Unsupported)
}

pub(crate) fn control_by_signals(_: &ControlSignals) -> Result<(), StartError> {
    Err(StartError::Unsupported)
}

pub(crate) fn env_vars_for_child_process() -> Vec<(String, String)> {
    Vec::new()
}

pub(crate) fn shutdown() {}

pub(crate) fn shutdown_after(_: Duration) {}

pub(crate) fn save_at_exit(_: &Path) -> Result<(), StartError> {
    Err(StartError::Unsupported)
}

pub(crate) fn is_active() -> bool {
    false
}

pub(crate) fn start(_: &StartParams) -> Result<Generation, StartError> {
    Err(StartError::Unsupported)
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum WhileOtherRuns {
    Fail,
    Wait,
}

pub(crate) fn start_guarded(
    _: &StartParams,
    _: &'static Location<'static>,
    _: WhileOtherRuns,
) -> Result<Generation, StartError> {
    Err(StartError::Unsupported)
}

pub(crate) fn ensure_started(_: &StartParams) -> Result<Generation, StartError> {
    Err(StartError::Unsupported)
}

pub(crate) fn stop() {}

pub(crate) fn pause() {}

pub(crate) fn resume() {}

pub(crate) fn pause_sampling() {}

pub(crate) fn resume_sampling() {}

pub(crate) fn is_active_and_unpaused() -> bool {
    false
}

pub(crate) fn is_paused() -> bool {
    false
}

pub(crate) fn is_sampling_paused() -> bool {
    false
}

pub(crate) fn features_if_active() -> Option<Features> {
    None
}

pub(crate) fn features_if_active_and_unpaused() -> Option<Features> {
    None
}

pub(crate) fn start_params() -> Option<StartParams> {
    None
}

pub(crate) fn buffer_info() -> Option<BufferInfo> {
    None
}

pub(crate) fn add_state_change_callback(
    _: ProfilingStates,
    _: u64,
    _: Box<dyn Fn(ProfilingState) + Send + Sync>,
) {
}

pub(crate) fn remove_state_change_callback(_: u64) {}

pub(crate) fn callback_after_sampling(_: Box<dyn FnOnce(SamplingState) + Send>) -> bool {
    false
}

pub(crate) fn end_guarded_session(generation: Generation, _: Option<FrozenProfile>) {
    match generation {}
}

pub(crate) fn freeze(_: Option<Generation>) -> Option<FrozenProfile> {
    None
}

pub(crate) fn heap_snapshot() -> Option<FrozenProfile> {
    None
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

/// A sampled allocation, which never exists.
#[derive(Clone, Copy, Debug)]
pub(crate) enum LiveAllocation {}

#[inline(always)]
pub(crate) fn allocation_modes() -> AllocationModes {
    AllocationModes
}

#[inline(always)]
pub(crate) fn on_allocated(_: AllocationModes, _: usize) -> bool {
    false
}

#[inline(always)]
pub(crate) fn on_free(_: AllocationModes, _: u64, _: usize) -> bool {
    false
}

pub(crate) fn undo_free(_: u64, _: usize, _: Option<LiveAllocation>) {}

pub(crate) fn sample_allocation(_: u64, _: usize) {}

pub(crate) fn sample_free(_: u64) {}

pub(crate) fn sample_move(_: u64) -> Option<LiveAllocation> {
    None
}

pub(crate) fn now() -> ProfilerTime {
    ProfilerTime::from_monotonic_ns(0)
}

#[inline(always)]
pub(crate) fn stack_pointer() -> u64 {
    0
}

#[inline(always)]
pub(crate) fn push_label(
    _: u64,
    _: &'static str,
    _: ProfilingCategoryPair,
    _: FrameFlags,
) -> LabelToken {
    LabelToken(std::marker::PhantomData)
}

#[inline(always)]
pub(crate) fn push_label_with_text(
    _: u64,
    _: &'static str,
    _: ProfilingCategoryPair,
    _: FrameFlags,
    _: &str,
) -> LabelToken {
    LabelToken(std::marker::PhantomData)
}

#[inline(always)]
pub(crate) fn pop_labels(_: &LabelToken) {}

/// What a context says; kept, but never recorded.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct ContextWords {
    pub(crate) trace: [u64; 2],
    pub(crate) span: u64,
    pub(crate) labels: [u32; 4],
}

impl ContextWords {
    pub(crate) const NONE: Self = Self {
        trace: [0; 2],
        span: 0,
        labels: [0; 4],
    };
}

/// No session records where a future waits.
#[derive(Debug, Default)]
pub(crate) struct TaskWait;

#[derive(Clone, Copy, Debug)]
pub(crate) enum BegunPoll {}

#[inline(always)]
pub(crate) fn are_waits_recorded() -> bool {
    false
}

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

    #[cfg(feature = "tracing")]
    pub(crate) fn exit_span(&mut self, begun: BegunPoll, _: ContextWords) {
        match begun {}
    }

    pub(crate) fn abandon_poll(&mut self, begun: BegunPoll) {
        match begun {}
    }
}

pub(crate) fn current_context() -> ContextWords {
    ContextWords::NONE
}

#[inline(always)]
pub(crate) fn replace_context(_: ContextWords) -> ContextWords {
    ContextWords::NONE
}

pub(crate) fn add_context_label(_: [u32; 4], _: &str, _: &str) -> [u32; 4] {
    [0; 4]
}

/// No dump is ever written.
#[derive(Debug)]
pub(crate) enum WrittenDump {}

impl WrittenDump {
    pub(crate) fn path(&self) -> &Path {
        match *self {}
    }

    pub(crate) fn wait(&self, _: Duration) {
        match *self {}
    }
}

pub(crate) fn dump(
    _: Option<Duration>,
    _: std::fmt::Arguments<'_>,
) -> Result<WrittenDump, DumpError> {
    Err(DumpError::Unsupported)
}

pub(crate) fn set_dumps(_: Option<DumpSettings>) -> Result<(), DumpError> {
    Err(DumpError::Unsupported)
}

pub(crate) fn dumps_at_panic() -> bool {
    false
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

#[inline(always)]
pub(crate) fn push_script_frame(_: u64, _: u32, _: u32, _: u32) -> LabelToken {
    LabelToken(std::marker::PhantomData)
}

#[inline(always)]
pub(crate) fn set_script_frame_position(_: &LabelToken, _: u32, _: u32) {}

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

    #[cfg(feature = "metrics")]
    pub(crate) fn of_float(_: &CounterParams<&str>, _: ScaledFloat) -> Self {
        Self
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn is_listed(&self) -> bool {
        false
    }
}

#[cfg(feature = "metrics")]
pub(crate) fn may_list_counters() -> bool {
    false
}

/// A number that nobody reads.
#[cfg(feature = "metrics")]
#[derive(Debug, Default)]
pub(crate) struct FloatValues;

#[cfg(feature = "metrics")]
impl FloatValues {
    pub(crate) fn add(&self, _: f64) {}

    pub(crate) fn add_operations(&self, _: f64, _: u64) {}

    pub(crate) fn set(&self, _: f64) {}
}

/// A view of a number that nobody reads.
#[cfg(feature = "metrics")]
#[derive(Debug)]
pub(crate) struct ScaledFloat;

#[cfg(feature = "metrics")]
impl ScaledFloat {
    pub(crate) fn new(_: &Arc<FloatValues>, _: f64) -> Self {
        Self
    }

    pub(crate) fn from_now(_: &Arc<FloatValues>, _: f64) -> Self {
        Self
    }
}

pub(crate) fn register_thread(_: &str) {}

pub(crate) fn unregister_thread() {}

/// Changes nothing, because no handler of the profiler runs.
#[derive(Debug)]
pub(crate) struct SignalStack;

impl SignalStack {
    pub(crate) fn install(_: usize) -> std::io::Result<Self> {
        Ok(Self)
    }
}

pub(crate) fn announce_sleep(_: bool) {}

pub(crate) fn is_announced_asleep() -> bool {
    false
}

/// An event of an event loop.
#[derive(Debug)]
pub(crate) struct EventToken(std::marker::PhantomData<*const ()>);

#[inline(always)]
pub(crate) fn begin_event(_: Option<ProfilerTime>) -> EventToken {
    EventToken(std::marker::PhantomData)
}

#[inline(always)]
pub(crate) fn end_event(_: &EventToken) {}

/// Uninhabited, because event loops are never probed.
#[derive(Debug)]
pub(crate) enum ProbeToken {}

impl ProbeToken {
    pub(crate) fn answer(self) {
        match self {}
    }
}

/// Uninhabited, because event loops are never watched.
#[derive(Debug)]
pub(crate) enum EventWatchToken {}

pub(crate) fn watch_event_loop(_: Box<dyn FnMut(ProbeToken) + Send>) -> Option<EventWatchToken> {
    None
}

pub(crate) fn unwatch_event_loop(watch: &EventWatchToken) {
    match *watch {}
}

pub(crate) fn register_code_range(
    _: u64,
    _: u64,
    _: &str,
    _: Option<u32>,
) -> Option<CodeRangeToken> {
    None
}

pub(crate) fn unregister_code_range(token: &CodeRangeToken) {
    match *token {}
}

/// Uninhabited, because markers are never recorded.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MarkerDestination {}

#[inline(always)]
pub(crate) fn marker_destination(_: ThreadId) -> Option<MarkerDestination> {
    None
}

#[inline(always)]
pub(crate) fn destination_with_stack(_: &str, _: &MarkerTiming) -> Option<MarkerDestination> {
    None
}

#[inline(always)]
pub(crate) fn chosen(
    destination: &MarkerDestination,
    _: &str,
    _: &MarkerTiming,
) -> Option<MarkerDestination> {
    match *destination {}
}

#[inline(always)]
pub(crate) fn marker_destination_in(session: Generation, _: ThreadId) -> Option<MarkerDestination> {
    match session {}
}

#[inline(always)]
pub(crate) fn session_that_records_markers(_: ThreadId) -> Option<Generation> {
    None
}

pub(crate) fn running_session() -> Option<Generation> {
    None
}

#[cfg(feature = "tracing")]
pub(crate) fn destination_time(destination: &MarkerDestination) -> ProfilerTime {
    match *destination {}
}

#[inline(always)]
pub(crate) fn add_untyped_marker_now(_: &str, _: u8) {}

#[inline(always)]
pub(crate) fn add_untyped_marker_at(_: Option<Generation>, _: &str, _: u8, _: &MarkerTiming) {}

#[inline(always)]
pub(crate) fn add_text_marker_now(_: &str, _: u8, _: &str) {}

#[inline(always)]
pub(crate) fn add_text_marker_at(_: Option<Generation>, _: &str, _: u8, _: &MarkerTiming, _: &str) {
}

#[inline(always)]
pub(crate) fn add_typed_marker_now<T: ProfilerMarker + 'static>(_: &str, _: u8, _: &T) {}

#[inline(always)]
pub(crate) fn add_typed_marker_at<T: ProfilerMarker + 'static>(
    _: Option<Generation>,
    _: &str,
    _: u8,
    _: &MarkerTiming,
    _: &T,
) {
}

pub(crate) fn put_untyped_marker(
    destination: &MarkerDestination,
    _: &str,
    _: u8,
    _: &MarkerTiming,
    _: u64,
) {
    match *destination {}
}

pub(crate) fn put_text_marker(
    destination: &MarkerDestination,
    _: &str,
    _: u8,
    _: &MarkerTiming,
    _: u64,
    _: &str,
) {
    match *destination {}
}

pub(crate) fn put_file_io_marker(
    destination: &MarkerDestination,
    _: &str,
    _: u8,
    _: &MarkerTiming,
    _: u64,
    _: &BorrowedFileIO<'_>,
) {
    match *destination {}
}

pub(crate) fn put_typed_marker<T: ProfilerMarker + 'static>(
    destination: &MarkerDestination,
    _: &str,
    _: u8,
    _: &MarkerTiming,
    _: u64,
    _: &T,
) {
    match *destination {}
}

#[inline(always)]
pub(crate) fn record_own_stack(destination: &MarkerDestination, _: StackFeatures) -> u64 {
    match *destination {}
}

pub(crate) fn record_backtrace(backtrace: &CapturedBacktrace) -> u64 {
    match *backtrace {}
}

pub(crate) fn record_return_addresses(_: &[u64]) -> u64 {
    0
}

impl FrozenProfile {
    pub(crate) fn write(&self, _: &WriteOptions, _: &mut dyn Write) -> std::io::Result<()> {
        match *self {}
    }

    pub(crate) fn write_once(self, _: &WriteOptions, _: &mut dyn Write) -> std::io::Result<()> {
        match self {}
    }

    pub(crate) fn into_text(self, _: &WriteOptions) -> std::io::Result<Vec<u8>> {
        match self {}
    }

    pub(crate) fn save(&self, _: &Path) -> Result<PathBuf, SaveError> {
        match *self {}
    }

    pub(crate) fn save_with(&self, _: WriteOptions, _: &Path) -> Result<PathBuf, SaveError> {
        match *self {}
    }

    pub(crate) fn save_once(self, _: &Path) -> Result<PathBuf, SaveError> {
        match self {}
    }

    pub(crate) fn to_read(&self) -> std::io::Result<ReadProfile> {
        match *self {}
    }

    pub(crate) fn summarize(&self) -> Vec<ThreadSummary> {
        match *self {}
    }

    pub(crate) fn explain(&self, _: &Wanted) -> std::io::Result<Explanation> {
        match *self {}
    }

    pub(crate) fn counts(&self) -> Vec<(&'static str, u64)> {
        match *self {}
    }
}

/// Uninhabited, because this build compares no profiles.
#[derive(Clone, Debug)]
pub(crate) enum Diff {}

impl Diff {
    pub(crate) fn is_regression(&self) -> bool {
        match *self {}
    }

    pub(crate) fn text(&self) -> String {
        match *self {}
    }

    pub(crate) fn write_json(&self, _: &mut dyn Write) -> std::io::Result<()> {
        match *self {}
    }
}

/// Uninhabited, because this build reads no profiles.
#[derive(Clone, Debug)]
pub(crate) enum ReadProfile {}

impl ReadProfile {
    pub(crate) fn to_read(&self) -> std::io::Result<Self> {
        match *self {}
    }

    pub(crate) fn compare(&self, _: &Self, _: Option<&str>) -> std::io::Result<Diff> {
        match *self {}
    }

    pub(crate) fn explain(&self, _: &Wanted) -> std::io::Result<Explanation> {
        match *self {}
    }

    pub(crate) fn read_from(_: impl std::io::Read) -> Result<Self, ReadError> {
        Err(ReadError::Unsupported)
    }

    pub(crate) fn read(_: &Path) -> Result<Self, ReadError> {
        Err(ReadError::Unsupported)
    }

    pub(crate) fn write(&self, _: &WriteOptions, _: &mut dyn Write) -> std::io::Result<()> {
        match *self {}
    }

    pub(crate) fn save_with(&self, _: WriteOptions, _: &Path) -> Result<PathBuf, SaveError> {
        match *self {}
    }

    pub(crate) fn texts(&self) -> std::io::Result<(String, Option<String>)> {
        match *self {}
    }

    pub(crate) fn summarize(&self) -> Vec<ThreadSummary> {
        match *self {}
    }
}

pub(crate) fn set_process_name(_: &str, _: Option<&str>) {}

pub(crate) fn set_process_type(_: &str) {}

pub(crate) fn set_version(_: &str) {}

pub(crate) fn register_page(_: Page) {}

pub(crate) fn unregister_page(_: u64) {}

pub(crate) fn clear_all_pages() {}

/// Uninhabited, because sessions never exist.
#[derive(Debug)]
pub(crate) enum SessionClient {}

pub(crate) fn join_session(_: &StartParams) -> Result<SessionClient, StartError> {
    Err(StartError::Unsupported)
}

impl SessionClient {
    pub(crate) fn leave_with_profile(self) -> Option<FrozenProfile> {
        match self {}
    }

    pub(crate) fn since(&self) -> ProfilerTime {
        match *self {}
    }

    pub(crate) fn is_running(&self) -> bool {
        match *self {}
    }

    pub(crate) fn interval(&self) -> Option<Duration> {
        match *self {}
    }
}

/// Runs the task at once: no question takes time in this build.
pub(crate) fn spawn_task(task: impl FnOnce() + Send + 'static) -> io::Result<()> {
    task();
    Ok(())
}

/// No profile is ever handed over.
#[derive(Debug)]
pub(crate) enum ExecHandover {}

pub(crate) fn prepare_exec(_: &mut Command) -> io::Result<Option<ExecHandover>> {
    Ok(None)
}

pub(crate) fn received_exit_profile(_: String) -> Result<(), ExitProfileError> {
    Err(ExitProfileError::Unsupported)
}

pub(crate) fn is_thread_being_profiled(_: ThreadProfilingFeatures) -> bool {
    false
}

pub(crate) fn is_other_thread_being_profiled(_: ThreadId, _: ThreadProfilingFeatures) -> bool {
    false
}

pub(crate) fn is_thread_registered() -> bool {
    false
}

pub(crate) fn is_locked_on_current_thread() -> bool {
    false
}

pub(crate) fn main_thread_id() -> ThreadId {
    ThreadId::UNSPECIFIED
}

pub(crate) fn is_main_thread() -> bool {
    false
}

pub(crate) fn is_current_thread(_: ThreadId) -> bool {
    false
}

pub(crate) fn own_thread_id() -> ThreadId {
    ThreadId::UNSPECIFIED
}

#[inline(always)]
pub(crate) fn capture_backtrace() -> Option<CapturedBacktrace> {
    None
}

pub(crate) fn resolve_backtrace(backtrace: &CapturedBacktrace, _: StackFeatures) -> SampledStack {
    match *backtrace {}
}

pub(crate) fn suspend_and_sample(
    _: ThreadId,
    _: StackFeatures,
    _: Duration,
) -> Result<SampledStack, SuspendError> {
    Err(SuspendError::Unsupported)
}

impl CapturedBacktrace {
    pub(crate) fn thread(&self) -> ThreadId {
        match *self {}
    }
}

impl SampledStack {
    pub(crate) fn thread(&self) -> ThreadId {
        match *self {}
    }

    pub(crate) fn time(&self) -> ProfilerTime {
        match *self {}
    }

    pub(crate) fn is_truncated(&self) -> bool {
        match *self {}
    }

    pub(crate) fn frames(&self) -> &[StackFrame] {
        match *self {}
    }

    pub(crate) fn names(&self) -> &[Vec<FunctionName>] {
        match *self {}
    }
}

/// No profile is ever pushed.
#[cfg(feature = "push")]
#[derive(Debug)]
pub(crate) enum RunningPush {}

#[cfg(feature = "push")]
pub(crate) fn push(_: &PushSettings) -> Result<Arc<RunningPush>, PushError> {
    Err(PushError::Unsupported)
}

#[cfg(feature = "push")]
impl RunningPush {
    pub(crate) fn counts(&self) -> PushCounts {
        match *self {}
    }

    pub(crate) fn set_interval(&self, _: Duration) -> Result<(), PushError> {
        match *self {}
    }

    pub(crate) fn set_session(&self, _: StartParams) -> Result<(), PushError> {
        match *self {}
    }

    pub(crate) fn stop(&self) {
        match *self {}
    }
}
