//! Profiles that are pushed to a server, which is killed, hangs, refuses and forgets.

#[cfg(feature = "otlp-unstable")]
mod otlp;
mod pprof;
mod receiver;
#[cfg(all(feature = "push-tls", not(target_env = "musl")))]
mod tls;

use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::{BUSY, Busy, Read, isolated, wait_until};
use crate::push::receiver::{ALWAYS_OK, Pushed, Receiver, Reply, assert_joined};
use gekkota::push::{PushError, PushSettings, Pusher, profiler_push};
use gekkota::{
    StartParams, profiler_init, profiler_is_active, profiler_pause_sampling,
    profiler_resume_sampling, profiler_shutdown, profiler_start, profiler_stop,
};

/// The shortest time between two profiles.
const OFTEN: Duration = Duration::from_millis(100);

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("gekkota-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).expect("created");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn settings(url: &str) -> PushSettings {
    PushSettings::pyroscope(url)
        .interval(OFTEN)
        .service("tests")
}

fn push_to(receiver: &Receiver) -> Pusher {
    profiler_push(settings(&receiver.url())).expect("pushing")
}

/// Keeps what was pushed in the folder that `GEKKOTA_TEST_PUSHED` names, for `.ci/readers/pushed`.
fn keep(kind: &str, bytes: &[u8]) {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    if let Some(folder) = std::env::var_os("GEKKOTA_TEST_PUSHED") {
        let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = Path::new(&folder).join(format!("{process}-{number}.{kind}"));
        fs::write(path, bytes).expect("written");
    }
}

fn sum(pushed: &[Pushed], value: &str) -> i64 {
    pushed
        .iter()
        .map(|pushed| pushed.profile.sum(value, BUSY))
        .sum()
}

fn profiles_in(folder: &Path) -> usize {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = files.map(|file| file.file_name().into_string().expect("UTF-8"));
    names.filter(|name| name.ends_with(".profile")).count()
}

/// Runs this test once more as another process, which finds the words in this variable.
fn run_as(role: &str, variables: &[(&str, &str)]) -> std::process::Child {
    let program = std::env::current_exe().expect("the path of this program");
    Command::new(program)
        .args(std::env::args().skip(1))
        .env("GEKKOTA_PUSH_ROLE", role)
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("a process")
}

fn role() -> Option<String> {
    std::env::var("GEKKOTA_PUSH_ROLE").ok()
}

/// Waits until the process that has started this one closes the pipe.
fn wait_for_parent() {
    let _ = std::io::Read::read(&mut std::io::stdin(), &mut [0]);
}

#[test]
fn windows_join_and_have_each_sample_once() {
    isolated(|| {
        profiler_start(StartParams::default().interval(Duration::from_millis(1))).expect("start");
        let receiver = Receiver::start(ALWAYS_OK);
        let pusher = push_to(&receiver);
        let busy = Busy::start_registered();
        wait_until("some windows have samples", || {
            let pushed = receiver.pushed();
            pushed
                .iter()
                .filter(|pushed| pushed.profile.sum("samples", BUSY) > 0)
                .count()
                >= 4
        });
        profiler_pause_sampling();
        let whole = || {
            let samples = Read::of_running().samples(BUSY);
            let cpu_ns: u64 = samples.iter().filter_map(|sample| sample.cpu_ns).sum();
            (samples.len() as i64, cpu_ns as i64)
        };
        // The last samples are pushed with the next windows.
        wait_until("the windows have all samples", || {
            let pushed = receiver.pushed();
            (sum(&pushed, "samples"), sum(&pushed, "cpu")) == whole()
        });
        let counts = pusher.stop();
        let pushed = receiver.pushed();
        assert_eq!(
            (sum(&pushed, "samples"), sum(&pushed, "cpu")),
            whole(),
            "nothing twice"
        );
        assert_joined(&pushed);
        // A busy machine may send the last profile after the end.
        assert!((4..=pushed.len() as u64).contains(&counts.sent));
        assert_eq!(
            (counts.refused, counts.retried, counts.incomplete),
            (0, 0, 0)
        );
        assert!(counts.sent_bytes > 0);
        let named = pushed
            .iter()
            .any(|pushed| pushed.profile.has_function("busy_function"));
        assert!(named, "functions have names");
        assert!(profiler_is_active(), "the session is the application's");
        profiler_resume_sampling();
        profiler_stop();
        drop(busy);
    });
}

