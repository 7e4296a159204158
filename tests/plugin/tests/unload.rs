//! An application unloads a library that has used the profiler.

mod common;

use common::{Plugin, work_until};

/// Loads the library, profiles a thread with it, and unloads it. `stops` tells whether the session
/// is stopped before.
///
/// The loader keeps a library while a thread has thread-locals of that library, so all calls are
/// made on a thread that exits.
fn load_and_unload(stops: bool) {
    let profile = move || {
        let plugin = Plugin::load();
        plugin.start();
        plugin.call(c"plugin_register_thread");
        work_until(|| plugin.captured_samples() > 30);
        plugin.call(c"plugin_unregister_thread");
        if stops {
            plugin.call(c"plugin_stop");
        }
        plugin
    };
    let thread = std::thread::spawn(profile);
    thread.join().expect("no panic").unload();
}

#[test]
fn unloaded_library_leaves_no_handler_without_code() {
    for stops in [true, true, false, true] {
        load_and_unload(stops);
        // SAFETY: accesses no memory.
        assert_eq!(unsafe { libc::raise(libc::SIGURG) }, 0);
    }
}
