//! Reads the memory usage of this process and of its children from `/proc`.

use std::fs::read_to_string;
use std::io::{Error, Result};
use std::process::Child;
use std::time::{Duration, Instant};

/// Returns the resident memory of this process, or 0 if `/proc` lacks it.
pub(crate) fn resident_bytes() -> u64 {
    status_bytes("self", "VmRSS:")
}

/// Runs `work`, and returns by how many bytes the process's peak memory exceeded its memory before.
///
/// # Errors
/// Fails if the kernel does not allow resetting its high-water mark.
pub(crate) fn peak_above<T>(work: impl FnOnce() -> T) -> Result<(T, u64)> {
    std::fs::write("/proc/self/clear_refs", "5")?;
    let before = resident_bytes();
    let result = work();
    Ok((
        result,
        status_bytes("self", "VmHWM:").saturating_sub(before),
    ))
}

/// What was seen of a child process.
pub(crate) struct Watched {
    pub(crate) seconds: f64,
    /// The peak of its anonymous memory: all that it holds, except for mapped files.
    pub(crate) anonymous_bytes: u64,
}

/// Waits for the end of a child process, and reads its memory every 2 ms.
///
/// # Errors
/// Fails if the child does not end in time, after which it is killed.
pub(crate) fn watch(child: &mut Child, timeout: Duration) -> Result<Watched> {
    const INTERVAL: Duration = Duration::from_millis(2);
    let process = child.id().to_string();
    let (begin, mut anonymous_bytes) = (Instant::now(), 0);
    while child.try_wait()?.is_none() {
        if begin.elapsed() > timeout {
            child.kill()?;
            child.wait()?;
            return Err(Error::other(format!("it takes more than {timeout:?}")));
        }
        anonymous_bytes = anonymous_bytes.max(status_bytes(&process, "RssAnon:"));
        std::thread::sleep(INTERVAL);
    }
    Ok(Watched {
        seconds: begin.elapsed().as_secs_f64(),
        anonymous_bytes,
    })
}

/// Returns the anonymous memory of a process: all that it holds, except for mapped files.
pub(crate) fn anonymous_bytes(process: &str) -> u64 {
    status_bytes(process, "RssAnon:")
}

fn status_bytes(process: &str, name: &str) -> u64 {
    let status = read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .unwrap_or_default();
    line.trim()
        .trim_end_matches(" kB")
        .parse::<u64>()
        .map_or(0, |kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_bytes_is_plausible() {
        assert!(resident_bytes() > 1 << 20);
    }

    #[test]
    fn watch_kills_a_child_that_does_not_end() {
        let sleep = |seconds: &str| std::process::Command::new("sleep").arg(seconds).spawn();
        let mut child = sleep("600").expect("sleep");
        assert!(watch(&mut child, Duration::from_millis(20)).is_err());
        let mut child = sleep("0").expect("sleep");
        watch(&mut child, Duration::from_secs(600)).expect("it ends");
        let own = std::process::id().to_string();
        assert!(status_bytes(&own, "RssAnon:") > 1 << 20);
    }

    #[test]
    fn peak_above_ignores_earlier_peaks() {
        const BYTES: usize = 64 << 20;
        drop(std::hint::black_box(vec![1u8; 2 * BYTES]));
        let (_, peak) = peak_above(|| drop(std::hint::black_box(vec![1u8; BYTES]))).expect("/proc");
        assert!(
            (BYTES as u64 / 2..BYTES as u64 * 3 / 2).contains(&peak),
            "{peak}"
        );
    }
}
