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
//! reason the crate is not asked in the child.

use std::ptr;

use crate::platform::{ModuleChanges, module_changes};
use crate::symbols::demangle::demangled;
use crate::symbols::names::FrameName;
use crate::util::is_forked_child;

/// Returns whether the crate may be asked: no module was ever unloaded, and the process is not the
/// child of a fork.
pub(super) fn may_use_backtrace() -> bool {
    let (_, unloaded) = module_changes().since(ModuleChanges::default());
    unloaded == 0 && !is_forked_child()
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
            });
        }
    });
    names
}

/// Frees the debug information that `backtrace` keeps.
pub(super) fn free_backtrace_files() {
    backtrace::clear_symbol_cache();
}