#[test]
fn receiver_that_is_killed_gets_everything_once_it_is_back() {
    isolated(|| {
        let receiver = Receiver::start(ALWAYS_OK);
        let pusher = push_to(&receiver);
        let _busy = Busy::start_registered();
        assert!(profiler_is_active(), "the pusher has started a session");
        let mut pushed = Vec::new();
        let mut receiver = receiver;
        for _ in 0..2 {
            wait_until("some profiles arrive", || receiver.pushed().len() >= 2);
            let (address, before) = receiver.kill();
            pushed.extend(before);
            wait_until("profiles wait", || pusher.counts().waiting >= 3);
            receiver = Receiver::restart(address, ALWAYS_OK);
        }
        wait_until("all were sent", || pusher.counts().waiting == 0);
        let counts = pusher.stop();
        pushed.extend(receiver.pushed());
        assert!(counts.retried > 0);
        assert_eq!(counts.refused, 0);
        // No data is missing or sent twice.
        assert_joined(&pushed);
        assert!(sum(&pushed, "samples") > 0);
        wait_until("the pusher's session has ended", || !profiler_is_active());
    });
}

#[test]
fn lost_answer_is_asked_for_again_with_the_same_id() {
    isolated(|| {
        let receiver = Receiver::start(|number| match number {
            0 | 2 => Reply::StoreAndClose,
            _ => Reply::Status(200),
        });
        let pusher = push_to(&receiver);
        wait_until("three profiles were sent", || pusher.counts().sent >= 3);
        let counts = pusher.stop();
        let mut pushed = receiver.pushed();
        assert_eq!(counts.retried, 2);
        let ids: Vec<_> = pushed.iter().map(Pushed::id).collect();
        assert!(
            ids[0] == ids[1] && ids[2] == ids[3],
            "the store has two twice: {ids:?}"
        );
        let before = pushed.len();
        pushed.dedup_by(|one, other| one.id() == other.id());
        assert_eq!(pushed.len() + 2, before);
        assert_joined(&pushed);
    });
}

#[test]
fn refused_profiles_are_dropped_and_busy_servers_are_asked_again() {
    isolated(|| {
        let receiver = Receiver::start(|number| match number {
            0 => Reply::Status(400),
            1 => Reply::Status(503),
            2 => Reply::Status(429),
            3 => Reply::Status(302),
            _ => Reply::Status(200),
        });
        let pusher = push_to(&receiver);
        wait_until("two profiles were sent", || pusher.counts().sent >= 2);
        let counts = pusher.stop();
        assert_eq!((counts.refused, counts.retried), (2, 2));
        assert!(receiver.pushed().len() as u64 >= counts.sent);
        assert_joined(&receiver.pushed());
    });
}

#[test]
fn request_says_who_pushes() {
    isolated(|| {
        let receiver = Receiver::start(ALWAYS_OK);
        let settings = settings(&format!("{}/base/", receiver.url()))
            .service("shop")
            .label("region", "eu-1")
            .label("version", "2")
            .bearer_token("secret-token")
            .tenant("team");
        let pusher = profiler_push(settings).expect("pushing");
        wait_until("a profile arrives", || !receiver.pushed().is_empty());
        assert!(!format!("{pusher:?}").contains("secret"));
        drop(pusher);
        let pushed = &receiver.pushed()[0];
        assert_eq!(pushed.path, "/base/ingest");
        assert_eq!(pushed.query["name"], "shop{region=eu-1,version=2}");
        assert_eq!(pushed.headers["authorization"], "Bearer secret-token");
        assert_eq!(pushed.headers["x-scope-orgid"], "team");
    });
}

