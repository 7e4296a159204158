//! A child process that does what its parent writes to its standard input, and its parent's view.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use gekkota::callback::{ProfilingState, ProfilingStates, profiler_add_state_change_callback};
use gekkota::process::{
    profiler_command, profiler_set_process_name, profiler_set_process_type,
    profiler_wait_for_children,
};
use gekkota::profile::{SnapshotOptions, Symbolicate};
use gekkota::{StartParams, profiler_get_start_params};
use nix::sys::resource::{Resource, setrlimit};
use serde_json::Value;

use crate::common::{self, LONGEST_WAIT, Read, wait_until};

const ROLE: &str = "GEKKOTA_TEST_MEMBER";
const REPLY: &str = "reply: ";
pub(super) const THREAD: &str = "the member's thread";

static STARTS: AtomicU32 = AtomicU32::new(0);
static STOPS: AtomicU32 = AtomicU32::new(0);

/// Runs in a child process. It is a test, so that this executable can run it as a program of its
/// own.
#[test]
#[ignore = "runs only as a child of another test"]
fn role_of_the_member() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let count = |_| _ = STARTS.fetch_add(1, Ordering::Relaxed);
    profiler_add_state_change_callback(ProfilingStates::from(ProfilingState::Started), count, 1);
    let count = |_| _ = STOPS.fetch_add(1, Ordering::Relaxed);
    profiler_add_state_change_callback(ProfilingStates::from(ProfilingState::Stopping), count, 2);
    let mut profiler = Some(gekkota::AutoProfilerInit::new());
    gekkota::register_thread(THREAD);
    let mut child: Option<Member> = None;
    for line in std::io::stdin().lines() {
        let line = line.expect("a line");
        let (order, rest) = line.split_once(' ').unwrap_or((&line, ""));
        let reply = match order {
            "mark" => {
                common::mark(rest);
                String::new()
            }
            "state" => state(),
            "starts" => STARTS.load(Ordering::Relaxed).to_string(),
            "stops" => STOPS.load(Ordering::Relaxed).to_string(),
            "name" => {
                profiler_set_process_name(rest, None);
                profiler_set_process_type("worker");
                String::new()
            }
            "spawn" => {
                child = Some(Member::spawn());
                child.as_ref().map_or(0, Member::id).to_string()
            }
            "child" => child.as_mut().expect("it was spawned").ask(rest),
            "children" => {
                let count: usize = rest.parse().expect("a number");
                wait_for_children(count);
                String::new()
            }
            "shutdown" => {
                drop(profiler.take());
                common::thread_names().join(",")
            }
            "markers" => {
                let count: u32 = rest.parse().expect("a number");
                (0..count).for_each(|number| common::mark(&format!("many {number}")));
                String::new()
            }
            // As a program that does something else most of the time.
            "work" => {
                let count: u32 = rest.parse().expect("a number");
                for number in 0..count {
                    common::mark(&format!("work {number}"));
                    common::work(1000);
                }
                String::new()
            }
            "sleepers" => {
                common::sleepers::start_sleepers();
                String::new()
            }
            "held" => crate::family::come_and_go::held_bytes().to_string(),
            "stuck" => loop {
                std::thread::park();
            },
            "flow" => flow(),
            // A process that begins a family in code only.
            "start" => {
                start_family();
                crate::family::host::socket().display().to_string()
            }
            "exit" => std::process::exit(0),
            "abort" => std::process::abort(),
            "exec" => {
                let mut command = member_command();
                let error = command.exec();
                panic!("{error}");
            }
            other => panic!("unknown order {other}"),
        };
        println!("\n{REPLY}{reply}");
    }
}

/// Returns the flow id of an address that each process has.
pub(super) fn flow() -> String {
    let flow = gekkota::FlowId::from(std::ptr::without_provenance::<u8>(0x1000));
    String::from_utf8_lossy(&flow.to_hex()).into_owned()
}

/// Returns what the tests compare of the state of this process.
pub(super) fn state() -> String {
    let paused = gekkota::profiler_is_paused();
    let sampling_paused = gekkota::profiler_is_sampling_paused();
    match profiler_get_start_params() {
        None => "inactive".to_owned(),
        Some(params) => format!(
            "{} {:?} {:?} {:?} paused={paused} sampling_paused={sampling_paused}",
            params.capacity_bytes, params.interval, params.features, params.filters
        ),
    }
}

fn member_command() -> Command {
    member_command_by(Command::new(std::env::current_exe().expect("path")))
}

/// Returns a command that starts a member: `command` runs this executable with further arguments.
fn member_command_by(mut command: Command) -> Command {
    let role = common::libtest_name(std::any::type_name_of_val(&role_of_the_member));
    command
        .args([
            role,
            "--exact",
            "--test-threads=1",
            "--include-ignored",
            "--nocapture",
        ])
        .env(ROLE, "1")
        .env("MOZ_PROFILER_SYMBOLICATE", "0");
    command
}

/// A child process in that role.
pub(super) struct Member {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Member {
    /// Starts a child that joins the session of this process.
    pub(super) fn spawn() -> Self {
        let mut command = member_command();
        profiler_command(&mut command);
        Self::spawn_by(command)
    }

    /// Starts a child that has a session of its own when it joins this process.
    pub(super) fn spawn_with_session() -> Self {
        let mut command = member_command();
        profiler_command(&mut command).env("MOZ_PROFILER_STARTUP", "1");
        Self::spawn_by(command)
    }

