//! What exists once the profiler is initialized: facts about the process, and the process-wide buffer.
//! The buffer is static, so a marker need not check whether it exists.

use std::cell::{Cell, OnceCell};
use std::sync::Arc;

use once_cell::race::OnceBox;

use crate::buffer::{ChunkedBuffer, Dropped, Entry, LaneHandle, LaneRef};
use crate::counters::{ALLOCATED_MEMORY, CounterDescription, PROCESS_CPU, RESIDENT_MEMORY};
use crate::platform::{
    ProcessStart, heavy_barrier, process_start, read_exe_path, was_memory_available,
};
use crate::types::{Generation, Page, TimeStamp};
use crate::util::{PsCell, PsLock, SMALL_TASK_BYTES, allocator_has};

/// Gecko's type of the process that the user started.
pub(crate) const DEFAULT_PROCESS_TYPE: &str = "default";

/// Facts about the process, valid from initialization to `profiler_shutdown`.
#[doc(alias = "CorePS")]
#[derive(Debug)]
pub(crate) struct CorePs {
    pub(crate) process_start: ProcessStart,
    /// The executable's name.
    pub(crate) product: String,
    /// The name that the application set, or the executable's name.
    pub(crate) process_name: String,
    /// The program's version, if the application set one.
    pub(crate) version: Option<String>,
    /// The kind of process, as the application set it, or [`DEFAULT_PROCESS_TYPE`].
    pub(crate) process_type: String,
    /// The site that the process works for, if the application set one.
    pub(crate) etld1: Option<String>,
    /// All counters. A session samples those that its features select.
    pub(crate) counters: Vec<&'static CounterDescription>,
    /// Pages, in the order of registration.
    pub(crate) pages: Vec<Arc<Page>>,
}

/// `None` until the first call that needs it, such as `profiler_init` or a start, and after
/// `profiler_shutdown`.
pub(crate) static CORE_PS: PsCell<Option<CorePs>> = PsCell::new(None);

/// Start of the process, read once, so that the times of different sessions are comparable. If a
/// fork interrupts the first read, the child finds the cell empty and reads again.
static PROCESS_START: OnceBox<ProcessStart> = OnceBox::new();

impl CorePs {
    pub(crate) fn new() -> Self {
        let name = read_exe_path()
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        let process_name = name.unwrap_or_else(|| "rust".to_owned());
        Self {
            process_start: Self::process_start(),
            product: process_name.clone(),
            process_name,
            process_type: DEFAULT_PROCESS_TYPE.to_owned(),
            version: None,
            etld1: None,
            counters: vec![&PROCESS_CPU, &RESIDENT_MEMORY, &ALLOCATED_MEMORY],
            pages: Vec::new(),
        }
    }

    pub(crate) fn set_process_name(&mut self, name: String, etld1: Option<String>) {
        self.process_name = name;
        self.etld1 = etld1;
    }

    /// Sets the kind of process. An empty text sets the default.
    pub(crate) fn set_process_type(&mut self, process_type: String) {
        self.process_type = match process_type.is_empty() {
            true => DEFAULT_PROCESS_TYPE.to_owned(),
            false => process_type,
        };
    }

    /// Returns the type and the name of this process. Takes the `PsLock`.
    pub(crate) fn process_type_and_name() -> (String, String) {
        let of_core = |core: &Self| (core.process_type.clone(), core.process_name.clone());
        let known = CORE_PS.get(&PsLock::acquire()).as_ref().map(of_core);
        known.unwrap_or_else(|| of_core(&Self::new()))
    }

    /// Adds a page, or replaces the one with the same id.
    pub(crate) fn register_page(&mut self, page: Arc<Page>) {
        let is_same = |known: &&mut Arc<Page>| known.inner_window_id == page.inner_window_id;
        match self.pages.iter_mut().find(is_same) {
            Some(known) => *known = page,
            None => self.pages.push(page),
        }
    }

    /// Removes and returns the page with this id.
    pub(crate) fn unregister_page(&mut self, inner_window_id: u64) -> Option<Arc<Page>> {
        let index = self
            .pages
            .iter()
            .position(|page| page.inner_window_id == inner_window_id)?;
        Some(self.pages.remove(index))
    }

    /// Returns the start of the process. Needs no lock, because the value never changes.
    pub(crate) fn process_start() -> ProcessStart {
        *PROCESS_START.get_or_init(|| Box::new(process_start()))
    }
}

/// The threads of the application, which write to it, open no files: the sampler looks how much memory
/// is left.
static CORE_BUFFER: ChunkedBuffer =
    ChunkedBuffer::out_of_session(heavy_barrier, was_memory_available);

thread_local! {
    /// The lane that this thread writes to. It has no destructor, so access does not check whether
    /// one has run.
    static OWN_LANE: Cell<Option<LaneRef<'static>>> = const { Cell::new(None) };
    /// Owns the lane in [`OWN_LANE`], and returns it when the thread exits.
    static OWN_LANE_HANDLE: OnceCell<OwnLane> = const { OnceCell::new() };
}

struct OwnLane(LaneHandle<'static>);

impl Drop for OwnLane {
    fn drop(&mut self) {
        OWN_LANE.set(None);
    }
}

/// Returns the process-wide buffer, which accepts entries only while the profiler is active.
#[doc(alias = "profiler_get_core_buffer")]
pub(crate) fn core_buffer() -> &'static ChunkedBuffer {
    &CORE_BUFFER
}

/// Assigns a lane to the calling thread before its first entry, which would otherwise assign one.
pub(crate) fn prepare_own_lane() {
    let _ = OWN_LANE_HANDLE.try_with(|own| {
        if own.get().is_none() {
            // `set` fails if a signal handler has written an entry since the check. The handler's
            // lane is kept.
            let _ = own.set(OwnLane(CORE_BUFFER.take_lane()));
        }
        OWN_LANE.set(own.get().map(|own| own.0.as_lane_ref()));
    });
}

/// Returns the index of the calling thread's lane, if it has one.
pub(crate) fn own_lane_index() -> Option<usize> {
    OWN_LANE_HANDLE
        .try_with(|own| own.get().map(|own| own.0.index()))
        .ok()
        .flatten()
}

/// Writes an entry of `session`. Returns false if that session is not the current one, or if the
/// buffer has no space.
#[inline(always)]
pub(crate) fn put_entry(session: Generation, now: TimeStamp, entry: impl Entry + Copy) -> bool {
    match OWN_LANE.get() {
        Some(lane) => CORE_BUFFER.put_in_lane(lane, session, now, entry).is_some(),
        None => put_first_entry(session, now, entry),
    }
}

/// Writes an entry of a thread without a lane. An exiting thread has already returned its lane, and
/// takes one for this entry only.
#[cold]
fn put_first_entry(session: Generation, now: TimeStamp, entry: impl Entry + Copy) -> bool {
    if !allocator_has(SMALL_TASK_BYTES) {
        CORE_BUFFER.count_dropped(Dropped::OutOfMemory);
        return false;
    }
    prepare_own_lane();
    match OWN_LANE.get() {
        Some(lane) => CORE_BUFFER.put_in_lane(lane, session, now, entry).is_some(),
        None => CORE_BUFFER.take_lane().put(session, now, &entry).is_some(),
    }
}