#[test]
fn full_queue_drops_the_oldest() {
    isolated(|| {
        let receiver = Receiver::start(ALWAYS_OK);
        let folder = Folder::new("push-full");
        let queue = folder.0.join("queue");
        // Nothing listens at this address any more.
        let (address, _) = receiver.kill();
        let settings = settings(&format!("http://{address}"));
        let settings = settings.queue_folder(&queue).queue_bytes(20_000);
        let pusher = profiler_push(settings).expect("pushing");
        wait_until("profiles were dropped", || pusher.counts().dropped >= 3);
        let sizes = || {
            let files = fs::read_dir(&queue).expect("the folder").flatten();
            files
                .filter_map(|file| file.metadata().ok())
                .map(|file| file.len())
                .sum::<u64>()
        };
        assert!(
            sizes() <= 40_000,
            "the next file is written before the oldest is removed"
        );
        let counts = pusher.stop();
        assert_eq!((counts.sent, counts.refused), (0, 0));
        assert!(profiles_in(&queue) > 0);
    });
}

#[test]
fn profiles_in_the_folder_survive_a_kill() {
    isolated(|| {
        if let Some(url) = role() {
            let folder = std::env::var("GEKKOTA_PUSH_FOLDER").expect("a folder");
            let _pusher = profiler_push(settings(&url).queue_folder(folder)).expect("pushing");
            return wait_for_parent();
        }
        let folder = Folder::new("push-kill");
        let queue = folder.0.join("queue");
        let (address, _) = Receiver::start(ALWAYS_OK).kill();
        let url = format!("http://{address}");
        let mut child = run_as(
            &url,
            &[("GEKKOTA_PUSH_FOLDER", queue.to_str().expect("UTF-8"))],
        );
        wait_until("profiles wait", || profiles_in(&queue) >= 3);
        let refused = profiler_push(settings(&url).queue_folder(&queue)).expect_err("it is in use");
        assert!(matches!(&refused, PushError::Queue { .. }), "{refused:?}");
        assert!(
            refused
                .to_string()
                .contains("which this or another process uses"),
            "{refused}"
        );
        child.kill().expect("it runs");
        child.wait().expect("it is a child");
        let left = profiles_in(&queue);
        let mode = fs::metadata(&queue)
            .expect("the folder")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o700);
        // What a write leaves that was interrupted.
        let mut names = fs::read_dir(&queue)
            .expect("the folder")
            .flatten()
            .map(|file| file.path());
        let whole = names.find(|path| path.extension().is_some_and(|ending| ending == "profile"));
        let whole = fs::read(whole.expect("a profile")).expect("read");
        let damaged = queue.join(format!("{:020}-{:032x}.profile", 1, 1));
        fs::write(&damaged, &whole[..whole.len() / 2]).expect("written");

        let receiver = Receiver::restart(address, ALWAYS_OK);
        let pusher = profiler_push(settings(&url).queue_folder(&queue)).expect("pushing");
        wait_until("the profiles were sent", || {
            pusher.counts().sent > left as u64
        });
        let counts = pusher.stop();
        let pushed = receiver.pushed();
        assert!(pushed.len() as u64 >= counts.sent);
        assert_eq!(counts.dropped, 1, "the damaged one");
        assert!(!damaged.exists());
        assert_joined(&pushed[..left]);
    });
}

#[test]
fn hanging_receiver_does_not_delay_the_end() {
    isolated(|| {
        let receiver = Receiver::start(|_| Reply::Hang);
        let folder = Folder::new("push-hang");
        let queue = folder.0.join("queue");
        let pusher =
            profiler_push(settings(&receiver.url()).queue_folder(&queue)).expect("pushing");
        wait_until("the receiver has a request", || receiver.requests() > 0);
        let begun = Instant::now();
        let counts = pusher.stop();
        // A second, and much more for a busy machine. The answer is waited for half a minute.
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "{:?}",
            begun.elapsed()
        );
        assert_eq!(counts.sent, 0);
        wait_until("the profiles wait in the folder", || {
            profiles_in(&queue) >= 1
        });
        wait_until("the process can push again", || {
            let again = profiler_push(settings(&receiver.url()).queue_folder(&queue));
            again.is_ok()
        });
    });
}