    /// Starts a child that records the same as a member of this process's family, but does not
    /// belong to the family.
    pub(super) fn spawn_as_stranger() -> Self {
        let mut command = member_command();
        command
            .env("MOZ_PROFILER_STARTUP", "1")
            .env_remove("GEKKOTA_FAMILY");
        Self::spawn_by(command)
    }

    /// Starts a child by a program that runs the arguments after its own ones.
    pub(super) fn spawn_through(program: &str, arguments: &[&str]) -> Self {
        let mut outer = Command::new(program);
        outer
            .args(arguments)
            .arg(std::env::current_exe().expect("path"));
        let mut command = member_command_by(outer);
        profiler_command(&mut command);
        Self::spawn_by(command)
    }

    fn spawn_by(mut command: Command) -> Self {
        // Inherited. A closure that runs in the child would make the standard library fork.
        setrlimit(Resource::RLIMIT_CORE, 0, 0).expect("no core files");
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child");
        Self {
            input: process.stdin.take(),
            output: BufReader::new(process.stdout.take().expect("it is piped")),
            process,
        }
    }

    pub(super) fn id(&self) -> i32 {
        self.process.id() as i32
    }

    /// Gives the child an order, and does not wait.
    pub(super) fn order(&mut self, order: &str) {
        let input = self.input.as_mut().expect("it is open");
        writeln!(input, "{order}").expect("the child reads");
    }

    /// Gives the child an order, and returns its reply.
    pub(super) fn ask(&mut self, order: &str) -> String {
        self.order(order);
        self.reply()
    }

    pub(super) fn reply(&mut self) -> String {
        let reply = loop {
            let mut line = String::new();
            if self.output.read_line(&mut line).expect("text") == 0 {
                break None;
            }
            if let Some(reply) = line.trim_end_matches('\n').strip_prefix(REPLY) {
                break Some(reply.to_owned());
            }
        };
        reply.expect("the child replies")
    }

    pub(super) fn signal(&self, signal: i32) {
        // SAFETY: accesses no memory; the child was not waited for.
        assert_eq!(unsafe { libc::kill(self.id(), signal) }, 0);
    }

    /// Returns whether the child has ended. Does not wait for it.
    pub(super) fn has_ended(&mut self) -> bool {
        self.process.try_wait().expect("it is our child").is_some()
    }

    /// Waits until the child has ended.
    pub(super) fn wait(mut self) -> ExitStatus {
        self.process.wait().expect("it is our child")
    }

    /// Ends the child by a signal that it cannot handle.
    pub(super) fn kill(self) {
        self.signal(libc::SIGKILL);
        self.wait();
    }
}

/// Starts a session with children, and without samples of threads that have not registered.
pub(super) fn start_family() {
    let params = common::registered_threads_only().children(true);
    gekkota::profiler_start(params).expect("start");
}

pub(super) fn start_family_with(change: impl FnOnce(StartParams) -> StartParams) {
    let params = change(common::registered_threads_only().children(true));
    gekkota::profiler_start(params).expect("start");
}

/// Waits until so many children record the session.
#[track_caller]
pub(super) fn wait_for_children(count: usize) {
    wait_until("the children record the session", || {
        profiler_wait_for_children(LONGEST_WAIT) == count
    });
}

/// Starts a child, and waits until it records the session.
pub(super) fn spawn_member(number: usize) -> Member {
    let member = Member::spawn();
    wait_for_children(number);
    member
}

/// Waits until the session's log has this event.
#[track_caller]
pub(super) fn wait_for_event(event: &str) {
    wait_until(event, || {
        let read = Read::of_running();
        read.logged_events()
            .iter()
            .any(|known| known.contains(event))
    });
}

/// Reads the profile of this process, with those of its children however busy the machine is.
pub(super) fn read_family() -> Read {
    read_with(SnapshotOptions::default().child_timeout(LONGEST_WAIT))
}

pub(super) fn read_with(options: SnapshotOptions) -> Read {
    let options = options.symbolicate(Symbolicate::No);
    let mut text = Vec::new();
    gekkota::profiler_stream_json(&mut text, &options).expect("active");
    Read::from_text(&text)
}

/// Returns the profile of a process within the profile of this one.
pub(super) fn process_of(profile: &Read, process: i32) -> Option<Read> {
    processes_of(profile, process).into_iter().next()
}

/// Returns the profiles of all program images of a process within the profile of this one.
pub(super) fn processes_of(profile: &Read, process: i32) -> Vec<Read> {
    let of_process = |profile: &&Value| {
        profile["threads"][0]["pid"].to_string().trim_matches('"') == process.to_string()
    };
    let processes = profile.0["processes"].as_array().expect("processes");
    let found = processes.iter().filter(of_process);
    found.cloned().map(Read).collect()
}

/// Returns the names of the markers of the member's thread.
pub(super) fn marks_of(profile: &Read, process: i32) -> Vec<String> {
    let Some(profile) = process_of(profile, process) else {
        return vec!["no profile".to_owned()];
    };
    marks_in(&profile)
}

/// Returns the names of the markers of the member's thread in the profile of one process.
pub(super) fn marks_in(profile: &Read) -> Vec<String> {
    let markers = profile.markers(THREAD).into_iter();
    markers
        .map(|marker| marker.0)
        .filter(|name| name.starts_with('m'))
        .collect()
}

/// Returns what the profile says about the gathering.
pub(super) fn gathering_events(profile: &Read) -> Vec<String> {
    let log = &profile.0["profileGatheringLog"][std::process::id().to_string()];
    let events = log["events"].as_array().expect("events").iter();
    let text = |event: &Value| event["event"].as_str().expect("a text").to_owned();
    events.map(text).collect()
}
