//! What a client asks for, and what it may ask for.

use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::api::endpoints::answer::{EndpointAnswer, EndpointError, TEXT};
use crate::types::Format;

/// What a client can ask for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Endpoint {
    /// CPU time by stack, in Google's pprof format, as Go's `/debug/pprof/profile` (`profile`).
    Cpu,
    /// Time by stack, whether threads run or wait, in Google's pprof format (`wall`).
    Wall,
    /// Allocated memory by stack, in Google's pprof format, as Go's `/debug/pprof/heap` (`heap`).
    Heap,
    /// The whole profile for the Firefox Profiler (`gecko`).
    Gecko,
    /// An interactive flame graph of the CPU time, for browsers (`flamegraph`).
    FlameGraph,
    /// A text: where each thread spent its time (`summary`).
    Summary,
    /// A text: the stacks of all threads now (`threads`).
    Threads,
}

/// An endpoint with its name, its media type, the name of its file, and its format.
type Row = (
    Endpoint,
    &'static str,
    &'static str,
    Option<&'static str>,
    Format,
);

const BYTES: &str = "application/octet-stream";

const ENDPOINTS: &[Row] = &[
    (
        Endpoint::Cpu,
        "profile",
        BYTES,
        Some("profile"),
        Format::Pprof,
    ),
    (Endpoint::Wall, "wall", BYTES, Some("wall"), Format::Pprof),
    (Endpoint::Heap, "heap", BYTES, Some("heap"), Format::Pprof),
    (
        Endpoint::Gecko,
        "gecko",
        "application/json",
        Some("profile.json"),
        Format::Gecko,
    ),
    (
        Endpoint::FlameGraph,
        "flamegraph",
        "image/svg+xml",
        None,
        Format::Svg,
    ),
    (Endpoint::Summary, "summary", TEXT, None, Format::Text),
    (Endpoint::Threads, "threads", TEXT, None, Format::Stacks),
];

/// Time that is recorded if the client does not say: that of Go.
const DEFAULT_DURATION: Duration = Duration::from_secs(30);
/// Rate that is used if the client does not say, in samples a second: that of Go.
const DEFAULT_HZ: u32 = 100;
/// Time and rate for the stacks of all threads. The first sample of a thread may need a second one,
/// and a thread that sleeps has one on each tick.
const THREADS_DURATION: Duration = Duration::from_millis(50);
const THREADS_HZ: u32 = 100;

/// Returns the names of all endpoints, for messages.
fn names() -> String {
    let names: Vec<_> = ENDPOINTS.iter().map(|(_, name, ..)| *name).collect();
    names.join(", ")
}

/// Returns the page that lists the endpoints. Its links repeat the token by which the page was
/// asked for.
pub(super) fn index(token: Option<&str>) -> EndpointAnswer {
    let mut page = String::from(
        "<!doctype html><meta charset=\"utf-8\"><title>gekkota</title><h1>gekkota</h1><ul>",
    );
    for (endpoint, name, ..) in ENDPOINTS {
        let seconds = match endpoint {
            Endpoint::Heap | Endpoint::Threads => None,
            _ => Some("seconds=10".to_owned()),
        };
        let token = token.map(|token| format!("token={token}"));
        let parameters: Vec<_> = seconds.into_iter().chain(token).collect();
        let query = match parameters.is_empty() {
            true => String::new(),
            false => format!("?{}", parameters.join("&amp;")),
        };
        page += &format!(
            "<li><a href=\"{name}{query}\">{name}</a>: {}",
            endpoint.explanation()
        );
    }
    page += "</ul><p>Parameters: <code>seconds</code>, <code>hz</code>.";
    EndpointAnswer {
        body: page.into_bytes(),
        ..EndpointAnswer::new("text/html; charset=utf-8", None)
    }
}