#[test]
fn unusable_settings_are_refused_with_words() {
    isolated(|| {
        let folder = Folder::new("push-bad");
        let open = folder.0.join("open");
        fs::DirBuilder::new()
            .mode(0o755)
            .create(&open)
            .expect("created");
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).expect("set");
        let url = "http://127.0.0.1:1";
        for (settings, expected) in [
            #[cfg(not(feature = "push-tls"))]
            (settings("https://a"), "`push-tls`"),
            #[cfg(feature = "push-tls")]
            (settings("https://-a"), "a DNS name or an IP address"),
            (settings("127.0.0.1:4040"), "http://HOST"),
            (settings("http://user:word@a"), "without a user"),
            (
                settings(url).interval(Duration::ZERO),
                "0.1 seconds to 1 hour",
            ),
            (settings(url).service("a,b"), "letters, digits"),
            (settings(url).label("a-b", "c"), "a name of letters"),
            (settings(url).bearer_token("a b"), "printable ASCII"),
            (settings(url).hz(1_000_000), "interval"),
            (settings(url).queue_folder(&open), "mode 0700"),
            (
                settings(url).queue_folder(folder.0.join("no/queue")),
                "a folder that exists",
            ),
        ] {
            let error = profiler_push(settings).expect_err(expected).to_string();
            assert!(
                error.starts_with("cannot ") && error.contains(", expected "),
                "{error}"
            );
            assert!(
                error.contains(expected) && !error.contains("word@"),
                "{error}"
            );
            assert!(!profiler_is_active(), "{error}");
        }
        let _pusher = profiler_push(settings(url)).expect("pushing");
        let again = profiler_push(settings(url)).expect_err("a second one");
        assert!(matches!(again, PushError::AlreadyPushing), "{again}");
    });
}

#[test]
fn sessions_of_the_application_are_followed() {
    isolated(|| {
        let receiver = Receiver::start(ALWAYS_OK);
        profiler_start(StartParams::default()).expect("start");
        let pusher = profiler_push(settings(&receiver.url()).interval(Duration::from_secs(3000)));
        let pusher = pusher.expect("pushing");
        let busy = Busy::start_registered();
        wait_until("there are samples", || {
            let read = Read::of_running();
            let has_thread = read.threads().iter().any(|thread| thread["name"] == BUSY);
            has_thread && read.samples(BUSY).len() > 2
        });
        profiler_stop();
        wait_until("the samples were pushed at the end of the session", || {
            sum(&receiver.pushed(), "samples") > 2
        });
        assert!(!profiler_is_active(), "nothing is due");
        pusher.set_interval(OFTEN).expect("a good interval");
        assert!(pusher.set_interval(Duration::ZERO).is_err());
        wait_until("the pusher has started a session", profiler_is_active);
        let before = sum(&receiver.pushed(), "samples");
        wait_until("its samples are pushed", || {
            sum(&receiver.pushed(), "samples") > before
        });
        profiler_start(StartParams::default().interval(Duration::from_millis(2))).expect("start");
        wait_until("the next session is used", || {
            let pushed = receiver.pushed();
            pushed
                .iter()
                .any(|pushed| pushed.profile.period == 2_000_000)
        });
        drop(pusher);
        assert!(profiler_is_active(), "the session is the application's");
        profiler_stop();
        drop(busy);
    });
}

