//! The program that a profiled program has executed. Checks what remains of the profiler.

use super::Orders;

pub fn main(_: &mut Orders) -> Result<(), String> {
    let task = std::fs::read_dir("/proc/self/task").map_err(|error| error.to_string())?;
    let threads = task.count();
    if threads != 1 {
        return Err(format!("there are {threads} threads"));
    }
    let open = descriptors();
    if !open.is_empty() {
        return Err(format!(
            "descriptors of the last program are open: {open:?}"
        ));
    }
    // A mask and the pending signals stay across `exec`.
    // SAFETY: a zeroed set is valid, and a local.
    unsafe {
        let none: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_SETMASK, &none, std::ptr::null_mut());
    }
    if gekkota::profiler_is_active() {
        return Err("the profiler is active".to_owned());
    }
    Ok(())
}

/// Returns the open files other than the standard streams and the listing itself.
fn descriptors() -> Vec<String> {
    let entries = std::fs::read_dir("/proc/self/fd").into_iter().flatten();
    let targets = entries.flatten().filter_map(|entry| {
        let number: u32 = entry.file_name().to_str()?.parse().ok()?;
        let target = std::fs::read_link(entry.path()).ok()?;
        (number > 2).then(|| target.display().to_string())
    });
    let listing = format!("/proc/{}/fd", std::process::id());
    targets.filter(|target| *target != listing).collect()
}
