//! Names from the `backtrace` crate, for addresses without a name in the files that
//! `module_symbols.rs` opens.
//!
//! The crate opens a module by the loader's own path, of any length, and follows the links to
//! separate debug information that a stripped file contains.
//!
//! The crate lists the modules on its first use in the process and keeps that list. After a module
//! was unloaded, an address may lie in a module that took its place, and the crate would name it by
//! the wrong file. So the crate is asked only in a process that has never unloaded a module: there
//! its list may lack modules, but contains no wrong one.

use std::ptr;

use crate::platform::{ModuleChanges, module_changes};
use crate::symbols::demangle::demangled;
use crate::symbols::names::FrameName;
use crate::util::{Guard, LockRank, NamedMutex};

/// Held during calls to `backtrace`, and by the thread that forks. Otherwise the crate's own lock
/// could stay locked in the child for ever.
static BACKTRACE: NamedMutex<()> = NamedMutex::new("backtrace", LockRank::Backtrace, ());

/// Keeps other threads of the process from calling `backtrace` through this file during a fork.
pub(crate) fn hold_backtrace_for_fork() -> Guard<'static, ()> {
    BACKTRACE.lock()
}

/// Returns whether no module was ever unloaded from this process.
pub(super) fn has_unloaded_nothing() -> bool {
    let (_, unloaded) = module_changes().since(ModuleChanges::default());
    unloaded == 0
}

/// Returns the functions at an address within an instruction, the innermost inlined one first.
pub(super) fn names_by_backtrace(address: u64) -> Vec<FrameName> {
    let mut names = Vec::new();
    let _backtrace = BACKTRACE.lock();
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
            });
        }
    });
    names
}

/// Frees the debug information that `backtrace` keeps.
pub(super) fn free_backtrace_files() {
    let _backtrace = BACKTRACE.lock();
    backtrace::clear_symbol_cache();
}
