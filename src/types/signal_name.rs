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

/// Returns the number of the signal that a text names: `SIGUSR2`, `USR2` or `12`.
pub(crate) fn signal_number(text: &str) -> Option<i32> {
    let text = text.trim().to_ascii_uppercase();
    let is_named = |name: &&str| *name == text || name.strip_prefix("SIG") == Some(&text);
    match NAMES.iter().position(is_named) {
        Some(index) => i32::try_from(index + 1).ok(),
        None => text.parse().ok(),
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signal_is_named_by_its_name_or_number() {
        assert_eq!(signal_number("SIGUSR2"), signal_number(" 12 "));
        assert_eq!(signal_number("usr2"), Some(12));
        assert_eq!(signal_name(12), "SIGUSR2");
        assert_eq!(signal_number("40"), Some(40));
        assert_eq!(signal_number("SIG"), None);
        assert_eq!(signal_number(""), None);
    }
}
