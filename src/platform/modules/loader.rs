//! Calls to the loader: its counters, and a visit of all modules under its lock.
//!
//! **Contract**: as in `mod.rs`: *loader's lock*, *stays*.

use std::ffi::CStr;
use std::ops::{ControlFlow, Range};

use crate::platform::loader_calls::{LoaderCalls, WatchedThread};
use crate::util::{SMALL_TASK_BYTES, allocator_has, as_profiler_work, prepare_to_wait};

/// The loader's counters of loaded and unloaded modules. While they are unchanged, so is the list
/// of modules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ModuleChanges {
    loaded: u64,
    unloaded: u64,
}

impl ModuleChanges {
    /// Returns how many modules were loaded and unloaded since `before`.
    pub(crate) fn since(self, before: Self) -> (u64, u64) {
        (
            self.loaded.wrapping_sub(before.loaded),
            self.unloaded.wrapping_sub(before.unloaded),
        )
    }
}

/// A module as the loader passes it to a callback.
pub(super) struct LoaderEntry<'a> {
    pub(super) info: &'a libc::dl_phdr_info,
    pub(super) headers: &'a [libc::Elf64_Phdr],
    pub(super) name: &'a [u8],
}

static CALLS: LoaderCalls = LoaderCalls::new();

/// Waits until no other thread is in a call that this file makes to the loader, and delays further
/// calls until the guard is dropped. Otherwise the loader's own lock could stay locked in the child
/// of a fork for ever.
pub(crate) fn hold_loader_for_fork() -> LoaderForkGuard {
    CALLS.close_for_fork();
    LoaderForkGuard(())
}

/// Prepares to watch whether a thread of the profiler waits for the loader.
pub(crate) fn watch_loader_calls() -> WatchedThread<'static> {
    CALLS.watch()
}

/// Calls [`prepare_to_wait`], if there is enough memory. That counts as a call to the loader: the C
/// library takes the loader's lock to register the destructor of a thread-local.
pub(crate) fn prepare_to_wait_as_loader_call() {
    let _call = CALLS.begin();
    if allocator_has(SMALL_TASK_BYTES) {
        prepare_to_wait();
    }
}

/// Allows calls to the loader when dropped.
#[derive(Debug)]
pub(crate) struct LoaderForkGuard(());

impl LoaderForkGuard {
    /// Forgets the calls of the parent's other threads, and allows calls. Called in the child of a
    /// fork.
    pub(crate) fn reset_in_child(self) {
        CALLS.reset();
    }
}

impl Drop for LoaderForkGuard {
    fn drop(&mut self) {
        CALLS.open();
    }
}

/// Calls `visit` for each module, the executable first, until it returns `Break`. `visit` must not
/// allocate, free memory, or call the loader.
pub(super) fn visit_modules(visit: &mut dyn FnMut(&LoaderEntry<'_>) -> ControlFlow<()>) {
    type Visit<'a> = &'a mut dyn FnMut(&LoaderEntry<'_>) -> ControlFlow<()>;
    /// # Safety
    /// - The caller is the loader, which passes a `dl_phdr_info` and the `data` pointer of
    ///   `dl_iterate_phdr`.
    unsafe extern "C" fn callback(
        info: *mut libc::dl_phdr_info,
        _: usize,
        data: *mut libc::c_void,
    ) -> libc::c_int {
        // SAFETY: `data` is the pointer to `visit` passed below, which lives until
        // `dl_iterate_phdr` returns.
        let visit = unsafe { &mut *data.cast::<Visit<'_>>() };
        // SAFETY: *loader's lock*: the loader passes a filled-in `dl_phdr_info`, whose headers are
        // mapped and whose name is a C string.
        let entry = unsafe {
            let info = &*info;
            let headers = match info.dlpi_phdr.is_null() {
                true => &[],
                false => std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()),
            };
            let name = match info.dlpi_name.is_null() {
                true => &[],
                false => CStr::from_ptr(info.dlpi_name).to_bytes(),
            };
            LoaderEntry {
                info,
                headers,
                name,
            }
        };
        visit(&entry).is_break().into()
    }
    as_profiler_work(|| {
        let call = CALLS.begin();
        let mut visit: Visit<'_> = &mut |entry: &LoaderEntry<'_>| {
            call.got_lock();
            visit(entry)
        };
        // SAFETY: the callback has the signature that the loader expects, and its pointer outlives
        // the call.
        unsafe { libc::dl_iterate_phdr(Some(callback), (&raw mut visit).cast()) };
    });
}

/// Reads the loader's counters. Takes the loader's lock briefly.
pub(crate) fn module_changes() -> ModuleChanges {
    let mut changes = ModuleChanges::default();
    visit_modules(&mut |entry| {
        changes = entry.changes();
        ControlFlow::Break(())
    });
    changes
}

impl LoaderEntry<'_> {
    pub(super) fn changes(&self) -> ModuleChanges {
        ModuleChanges {
            loaded: self.info.dlpi_adds,
            unloaded: self.info.dlpi_subs,
        }
    }
}

/// Returns the bytes of a mapped range.
///
/// # Safety
/// - The range is mapped and readable, and stays mapped and unchanged while the slice lives.
pub(super) unsafe fn mapped<'a>(range: Range<u64>) -> &'a [u8] {
    // SAFETY: by this function's contract.
    unsafe {
        std::slice::from_raw_parts(range.start as *const u8, (range.end - range.start) as usize)
    }
}
