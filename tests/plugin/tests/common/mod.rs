//! The library, loaded into the test's process, and the application's handler.
#![allow(dead_code, reason = "each test uses some of the helpers")]

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Maximum time until a session has the samples that a test waits for.
const LONGEST_WAIT: Duration = Duration::from_secs(120);

/// The loaded library.
pub struct Plugin(*mut libc::c_void);

// SAFETY: any thread may use the handle of a loaded library.
unsafe impl Send for Plugin {}

impl Plugin {
    pub fn load() -> Self {
        // Cargo builds the library into the folder of the test's executable.
        let test = std::env::current_exe().expect("a path");
        Self::load_file(&test.with_file_name("libplugin.so"))
    }

    pub fn load_file(path: &Path) -> Self {
        let path = CString::new(path.as_os_str().as_bytes()).expect("no zero byte");
        // SAFETY: the library's initializers are those of the standard library.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "cannot load {path:?}");
        Self(handle)
    }

    fn address(&self, name: &CStr) -> *mut libc::c_void {
        // SAFETY: the library is loaded.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!address.is_null(), "{name:?}");
        address
    }

    /// Calls a function of the library that takes and returns nothing.
    pub fn call(&self, name: &CStr) {
        // SAFETY: the tests pass only names of such functions.
        let function: extern "C" fn() = unsafe { std::mem::transmute(self.address(name)) };
        function();
    }

    pub fn start(&self) {
        assert!(self.ask(c"plugin_start"));
    }

    /// Calls a function of the library that takes nothing, and returns its answer.
    pub fn ask(&self, name: &CStr) -> bool {
        // SAFETY: the tests pass only names of such functions.
        let function: extern "C" fn() -> bool = unsafe { std::mem::transmute(self.address(name)) };
        function()
    }

    pub fn captured_samples(&self) -> u64 {
        // SAFETY: the signature is the function's.
        let captured: extern "C" fn() -> u64 =
            unsafe { std::mem::transmute(self.address(c"plugin_captured_samples")) };
        captured()
    }

    pub fn unload(self) {
        // SAFETY: nothing uses the library's functions after this call.
        assert_eq!(unsafe { libc::dlclose(self.0) }, 0);
    }
}

/// Works until `is_enough` returns true, which it is asked now and then.
pub fn work_until(is_enough: impl Fn() -> bool) {
    let end = Instant::now() + LONGEST_WAIT;
    while !is_enough() {
        assert!(Instant::now() < end, "there are too few samples");
        for number in 0..10_000_000u64 {
            std::hint::black_box(number);
        }
    }
}

static HOSTS_CALLS: AtomicU32 = AtomicU32::new(0);

extern "C" fn hosts_handler(_: libc::c_int) {
    HOSTS_CALLS.fetch_add(1, Ordering::Relaxed);
}

/// Installs the application's handler of `SIGUSR1`.
pub fn install_hosts_handler() {
    // SAFETY: the action is a local, and the handler has the signature that its flags require.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = hosts_handler as extern "C" fn(_) as libc::sighandler_t;
        let before = std::ptr::null_mut();
        assert_eq!(libc::sigaction(libc::SIGUSR1, &action, before), 0);
    }
}

/// Raises `SIGUSR1`, and returns how often the application's handler was called.
pub fn hosts_calls_of_one_signal() -> u32 {
    let before = HOSTS_CALLS.load(Ordering::Relaxed);
    // SAFETY: accesses no memory.
    assert_eq!(unsafe { libc::raise(libc::SIGUSR1) }, 0);
    HOSTS_CALLS.load(Ordering::Relaxed) - before
}
