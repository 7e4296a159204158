//! Names from the `backtrace` crate, for addresses without a name in the files that
//! `module_symbols.rs` opens.
//!
//! The crate opens a module by the path that the loader reports, whatever its length. It follows
//! the links to separate debug information that a stripped file contains.
//!
//! The crate lists the modules on its first use in the process and keeps that list. After a module
//! was unloaded, an address may lie in a module that took its place, and the crate would look it up
//! in the wrong file. So the crate is asked only in a process that has never unloaded a module:
//! there its list may lack modules, but contains no wrong one.
//!
//! The crate has a lock, which the application's own backtraces take, too. A fork does not wait for
//! it, so the child may find it held for ever, by a thread that exists only in the parent. For that
//! reason the crate is not asked in the child. The crate holds its lock while it lists the modules.
//! A thread of the application may hold the loader's lock during that time, and ask for a profile.
//! That thread waits for the list only for a limited time.

use std::ptr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use crate::platform::{ModuleChanges, module_changes};
use crate::symbols::demangle::demangled;
use crate::symbols::names::FrameName;
use crate::util::is_forked_child;

/// Maximum time that a thread waits while another one has the crate list the modules.
const MAX_WAIT: Duration = Duration::from_secs(1);
/// Time between two checks of a waiting thread.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Returns whether the crate may be asked: no module was ever unloaded, the process is not the
/// child of a fork, and the crate has its list of modules.
pub(super) fn may_use_backtrace() -> bool {
    let (_, unloaded) = module_changes().since(ModuleChanges::default());
    unloaded == 0 && !is_forked_child() && has_listed_modules()
}

/// Has the crate list the modules, on the first call. Returns false if another thread has begun
/// that and does not get the loader's lock.
fn has_listed_modules() -> bool {
    const NOT_YET: u8 = 0;
    const BEGUN: u8 = 1;
    const DONE: u8 = 2;
    static STAGE: AtomicU8 = AtomicU8::new(NOT_YET);
    let begun = STAGE.compare_exchange(NOT_YET, BEGUN, Ordering::Acquire, Ordering::Acquire);
    if begun.is_ok() {
        // No module has this address.
        backtrace::resolve(ptr::without_provenance_mut(1), |_| ());
        STAGE.store(DONE, Ordering::Release);
        return true;
    }
    let end = Instant::now() + MAX_WAIT;
    while STAGE.load(Ordering::Acquire) == BEGUN && Instant::now() < end {
        std::thread::sleep(POLL_INTERVAL);
    }
    STAGE.load(Ordering::Acquire) == DONE
}

/// Returns the functions at an address within an instruction, the innermost inlined one first.
pub(super) fn names_by_backtrace(address: u64) -> Vec<FrameName> {
    let mut names = Vec::new();
    // The crate expects a return address, and subtracts one byte.
    let return_address = ptr::without_provenance_mut(address as usize + 1);
    backtrace::resolve(return_address, |symbol| {
        if let Some(name) = symbol.name() {
            names.push(FrameName {
                function: demangled(&String::from_utf8_lossy(name.as_bytes())),
                file: symbol
                    .filename()
                    .map(|path| path.to_string_lossy().into_owned()),
                line: symbol.lineno(),
                column: symbol.colno(),
            });
        }
    });
    names
}

/// Frees the debug information that `backtrace` keeps.
pub(super) fn free_backtrace_files() {
    backtrace::clear_symbol_cache();
}