#[test]
fn session_of_the_pusher_is_changed_while_it_pushes() {
    isolated(|| {
        let receiver = Receiver::start(ALWAYS_OK);
        let slowly = settings(&receiver.url()).hz(100);
        let pusher = profiler_push(slowly.interval(Duration::from_secs(3000))).expect("pushing");
        let _busy = Busy::start_registered();
        let recorded = || {
            let read = Read::of_running();
            let has_thread = read.threads().iter().any(|thread| thread["name"] == BUSY);
            if has_thread {
                read.samples(BUSY).len()
            } else {
                0
            }
        };
        let mut before = 0;
        wait_until("there are samples", || {
            before = recorded();
            before > 2
        });
        let fast = StartParams::default().interval(Duration::from_millis(2));
        let bad_interval = fast.clone().interval(Duration::ZERO);
        let other_process = fast.clone().filters(["pid:1"]);
        for bad in [bad_interval, other_process] {
            let error = pusher.set_session(bad).expect_err("a bad parameter");
            assert!(matches!(error, PushError::Start(_)), "{error}");
        }
        pusher.set_session(fast).expect("good parameters");
        // No profile is due, so this is the last one of the session before.
        wait_until("the samples so far are pushed", || {
            !receiver.pushed().is_empty()
        });
        let pushed = receiver.pushed();
        assert_eq!(pushed.len(), 1);
        assert_eq!(pushed[0].profile.period, 10_000_000);
        assert!(sum(&pushed, "samples") >= before as i64);
        pusher.set_interval(OFTEN).expect("a good interval");
        wait_until("the next session has samples", || {
            let pushed = receiver.pushed();
            let mut fast = pushed
                .iter()
                .filter(|pushed| pushed.profile.period == 2_000_000);
            fast.any(|pushed| pushed.profile.sum("samples", BUSY) > 0)
        });
        // A session of the application continues unchanged.
        profiler_start(StartParams::default().interval(Duration::from_millis(5))).expect("start");
        let of_application = |receiver: &Receiver| {
            let pushed = receiver.pushed();
            let of_it = pushed
                .iter()
                .filter(|pushed| pushed.profile.period == 5_000_000);
            of_it.count()
        };
        wait_until("it is used", || of_application(&receiver) > 0);
        let pushed_before = of_application(&receiver);
        pusher
            .set_session(StartParams::default())
            .expect("good parameters");
        wait_until("it is used still", || {
            of_application(&receiver) > pushed_before + 1
        });
        drop(pusher);
        assert!(profiler_is_active());
        profiler_stop();
    });
}

#[test]
fn session_that_is_changed_before_the_end_loses_no_sample() {
    isolated(|| {
        let receiver = Receiver::start(ALWAYS_OK);
        let folder = Folder::new("push-change");
        let settings = settings(&receiver.url()).interval(Duration::from_secs(3000));
        let settings = settings.queue_folder(folder.0.join("queue"));
        let pusher = profiler_push(settings.clone()).expect("pushing");
        let _busy = Busy::start_registered();
        let mut recorded = 0;
        wait_until("there are samples", || {
            let read = Read::of_running();
            if read.threads().iter().any(|thread| thread["name"] == BUSY) {
                recorded = read.samples(BUSY).len();
            }
            recorded > 2
        });
        pusher
            .set_session(StartParams::default())
            .expect("good parameters");
        drop(pusher);
        // On a busy machine, the profile waits in the folder for the next pusher.
        let mut again = None;
        wait_until("the process can push again", || {
            again = profiler_push(settings.clone()).ok();
            again.is_some()
        });
        wait_until("the samples arrive", || {
            sum(&receiver.pushed(), "samples") >= recorded as i64
        });
    });
}

#[test]
fn variable_begins_to_push() {
    isolated(|| {
        if role().is_some() {
            profiler_init();
            wait_for_parent();
            return profiler_shutdown();
        }
        let receiver = Receiver::start(ALWAYS_OK);
        let variables = [
            ("MOZ_PROFILER_PUSH", &*receiver.url()),
            ("MOZ_PROFILER_PUSH_INTERVAL", "0.2"),
            ("MOZ_PROFILER_PUSH_TOKEN", "me:secret"),
            ("OTEL_SERVICE_NAME", "shop 1"),
        ];
        let mut child = run_as("child", &variables);
        wait_until("profiles arrive", || receiver.pushed().len() >= 2);
        drop(child.stdin.take());
        assert!(child.wait().expect("it is a child").success());
        let pushed = receiver.pushed();
        assert_joined(&pushed);
        assert_eq!(pushed[0].query["name"], "shop_1");
        assert_eq!(pushed[0].headers["authorization"], "Basic bWU6c2VjcmV0");
    });
}