impl Endpoint {
    fn row(self) -> &'static Row {
        let found = ENDPOINTS.iter().find(|(endpoint, ..)| *endpoint == self);
        found.unwrap_or(&ENDPOINTS[0])
    }

    fn explanation(self) -> &'static str {
        match self {
            Self::Cpu => "CPU time, for <code>go tool pprof</code> and others",
            Self::Wall => "time, also of threads that wait, for <code>go tool pprof</code>",
            Self::Heap => "allocated memory, for <code>go tool pprof</code>",
            Self::Gecko => {
                "everything, for <a href=\"https://profiler.firefox.com\">the Firefox Profiler</a>"
            }
            Self::FlameGraph => "a flame graph of the CPU time",
            Self::Summary => "the hottest functions of each thread",
            Self::Threads => "the stacks of all threads now",
        }
    }

    /// Returns the last part of the path by which a client asks for it.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Returns the endpoint with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        let found = ENDPOINTS.iter().find(|(_, known, ..)| *known == name);
        found.map(|(endpoint, ..)| *endpoint)
    }

    pub(super) fn format(self) -> Format {
        self.row().4
    }

    /// Returns an answer without content.
    pub(super) fn empty_answer(self) -> EndpointAnswer {
        let (_, _, content_type, file_name, _) = *self.row();
        EndpointAnswer::new(content_type, file_name)
    }
}

/// What a client asks for, and for how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Question {
    pub(super) endpoint: Endpoint,
    pub(super) duration: Duration,
    pub(super) hz: u32,
}

impl Question {
    /// Creates a question with Go's defaults: 30 seconds, 100 samples a second of each thread.
    pub fn new(endpoint: Endpoint) -> Self {
        let (duration, hz) = match endpoint {
            Endpoint::Threads => (THREADS_DURATION, THREADS_HZ),
            Endpoint::Heap => (Duration::ZERO, DEFAULT_HZ),
            _ => (DEFAULT_DURATION, DEFAULT_HZ),
        };
        Self {
            endpoint,
            duration,
            hz,
        }
    }

    /// Sets how long to record. Has no effect for the memory and the stacks of all threads.
    #[must_use]
    pub fn duration(mut self, duration: Duration) -> Self {
        if !matches!(self.endpoint, Endpoint::Threads | Endpoint::Heap) {
            self.duration = duration;
        }
        self
    }

    /// Sets the number of samples a second of each thread. A session that runs already keeps its
    /// own.
    #[must_use]
    pub fn hz(mut self, hz: u32) -> Self {
        self.hz = hz;
        self
    }

