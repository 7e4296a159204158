//! Names of signals.

/// Names of the signals from 1 on, on Linux on x86_64 and aarch64.
const NAMES: [&str; 31] = [
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGILL",
    "SIGTRAP",
    "SIGABRT",
    "SIGBUS",
    "SIGFPE",
    "SIGKILL",
    "SIGUSR1",
    "SIGSEGV",
    "SIGUSR2",
    "SIGPIPE",
    "SIGALRM",
    "SIGTERM",
    "SIGSTKFLT",
    "SIGCHLD",
    "SIGCONT",
    "SIGSTOP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGVTALRM",
    "SIGPROF",
    "SIGWINCH",
    "SIGIO",
    "SIGPWR",
    "SIGSYS",
];

/// Returns the name of a signal for messages, such as `SIGUSR2`.
pub(crate) fn signal_name(signal: i32) -> String {
    let index = usize::try_from(signal)
        .ok()
        .and_then(|signal| signal.checked_sub(1));
    match index.map(|index| NAMES.get(index)) {
        Some(Some(name)) => (*name).to_owned(),
        Some(None) => format!("real-time signal {signal}"),
        // Not a signal.
        None => signal.to_string(),
    }
}

#[cfg(all(test, has_profiler))]
mod tests {
    use super::*;

    #[test]
    fn signal_name_matches_the_systems_numbers() {
        for (signal, name) in [
            (libc::SIGKILL, "SIGKILL"),
            (libc::SIGUSR1, "SIGUSR1"),
            (libc::SIGSEGV, "SIGSEGV"),
            (libc::SIGUSR2, "SIGUSR2"),
            (libc::SIGALRM, "SIGALRM"),
            (libc::SIGSTKFLT, "SIGSTKFLT"),
            (libc::SIGURG, "SIGURG"),
            (libc::SIGVTALRM, "SIGVTALRM"),
            (libc::SIGPROF, "SIGPROF"),
            (libc::SIGIO, "SIGIO"),
            (libc::SIGPWR, "SIGPWR"),
            (libc::SIGSYS, "SIGSYS"),
            (40, "real-time signal 40"),
            (0, "0"),
            (-1, "-1"),
        ] {
            assert_eq!(signal_name(signal), name);
        }
    }
}
