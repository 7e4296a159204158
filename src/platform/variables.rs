//! The environment variables.
//!
//! The standard library has a lock for them, which a child of `fork` may find held for ever by a
//! thread of its parent. The C library's `setenv` has one, too. So the profiler takes neither in such
//! a child, and neither to set a variable.
//!
//! **Contract of the accesses** (cited below):
//! - *only thread*: no other thread exists that could use the environment at the same time;
//! - *as the C library*: of the threads of a child of `fork`, only one that changes the environment
//!   at this moment could be a danger, as it is to every call of the C library that reads a variable.

use std::ffi::{CStr, CString, OsStr, OsString, c_char};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::platform::fork::is_child_of_fork;
use crate::platform::procfs::is_only_thread;

unsafe extern "C" {
    /// The texts `NAME=value`, and a null pointer after the last one.
    static mut environ: *const *const c_char;
}

/// Returns the value of an environment variable, if it is set.
pub(crate) fn variable(name: &str) -> Option<OsString> {
    if !is_child_of_fork() {
        return std::env::var_os(name);
    }
    let with_name = |text: &[u8]| {
        let value = text.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        Some(OsString::from_vec(value.to_vec()))
    };
    // SAFETY: *as the C library*.
    unsafe { texts() }.find_map(|text| with_name(text.to_bytes()))
}

/// Returns the names of all environment variables.
pub(crate) fn variable_names() -> Vec<OsString> {
    if !is_child_of_fork() {
        return std::env::vars_os().map(|(name, _)| name).collect();
    }
    let name_of = |text: &CStr| {
        let name = text.to_bytes().split(|&byte| byte == b'=').next();
        OsString::from_vec(name.unwrap_or_default().to_vec())
    };
    // SAFETY: *as the C library*.
    unsafe { texts() }.map(name_of).collect()
}

/// Sets an environment variable, if the process has only this thread: others could read the
/// environment at the same time. Returns whether it has.
pub(crate) fn set_variable_if_only_thread(name: &str, value: &OsStr) -> bool {
    let text = CString::new([name.as_bytes(), b"=", value.as_bytes()].concat());
    let (true, Ok(text)) = (is_only_thread(), text) else {
        return false;
    };
    let prefix = &text.to_bytes()[..=name.len()];
    // SAFETY: *only thread*. The new list and its text are leaked, because the C library and the
    // application may keep them.
    unsafe {
        let others = texts().filter(|other| !other.to_bytes().starts_with(prefix));
        let mut list: Vec<_> = others.map(CStr::as_ptr).collect();
        list.extend([text.as_ptr(), std::ptr::null()]);
        environ = list.leak().as_ptr();
    }
    std::mem::forget(text);
    true
}

/// Returns the texts of all variables.
///
/// # Safety
/// No other thread changes the environment until the iterator and its texts are dropped.
unsafe fn texts() -> impl Iterator<Item = &'static CStr> {
    // SAFETY: this function's contract. A program may have removed the list.
    let mut rest = unsafe { environ };
    std::iter::from_fn(move || {
        // SAFETY: this function's contract; the list ends with a null pointer.
        let text = unsafe { rest.as_ref() }.filter(|text| !text.is_null())?;
        rest = rest.wrapping_add(1);
        // SAFETY: this function's contract.
        Some(unsafe { CStr::from_ptr(*text) })
    })
}
