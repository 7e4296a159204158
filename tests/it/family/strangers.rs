//! Connections of other processes, and children that send nonsense.

use std::io::{ErrorKind, Read as _, Write};
use std::os::unix::net::UnixStream;

use serde_json::json;

use crate::common::{LONGEST_WAIT, isolated, wait_until};
use crate::family::host::{invitation, socket};
use crate::family::roles::{marks_of, read_family, spawn_member, start_family, wait_for_event};

/// Returns a frame: the length, the kind and the content.
fn frame(kind: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = (content.len() as u32).to_le_bytes().to_vec();
    bytes.push(kind);
    bytes.extend_from_slice(content);
    bytes
}

fn message(kind: u8, fields: serde_json::Value) -> Vec<u8> {
    frame(kind, fields.to_string().as_bytes())
}

const HELLO: u8 = 64;
const DONE: u8 = 65;
const FROZEN: u8 = 66;
const PROGRESS: u8 = 67;
const PROFILE_BEGINS: u8 = 68;
const PROFILE_DATA: u8 = 69;
const PROFILE_ENDS: u8 = 70;
const PROFILE_FAILED: u8 = 71;
const EXIT_BEGINS: u8 = 72;
const EXIT_DATA: u8 = 73;
const EXIT_ENDS: u8 = 74;
const CHUNKS: u8 = 76;
const NAMED: u8 = 77;

fn token() -> String {
    let invitation = invitation().expect("the process listens");
    invitation.split(':').nth(2).expect("a token").to_owned()
}

fn hello(token: &str, version: u64) -> Vec<u8> {
    let fields = json!({
        "version": version,
        "pid": std::process::id(),
        "token": token,
        "name": "a stranger",
    });
    message(HELLO, fields)
}

/// Sends bytes, and waits until the parent closes the connection.
#[track_caller]
fn assert_refused(what: &str, bytes: &[u8]) {
    let mut stream = UnixStream::connect(socket()).expect("connected");
    stream.set_read_timeout(Some(LONGEST_WAIT)).expect("set");
    stream.set_write_timeout(Some(LONGEST_WAIT)).expect("set");
    match stream.write_all(bytes) {
        Ok(()) => {}
        // It was closed in the meantime.
        Err(error) => assert!(
            matches!(
                error.kind(),
                ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
            ),
            "{what}: {error}"
        ),
    }
    let mut received = Vec::new();
    match stream.read_to_end(&mut received) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{what}"),
    }
}

