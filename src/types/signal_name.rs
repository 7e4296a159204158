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
