//! A set-user-id program reads no variable: its caller, who chooses them, must not choose which
//! files the program replaces.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::{Read, isolated, libtest_name};

const ROLE: &str = "GEKKOTA_TEST_ROLE";
/// The user who owns the program.
const OWNER: u32 = 65534;
/// The user who runs the program.
const CALLER: u32 = 12345;

/// Prints which variables had an effect on it.
#[test]
#[ignore = "runs only as a child of another test"]
fn role_of_the_set_user_id_program() {
    if !std::env::var(ROLE).is_ok_and(|role| role == "set-user-id") {
        return;
    }
    // SAFETY: the call reads what the kernel gave to the process.
    println!("secure: {}", unsafe { libc::getauxval(libc::AT_SECURE) });
    gekkota::profiler_init();
    println!("started: {}", gekkota::profiler_is_active());
    // SAFETY: the kernel writes to a local.
    let handler = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        assert_eq!(
            libc::sigaction(libc::SIGUSR1, std::ptr::null(), &mut action),
            0
        );
        action.sa_sigaction
    };
    println!("controlled: {}", handler != libc::SIG_DFL);
    // The program's own session, which the variables configure and save, too.
    gekkota::profiler_start(gekkota::StartParams::default()).expect("start");
    let profile = gekkota::profiler_get_profile().expect("active");
    let profile = Read::from_text(&profile).0;
    println!("names: {}", profile["meta"]["presymbolicated"]);
    let ticks = profile["profilerOverhead"]["samples"]["data"].as_array();
    println!("overheads: {}", !ticks.expect("rows").is_empty());
    let for_child = gekkota::process::profiler_env_vars_for_child_process();
    let saves = for_child
        .iter()
        .find(|(name, _)| name == "MOZ_PROFILER_SHUTDOWN");
    println!("child's file: {saves:?}");
    gekkota::profiler_shutdown();
    println!("ended");
}

/// Runs the program as another user, with variables that ask for everything.
fn run(program: &Path, file: &Path, invitation: &str) -> Output {
    let mut command = Command::new(program);
    command
        .args([
            libtest_name(std::any::type_name_of_val(&role_of_the_set_user_id_program)),
            "--exact",
            "--include-ignored",
            "--nocapture",
        ])
        .env(ROLE, "set-user-id")
        .env("MOZ_PROFILER_HELP", "1")
        .env("MOZ_PROFILER_STARTUP", "1")
        .env("MOZ_PROFILER_UNKNOWN", "1")
        .env("MOZ_PROFILER_SIGNALS", "1")
        .env("MOZ_PROFILER_SYMBOLICATE", "0")
        .env("MOZ_PROFILER_RECORD_OVERHEADS", "1")
        .env("MOZ_PROFILER_SHUTDOWN", file)
        .env("GEKKOTA_FAMILY", invitation)
        .gid(CALLER)
        .uid(CALLER);
    let output = command.output().expect("the program");
    assert!(output.status.success(), "{output:?}");
    output
}

#[track_caller]
fn assert_prints(output: &Output, lines: &[&str]) {
    let stdout = String::from_utf8_lossy(&output.stdout);
    for expected in lines {
        assert!(
            stdout.lines().any(|line| line.ends_with(expected)),
            "{expected}: {stdout}"
        );
    }
}

#[test]
fn set_user_id_program_reads_no_variable() {
    isolated(|| {
        if !nix::unistd::geteuid().is_root() {
            println!("!!! SKIPPED: only the superuser can make a program of another user");
            return;
        }
        let folder = std::env::temp_dir().join(format!("gekkota-set-user-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a folder");
        let set_mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("ours");
        };
        // The caller and the owner may create files in it.
        set_mode(&folder, 0o777);
        let (program, file) = (folder.join("program"), folder.join("p.json"));
        std::fs::copy(std::env::current_exe().expect("path"), &program).expect("copied");
        std::os::unix::fs::chown(&program, Some(OWNER), Some(OWNER)).expect("the right");

        // A parent process, as the variable pretends.
        let family = folder.join("family");
        std::fs::create_dir(&family).expect("a folder");
        set_mode(&family, 0o700);
        let socket = family.join("s");
        let parent = UnixListener::bind(&socket).expect("bound");
        parent.set_nonblocking(true).expect("set");
        let invitation = format!("1:{}:0123:{}", std::process::id(), socket.display());
        let give_to = |user| {
            for path in [&family, &socket] {
                std::os::unix::fs::chown(path, Some(user), Some(user)).expect("the right");
            }
        };

        set_mode(&program, 0o755);
        give_to(CALLER);
        let output = run(&program, &file, &invitation);
        assert!(parent.accept().is_ok(), "it looks for its parent");
        assert_prints(
            &output,
            &[
                "secure: 0",
                "started: true",
                "controlled: true",
                "names: false",
                "overheads: true",
                "ended",
            ],
        );
        std::fs::remove_file(&file).expect("the caller's own program obeys the variable");

        set_mode(&program, 0o4755);
        give_to(OWNER);
        let output = run(&program, &file, &invitation);
        if String::from_utf8_lossy(&output.stdout).contains("secure: 0") {
            println!("!!! SKIPPED: the kernel ignores the set-user-id bit here");
        } else {
            assert_prints(
                &output,
                &[
                    "secure: 1",
                    "started: false",
                    "controlled: false",
                    "names: true",
                    "overheads: false",
                    "child's file: Some((\"MOZ_PROFILER_SHUTDOWN\", \"\"))",
                    "ended",
                ],
            );
            let stdout = String::from_utf8_lossy(&output.stdout);
            assert!(!stdout.contains("MOZ_PROFILER_STARTUP"), "{stdout}");
            assert_eq!(String::from_utf8_lossy(&output.stderr), "");
            let joins = parent.accept().map_err(|error| error.kind());
            assert_eq!(joins.err(), Some(std::io::ErrorKind::WouldBlock));
            assert!(!file.exists(), "the program obeyed its caller's variable");
        }
        std::fs::remove_dir_all(&folder).expect("removed");
    });
}