    /// Reads the target of an HTTP request: the path, whose last part is the endpoint's name, and
    /// the parameters `seconds` and `hz`. Go's `debug` and `gc` are accepted and ignored.
    ///
    /// ```
    /// use std::time::Duration;
    /// use gekkota::endpoints::{Endpoint, Question};
    ///
    /// let question = Question::from_target("/debug/pprof/profile?seconds=2.5&hz=200")?;
    /// let expected = Question::new(Endpoint::Cpu).duration(Duration::from_millis(2500)).hz(200);
    /// assert_eq!(question, expected);
    /// let error = Question::from_target("/debug/pprof/profile?seconds=long").unwrap_err();
    /// assert_eq!(error.status(), 400);
    /// # Ok::<(), gekkota::endpoints::EndpointError>(())
    /// ```
    ///
    /// # Errors
    /// [`EndpointError::Unknown`] and [`EndpointError::BadParameter`]. They name what is accepted.
    pub fn from_target(target: &str) -> Result<Self, EndpointError> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let name = path.trim_end_matches('/').rsplit('/').next().unwrap_or("");
        let unknown = || EndpointError::Unknown {
            name: name.to_owned(),
            known: names(),
        };
        let mut question = Self::new(Endpoint::from_name(name).ok_or_else(unknown)?);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            question = question.with_parameter(name, value)?;
        }
        Ok(question)
    }

    fn with_parameter(self, name: &str, value: &str) -> Result<Self, EndpointError> {
        let refuse = |accepted: String| EndpointError::BadParameter {
            name: name.to_owned(),
            value: value.to_owned(),
            accepted,
        };
        match name {
            "seconds" => {
                let seconds = value.parse::<f64>().ok();
                let duration =
                    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
                let accepted = || "a number of seconds, 0 or above".to_owned();
                Ok(self.duration(duration.ok_or_else(|| refuse(accepted()))?))
            }
            "hz" => {
                let accepted = || "a whole number of samples a second, 1 or above".to_owned();
                let hz = value.parse::<u32>().ok().filter(|hz| *hz > 0);
                Ok(self.hz(hz.ok_or_else(|| refuse(accepted()))?))
            }
            "debug" | "gc" => Ok(self),
            _ => Err(refuse(
                "one of the parameters seconds, hz, debug and gc".to_owned(),
            )),
        }
    }

    /// Checks the question against the limits.
    ///
    /// # Errors
    /// [`EndpointError::BadParameter`] or [`EndpointError::MissingFeature`]
    pub(super) fn check(&self) -> Result<(), EndpointError> {
        let limits = EndpointLimits::current();
        let refuse = |name: &str, value: String, accepted: String| {
            Err(EndpointError::BadParameter {
                name: name.to_owned(),
                value,
                accepted,
            })
        };
        if self.duration > limits.max_duration {
            let (value, max) = (
                self.duration.as_secs_f64(),
                limits.max_duration.as_secs_f64(),
            );
            return refuse("seconds", value.to_string(), format!("at most {max}"));
        }
        if self.hz == 0 || self.hz > limits.max_hz {
            let accepted = format!("a number from 1 to {}", limits.max_hz);
            return refuse("hz", self.hz.to_string(), accepted);
        }
        // Without the profiler, no session can run, so each question fails, whatever the format.
        #[cfg(has_profiler)]
        if let Some(feature) = self.endpoint.format().missing_feature() {
            return Err(EndpointError::MissingFeature { feature });
        }
        Ok(())
    }
}

/// Limits of what clients may ask for.
///
/// A client costs the program the samples that it asks for, and memory while its profile is
/// written. So the longest time, the highest rate and the number of clients at the same time are
/// limited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct EndpointLimits {
    /// Longest time that a client may ask for. Default: 5 minutes.
    pub max_duration: Duration,
    /// Highest rate that a client may ask for, in samples a second of each thread. Default: 1,000.
    pub max_hz: u32,
    /// Maximum number of clients at the same time. Default: 32.
    pub max_clients: usize,
}

impl Default for EndpointLimits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl EndpointLimits {
    const DEFAULT: Self = Self {
        max_duration: Duration::from_secs(300),
        max_hz: 1000,
        max_clients: 32,
    };

    /// Sets the longest time that a client may ask for.
    #[must_use]
    pub fn max_duration(mut self, max_duration: Duration) -> Self {
        self.max_duration = max_duration;
        self
    }

    /// Sets the highest rate that a client may ask for, in samples a second of each thread.
    #[must_use]
    pub fn max_hz(mut self, max_hz: u32) -> Self {
        self.max_hz = max_hz;
        self
    }

    /// Sets the maximum number of clients at the same time.
    #[must_use]
    pub fn max_clients(mut self, max_clients: usize) -> Self {
        self.max_clients = max_clients;
        self
    }

    pub(super) fn current() -> Self {
        Self {
            max_duration: Duration::from_nanos(MAX_DURATION_NS.load(Ordering::Relaxed)),
            max_hz: MAX_HZ.load(Ordering::Relaxed),
            max_clients: MAX_CLIENTS.load(Ordering::Relaxed),
        }
    }
}

// Atomics, because another thread of the parent may hold a lock during a fork.
static MAX_DURATION_NS: AtomicU64 =
    AtomicU64::new(EndpointLimits::DEFAULT.max_duration.as_nanos() as u64);
static MAX_HZ: AtomicU32 = AtomicU32::new(EndpointLimits::DEFAULT.max_hz);
static MAX_CLIENTS: AtomicUsize = AtomicUsize::new(EndpointLimits::DEFAULT.max_clients);

