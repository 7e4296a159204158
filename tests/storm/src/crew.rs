//! The workers: their shared state, start and end.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gekkota::{MarkerOptions, MarkerTiming, ProfilerTime, ThreadGuard, gecko_profiler_category};

use crate::random::Random;
use crate::roster::{self, Role};
use crate::tally;

/// Name of the marker that every worker adds. Its text is the worker's name.
pub const MARKER: &str = "storm-step";

/// The workers' name in the system. Threads that they start have it, too, unless they are given another
/// one, and are sampled under it until they register.
pub const SYSTEM_NAME: &str = "crew";

/// Minimum interval between a worker's markers. Each marker takes the buffer's lock. With more
/// markers, preempted lock holders would block the sampler most of the time, and there would be few
/// samples.
const MARKER_INTERVAL: Duration = Duration::from_millis(5);

static STOP: AtomicBool = AtomicBool::new(false);
static POSTS: Mutex<Vec<Arc<Post>>> = Mutex::new(Vec::new());

/// A worker's place in the crew. Its beats show that the worker makes progress.
pub struct Post {
    pub name: String,
    pub role: Option<&'static Role>,
    beats: AtomicU64,
    markers: AtomicU64,
    on_duty: AtomicBool,
    /// Whether the last session ended before the worker had added a marker in it.
    is_late: AtomicBool,
}

impl Post {
    /// Makes a post that the watchdog watches.
    pub fn establish(name: String, role: Option<&'static Role>) -> Arc<Self> {
        let post = Arc::new(Self {
            name,
            role,
            beats: AtomicU64::new(0),
            markers: AtomicU64::new(0),
            on_duty: AtomicBool::new(true),
            is_late: AtomicBool::new(false),
        });
        POSTS
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Arc::clone(&post));
        post
    }

    pub fn beat(&self) {
        self.beats.fetch_add(1, Ordering::Relaxed);
    }

    pub fn beats(&self) -> u64 {
        self.beats.load(Ordering::Relaxed)
    }

    /// Returns the number of markers that the worker has added.
    pub fn markers(&self) -> u64 {
        self.markers.load(Ordering::Relaxed)
    }

    pub fn is_on_duty(&self) -> bool {
        self.on_duty.load(Ordering::Relaxed)
    }

    pub fn is_late(&self) -> bool {
        self.is_late.load(Ordering::Relaxed)
    }

    /// Says that the last session did not wait for the worker any longer.
    pub fn give_up(&self) {
        self.is_late.store(true, Ordering::Relaxed);
    }

    /// Marks the post as vacant.
    pub fn close(&self) {
        self.on_duty.store(false, Ordering::Relaxed);
    }
}

/// Returns all posts whose worker is on duty.
pub fn posts() -> Vec<Arc<Post>> {
    let mut posts = POSTS.lock().unwrap_or_else(PoisonError::into_inner);
    posts.retain(|post| post.is_on_duty());
    posts.clone()
}

/// The state that a worker receives.
pub struct Context {
    pub post: Arc<Post>,
    pub random: Random,
    since: ProfilerTime,
    marked: Instant,
}

impl Context {
    /// Reports a completed step, from time to time with a marker. Returns whether to continue.
    pub fn goes_on(&mut self) -> bool {
        self.post.beat();
        if self.marked.elapsed() > MARKER_INTERVAL {
            self.marked = Instant::now();
            let since = std::mem::replace(&mut self.since, ProfilerTime::now());
            let options =
                MarkerOptions::default().with_timing(MarkerTiming::interval_until_now_from(since));
            gekkota::add_text_marker(
                MARKER,
                gecko_profiler_category!(Other),
                options,
                &self.post.name,
            );
            self.post.markers.fetch_add(1, Ordering::Relaxed);
            tally::MARKERS.one();
        }
        !is_stopping()
    }
}

pub fn is_stopping() -> bool {
    STOP.load(Ordering::Relaxed)
}

/// The workers of one round.
pub struct Crew(Vec<(Arc<Post>, JoinHandle<()>)>);

impl Crew {
    /// Starts all workers.
    pub fn muster(round: u64) -> Self {
        STOP.store(false, Ordering::Relaxed);
        let places =
            roster::roles().flat_map(|role| (0..role.count).map(move |index| (role, index)));
        Self(
            places
                .map(|(role, index)| start(role, index, round))
                .collect(),
        )
    }

    /// Stops all workers, and returns those whose data was corrupted.
    pub fn dismiss(self) -> Vec<String> {
        STOP.store(true, Ordering::Relaxed);
        let mut broken = Vec::new();
        for (post, thread) in self.0 {
            if thread.join().is_err() {
                broken.push(format!("{} failed, see the panic above", post.name));
            }
        }
        broken
    }

    pub fn posts(&self) -> impl Iterator<Item = &Arc<Post>> {
        self.0.iter().map(|(post, _)| post)
    }
}

/// Closes a post when its worker ends, by a panic or otherwise.
struct OnDuty(Arc<Post>);

impl Drop for OnDuty {
    fn drop(&mut self) {
        self.0.close();
    }
}

fn start(role: &'static Role, index: u64, round: u64) -> (Arc<Post>, JoinHandle<()>) {
    let name = format!("{}-{index}", role.name);
    let post = Post::establish(name.clone(), Some(role));
    let seed = round << 32 | (std::ptr::from_ref(role) as u64 & 0xff_ffff) << 8 | index;
    let mut context = Context {
        post: Arc::clone(&post),
        random: Random::new(seed),
        since: ProfilerTime::now(),
        marked: Instant::now(),
    };
    let builder = std::thread::Builder::new()
        .name(SYSTEM_NAME.to_owned())
        .stack_size(role.stack_bytes);
    let body = move || {
        let _on_duty = OnDuty(Arc::clone(&context.post));
        let _registered = ThreadGuard::register(&name);
        (role.work)(&mut context);
    };
    let thread = builder
        .spawn(body)
        .unwrap_or_else(|error| panic!("cannot start the thread of {}: {error}", post.name));
    (post, thread)
}
