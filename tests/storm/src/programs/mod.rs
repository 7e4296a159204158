//! Programs that the storm starts again and again, each in a process of its own. They do to
//! themselves what the storm cannot do to its own process and go on.
//!
//! A program is this executable with the program's name, a seed and an exit code as its arguments.
//! The exit code proves that the program has come to its end.

mod arrived;
mod closing;
mod copies;
pub mod crowd;
mod executing;
mod profiled;
mod sandbox;

use std::hint::black_box;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::{Mutex, TryLockError};
use std::time::Duration;

use crate::crew::Context;
use crate::random::Random;
use crate::tally::{self, Tally};
use crate::{always_on, children, folder, gate};

/// Exit codes of programs that end well. Neither a panic nor a shell uses one of them.
const CODES: std::ops::Range<u64> = 32..96;
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause between two programs of a kind, so that the storm's own threads get to run.
const PAUSE: Duration = Duration::from_millis(50);

/// What a program got from the storm.
pub struct Orders {
    random: Random,
    code: u8,
}

impl Orders {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Option<Self> {
        let seed = arguments.next()?.parse().ok()?;
        let code = arguments.next()?.parse().ok()?;
        Some(Self {
            random: Random::new(seed),
            code,
        })
    }
}

/// Runs a program in this process.
pub fn main(name: &str, arguments: impl Iterator<Item = String>) -> ExitCode {
    let program = match name {
        "arrived" => arrived::main,
        "closing" => closing::main,
        "copies" => copies::main,
        "crowd" => crowd::main,
        "executing" => executing::main,
        "sandbox" => sandbox::main,
        _ => |_: &mut Orders| Err("there is no such program".to_owned()),
    };
    let result = match Orders::parse(arguments) {
        None => Err("expected a seed and an exit code".to_owned()),
        Some(mut orders) => folder::join()
            .and_then(|()| program(&mut orders))
            .map(|()| orders.code),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(problem) => {
            eprintln!("storm: program {name}: {problem}");
            ExitCode::FAILURE
        }
    }
}

/// Lets no program inherit a descriptor that the storm has inherited, for example from cargo.
pub fn keep_inherited_descriptors() {
    let (first, last) = (3u32, u32::MAX);
    // SAFETY: the call accesses no memory, and closes nothing in this process.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            first,
            last,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    let error = std::io::Error::last_os_error();
    assert_eq!(answer, 0, "close_range: {error}");
}

/// Returns the command that runs a program.
pub fn command(name: &str, seed: u64, code: u8) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args([name, &seed.to_string(), &code.to_string()]);
    command.env(folder::VARIABLE, folder::path());
    // Another process has this address.
    command.env_remove(always_on::SERVER_VARIABLE);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Chooses an exit code for a program that ends well.
pub fn choose_code(random: &mut Random) -> u8 {
    (CODES.start + random.below(CODES.end - CODES.start)) as u8
}

/// The turn of one worker to run a program. More programs at once would take the processors from
/// the storm.
static TURN: Mutex<()> = Mutex::new(());

/// Runs a program in a process of its own, and returns its status and the expected exit code, or
/// `None` if the storm stops before the program's turn.
#[expect(clippy::zombie_processes, reason = "`children::wait` waits for it")]
fn start_and_wait(name: &str, context: &mut Context) -> Option<(ExitStatus, u8)> {
    std::thread::sleep(PAUSE);
    let _turn = loop {
        match TURN.try_lock() {
            Ok(turn) => break turn,
            Err(TryLockError::Poisoned(turn)) => break turn.into_inner(),
            Err(TryLockError::WouldBlock) if !context.goes_on() => return None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
        }
    };
    let (seed, code) = (context.random.next(), choose_code(&mut context.random));
    let child = gate::with_descriptors(|| command(name, seed, code).spawn());
    let child = child.unwrap_or_else(|error| panic!("cannot start the program {name}: {error}"));
    let what = format!("the program {name} {seed}");
    let status = children::wait(child.id() as libc::pid_t, &what, PATIENCE, || {
        context.goes_on();
    });
    Some((ExitStatus::from_raw(status), code))
}

/// Runs a program again and again, and counts the runs.
fn run_again_and_again(name: &str, context: &mut Context, runs: &Tally) {
    while context.goes_on() {
        if let Some((status, code)) = start_and_wait(name, context) {
            let ended = status.code();
            assert_eq!(ended, Some(code.into()), "the program {name}: {status}");
            runs.one();
        }
    }
}

pub fn closing_worker(context: &mut Context) {
    run_again_and_again("closing", context, &tally::CLOSINGS);
    // Keeps this function on the stack during the call.
    black_box(context);
}

pub fn copies_worker(context: &mut Context) {
    run_again_and_again("copies", context, &tally::COPIES_PROGRAMS);
    // Keeps this function on the stack during the call.
    black_box(context);
}

pub fn executing_worker(context: &mut Context) {
    run_again_and_again("executing", context, &tally::EXECUTIONS);
    // Keeps this function on the stack during the call.
    black_box(context);
}

/// Counts the programs that their sandbox has killed, and continues. The storm reports them at its
/// end.
pub fn sandbox_worker(context: &mut Context) {
    while context.goes_on() {
        let Some((status, code)) = start_and_wait("sandbox", context) else {
            continue;
        };
        tally::SANDBOXES.one();
        if status.signal() == Some(libc::SIGSYS) {
            tally::SANDBOX_KILLS.one();
        } else {
            let ended = status.code();
            assert_eq!(ended, Some(code.into()), "the program sandbox: {status}");
        }
    }
}