/// Sets the limits for all clients from now on. May be called from any thread.
pub fn set_endpoint_limits(limits: EndpointLimits) {
    let max_ns = u64::try_from(limits.max_duration.as_nanos()).unwrap_or(u64::MAX);
    MAX_DURATION_NS.store(max_ns, Ordering::Relaxed);
    MAX_HZ.store(limits.max_hz, Ordering::Relaxed);
    MAX_CLIENTS.store(limits.max_clients, Ordering::Relaxed);
}

/// The process, and the number of its clients in the lower half. The child of a fork has none of
/// its parent's clients.
static CLIENTS: AtomicU64 = AtomicU64::new(0);

/// A client's place among the clients that are answered at the same time.
#[derive(Debug)]
pub(super) struct Place {
    process: u32,
}

impl Place {
    /// Takes a place.
    ///
    /// # Errors
    /// [`EndpointError::Busy`] if all are taken.
    pub(super) fn take() -> Result<Self, EndpointError> {
        let max_clients = EndpointLimits::current().max_clients;
        let process = std::process::id();
        let none = u64::from(process) << 32;
        let taken = CLIENTS.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |clients| {
            let clients = u32::try_from(clients.saturating_sub(none)).unwrap_or(0);
            ((clients as usize) < max_clients).then_some(none | u64::from(clients + 1))
        });
        match taken {
            Ok(_) => Ok(Self { process }),
            Err(_) => Err(EndpointError::Busy { max_clients }),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let none = u64::from(self.process) << 32;
        let _ = CLIENTS.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |clients| {
            (clients > none && clients - none <= u64::from(u32::MAX)).then(|| clients - 1)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(target: &str) -> (u16, String) {
        let error = Question::from_target(target)
            .and_then(|question| question.check())
            .expect_err("a bad target");
        (error.status(), error.to_string())
    }

    #[test]
    fn each_endpoint_has_a_name_of_its_own() {
        for (endpoint, name, ..) in ENDPOINTS {
            assert_eq!(Endpoint::from_name(name), Some(*endpoint));
            assert_eq!(endpoint.name(), *name);
            let page = String::from_utf8(index(None).body).expect("UTF-8");
            assert!(page.contains(&format!("href=\"{name}")), "{page}");
        }
    }

    #[test]
    fn links_of_the_page_repeat_the_token() {
        let page = String::from_utf8(index(Some("secret")).body).expect("UTF-8");
        assert!(page.contains("href=\"heap?token=secret\""), "{page}");
        let wall = "href=\"wall?seconds=10&amp;token=secret\"";
        assert!(page.contains(wall), "{page}");
    }

    #[test]
    fn target_gives_endpoint_and_parameters() {
        let question = Question::from_target("http://host/x/gecko/?hz=20&seconds=0.5&debug=1");
        let question = question.expect("a question");
        assert_eq!(
            question,
            Question::new(Endpoint::Gecko)
                .hz(20)
                .duration(Duration::from_millis(500))
        );
        let heap = Question::from_target("heap?seconds=5").expect("a question");
        assert_eq!(heap.duration, Duration::ZERO);
    }

    #[test]
    fn bad_targets_are_refused_with_words() {
        for (target, status, words) in [
            ("/debug/pprof/mutex", 404, "expected one of profile, wall"),
            ("profile?seconds=", 400, "got \"\" for \"seconds\""),
            ("profile?seconds=-1", 400, "0 or above"),
            ("profile?seconds=NaN", 400, "0 or above"),
            ("profile?seconds=1e30", 400, "0 or above"),
            ("profile?seconds=301", 400, "at most 300"),
            ("profile?hz=0", 400, "1 or above"),
            ("profile?hz=1001", 400, "from 1 to 1000"),
            ("profile?second=1", 400, "parameters seconds, hz"),
        ] {
            let (got, text) = error_of(target);
            assert_eq!(got, status, "{target}: {text}");
            assert!(text.contains(words), "{target}: {text}");
        }
    }
}
