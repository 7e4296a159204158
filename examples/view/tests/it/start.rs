//! How the program starts and ends.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use flate2::Compression;
use flate2::write::GzEncoder;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::recording::RECORDING;
use crate::server::{PROGRAM, Server, decode};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn run(arguments: &[&str]) -> Output {
    let output = Command::new(PROGRAM).args(arguments).output();
    output.expect("the program runs")
}

#[test]
fn link_leads_the_profiler_to_the_profile() {
    let server = Server::start(&RECORDING.path);
    let rest = server
        .link
        .strip_prefix("https://profiler.firefox.com/from-url/");
    let (profile, symbols) = rest
        .and_then(|rest| rest.split_once("/?symbolServer="))
        .expect("a link");
    let base = format!("http://127.0.0.1:{}/{}", server.port, server.token);
    assert_eq!(decode(profile), format!("{base}/profile.json"));
    assert_eq!(decode(symbols), base);
}

#[test]
fn compressed_profile_stays_compressed() {
    let path = file("compressed.json.gz");
    let mut gzip = GzEncoder::new(File::create(&path).expect("a file"), Compression::fast());
    std::io::Write::write_all(&mut gzip, &RECORDING.file).expect("compressed");
    gzip.finish().expect("compressed");
    let server = Server::start(&path);
    let answer = server.get(&server.path("profile.json"));
    assert_eq!(answer.header("content-encoding"), Some("gzip"));
    assert_eq!(answer.body, fs::read(&path).expect("the file"));
}

#[test]
fn profile_stays_the_same_when_its_file_changes() {
    let path = file("changing.json");
    fs::write(&path, &RECORDING.file).expect("written");
    let server = Server::start(&path);
    fs::write(&path, "{}").expect("written");
    assert_eq!(
        server.get(&server.path("profile.json")).body,
        RECORDING.file
    );
}

#[test]
fn signal_ends_the_server_with_success() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let mut server = Server::start(&RECORDING.path);
        kill(Pid::from_raw(server.process.id() as i32), signal).expect("sent");
        let status = server.process.wait().expect("ended");
        assert!(status.success(), "{signal}: {status}");
    }
}

#[test]
fn idle_server_ends_with_success() {
    let mut server = Server::start_with(&RECORDING.path, &["--idle", "0.001"]);
    let status = server.process.wait().expect("ended");
    assert!(status.success(), "{status}");
}

#[test]
fn wrong_file_is_described() {
    let other = file("other.txt");
    fs::write(&other, "name,value\n").expect("written");
    let output = run(&[other.to_str().expect("UTF-8")]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && output.stdout.is_empty(),
        "{output:?}"
    );
    assert!(message.starts_with("view: cannot open "), "{message}");
    assert!(
        message.contains("expected a profile of gekkota or Firefox"),
        "{message}"
    );

    let output = run(&["/missing/profile.json"]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(
        message.starts_with("view: cannot read /missing/profile.json: "),
        "{message}"
    );
}

#[test]
fn wrong_arguments_are_described() {
    for (arguments, part) in [
        (&[][..], "got no PROFILE"),
        (&["a", "b"], "unexpected argument"),
        (&["a", "--port", "70000"], "70000"),
        (&["a", "--idle", "-1"], "expected a number of minutes"),
        (&["a", "--profiler", "localhost"], "expected https://HOST"),
    ] {
        let output = run(arguments);
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(message.contains(part), "{arguments:?}: {message}");
    }
    let help = String::from_utf8(run(&["--help"]).stdout).expect("UTF-8");
    assert!(help.starts_with("usage: view PROFILE"), "{help}");
}