#[test]
fn strangers_are_refused_and_the_family_goes_on() {
    isolated(|| {
        gekkota::profiler_init();
        start_family();
        let mut child = spawn_member(1);
        child.ask("mark m");
        let token = token();
        assert_refused("a wrong token", &hello(&"0".repeat(token.len()), 1));
        wait_for_event("the process does not know the family's token");
        assert_refused("no token", &hello("", 1));
        assert_refused("another version", &hello(&token, 2));
        wait_for_event("another version");
        assert_refused("text", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        wait_for_event("a malformed message");
        assert_refused("no hello", &message(DONE, json!({ "id": 1 })));
        wait_for_event("a message out of order");
        // A connection that says nothing, and one that is closed at once.
        let _silent = UnixStream::connect(socket()).expect("connected");
        drop(UnixStream::connect(socket()).expect("connected"));
        assert_eq!(marks_of(&read_family(), child.id()), ["m"]);
        child.kill();
    });
}

/// Returns messages that no child may send first, or at all.
fn malformed_messages(token: &str) -> Vec<(&'static str, Vec<u8>)> {
    let hello = hello(token, 1);
    let after_hello = |bytes: &[u8]| [&hello[..], bytes].concat();
    let huge = |kind: u8| [&u32::MAX.to_le_bytes()[..], &[kind]].concat();
    let mut messages = vec![
        ("an empty message", frame(HELLO, b"")),
        ("a hello that is no JSON", frame(HELLO, b"{\"version\": 1")),
        ("a hello that is a list", frame(HELLO, b"[]")),
        ("a hello without fields", frame(HELLO, b"{}")),
        ("a hello of bytes", frame(HELLO, &[0xff; 100])),
        ("deep JSON", frame(HELLO, "[".repeat(10_000).as_bytes())),
        ("a hello that is too long", frame(HELLO, &[b' '; 100_000])),
        ("a hello of a wrong process", {
            let fields = json!({"version": 1, "pid": -5, "token": token, "name": ""});
            message(HELLO, fields)
        }),
        ("two hellos", after_hello(&hello)),
        (
            "data without a beginning",
            after_hello(&frame(PROFILE_DATA, b"12345678{}")),
        ),
        (
            "data without a number",
            after_hello(&frame(PROFILE_DATA, b"1234567")),
        ),
        (
            "a profile that was not asked for",
            after_hello(&message(PROFILE_BEGINS, json!({"id": 1}))),
        ),
        (
            "an end without a beginning",
            after_hello(&message(PROFILE_ENDS, json!({"id": 1}))),
        ),
        (
            "a failure that was not asked for",
            after_hello(&message(PROFILE_FAILED, json!({"id": 1, "reason": ""}))),
        ),
        (
            "an answer to no order",
            after_hello(&message(DONE, json!({"id": u64::MAX}))),
        ),
        (
            "a snapshot of no order",
            after_hello(&message(
                FROZEN,
                json!({"id": u64::MAX, "start": 1, "taken": 2}),
            )),
        ),
        (
            "a snapshot before its start",
            after_hello(&message(FROZEN, json!({"id": 1, "start": 2, "taken": 1}))),
        ),
        (
            "progress of no order",
            after_hello(&message(
                PROGRESS,
                json!({"id": u64::MAX, "done": 1, "location": ""}),
            )),
        ),
        (
            "progress beyond the end",
            after_hello(&message(
                PROGRESS,
                json!({"id": 1, "done": 1_000_001, "location": ""}),
            )),
        ),
        (
            "progress that is negative",
            after_hello(&message(
                PROGRESS,
                json!({"id": 1, "done": -1, "location": ""}),
            )),
        ),
        (
            "data of an exit without a beginning",
            after_hello(&frame(EXIT_DATA, b"{}")),
        ),
        (
            "an exit without a beginning",
            after_hello(&message(EXIT_ENDS, json!({}))),
        ),
        (
            "chunks of no order",
            after_hello(&message(
                CHUNKS,
                json!({
                    "id": u64::MAX, "whole": false, "unreleased": 1, "oldest": null, "newly": []
                }),
            )),
        ),
        (
            "chunks of another form",
            after_hello(&message(
                CHUNKS,
                json!({
                    "id": 1, "whole": false, "unreleased": 1, "oldest": null, "newly": [[1]]
                }),
            )),
        ),
        (
            "a name that is a number",
            after_hello(&message(NAMED, json!({"name": 1}))),
        ),
        ("data that is too long", after_hello(&huge(PROFILE_DATA))),
        ("an exit that is too long", after_hello(&huge(EXIT_DATA))),
    ];
    for kind in (0..=u8::MAX).filter(|kind| !(HELLO..=NAMED).contains(kind)) {
        messages.push(("an unknown kind", after_hello(&frame(kind, b"{}"))));
        messages.push(("an unknown kind first", frame(kind, b"{}")));
    }
    for kind in HELLO..=NAMED {
        messages.push(("a header that is too long", huge(kind)));
    }
    messages
}

#[test]
fn malformed_messages_end_their_connection_only() {
    isolated(|| {
        gekkota::profiler_init();
        start_family();
        let mut child = spawn_member(1);
        child.ask("mark m");
        for (what, bytes) in malformed_messages(&token()) {
            assert_refused(what, &bytes);
        }
        assert_eq!(marks_of(&read_family(), child.id()), ["m"]);
        child.kill();
    });
}

#[test]
fn last_profile_that_is_no_profile_is_dropped() {
    isolated(|| {
        gekkota::profiler_init();
        start_family();
        for text in ["", "no JSON", "{}", "{\"meta\": {}, \"threads\": 1}"] {
            let bytes = [
                hello(&token(), 1),
                message(EXIT_BEGINS, json!({})),
                frame(EXIT_DATA, text.as_bytes()),
                message(EXIT_ENDS, json!({})),
            ]
            .concat();
            let mut stream = UnixStream::connect(socket()).expect("connected");
            stream.write_all(&bytes).expect("written");
            wait_for_event("cannot keep the profile of a child process: it cannot be read");
        }
        // As long as it likes, but no longer than a child may.
        let mut stream = UnixStream::connect(socket()).expect("connected");
        stream.write_all(&hello(&token(), 1)).expect("written");
        stream
            .write_all(&message(EXIT_BEGINS, json!({})))
            .expect("written");
        let part = frame(EXIT_DATA, &[b' '; 64 << 10]);
        for _ in 0..(128 << 20) / (64 << 10) {
            stream.write_all(&part).expect("the parent reads on");
        }
        wait_for_event("cannot keep the profile of a child process: it is too long");
        drop(stream);
        let profile = read_family();
        assert_eq!(profile.0["processes"].as_array().expect("a list").len(), 0);
    });
}

#[test]
fn child_that_does_not_read_is_sent_away() {
    isolated(|| {
        gekkota::profiler_init();
        start_family();
        let mut stream = UnixStream::connect(socket()).expect("connected");
        stream.write_all(&hello(&token(), 1)).expect("written");
        wait_for_event("a child process has joined");
        let renamed = message(NAMED, json!({ "name": "a slow reader" }));
        // Fewer events than the log keeps.
        wait_until("the parent has closed the connection", || {
            for _ in 0..50 {
                gekkota::profiler_pause();
                gekkota::profiler_resume();
            }
            stream.write_all(&renamed).is_err()
        });
        wait_for_event("the child process does not read its messages");
    });
}
