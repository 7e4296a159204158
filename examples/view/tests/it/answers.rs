//! Names, source code and instructions of a real recording.

use serde_json::{Value, json};

use crate::recording::{RECORDING, SOURCE};
use crate::server::Server;

const FUNCTION: &str = "it::recording::recorded_function";

fn names_query() -> Value {
    let (debug_name, id) = RECORDING.key();
    let stack: Vec<_> = RECORDING
        .addresses
        .iter()
        .map(|address| json!([0, address]))
        .collect();
    json!({"jobs": [{"memoryMap": [[debug_name, id]], "stacks": [stack]}]})
}

/// Returns the symbol server's frame of the function.
pub(crate) fn frame(server: &Server) -> Value {
    let answer = server.query("symbolicate/v5", &names_query());
    let (debug_name, id) = RECORDING.key();
    let result = &answer["results"][0];
    assert_eq!(
        result["found_modules"][format!("{debug_name}/{id}")],
        true,
        "{answer}"
    );
    let mut frames = result["stacks"][0].as_array().expect("frames").iter();
    let frame = frames.find(|frame| frame["function"] == FUNCTION);
    frame
        .unwrap_or_else(|| panic!("no {FUNCTION} in {answer}"))
        .clone()
}

#[test]
fn profile_is_served_unchanged() {
    let server = Server::start(&RECORDING.path);
    let answer = server.get(&server.path("profile.json"));
    assert_eq!(
        (answer.status, answer.header("content-encoding")),
        (200, None)
    );
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.body, RECORDING.file);
}

#[test]
fn recording_without_names_gets_names() {
    let text = String::from_utf8_lossy(&RECORDING.file);
    assert!(
        !text.contains("recorded_function"),
        "the profile has names already"
    );
    frame(&Server::start(&RECORDING.path));
}

#[test]
fn source_of_function_is_read() {
    let server = Server::start(&RECORDING.path);
    let frame = frame(&server);
    let (debug_name, id) = RECORDING.key();
    let query = json!({
        "debugName": debug_name,
        "debugId": id,
        "moduleOffset": frame["module_offset"],
        "file": frame["file"],
    });
    let answer = server.query("source/v1", &query);
    assert_eq!(answer["source"], SOURCE, "{answer}");
    let line = frame["line"].as_u64().expect("a line") as usize;
    let line = SOURCE.lines().nth(line - 1).expect("a line of this file");
    // The compiler inlines the call, and the stack is copied at its last instruction or at the next.
    let lines = ["add_untyped_marker", "black_box"];
    assert!(lines.iter().any(|wanted| line.contains(wanted)), "{line}");
}

#[test]
fn instructions_of_function_are_decoded() {
    let server = Server::start(&RECORDING.path);
    let frame = frame(&server);
    let hexadecimal = |key: &str| {
        let digits = frame[key].as_str().and_then(|text| text.strip_prefix("0x"));
        digits
            .and_then(|digits| u64::from_str_radix(digits, 16).ok())
            .expect("a number")
    };
    let start = hexadecimal("module_offset") - hexadecimal("function_offset");
    let (debug_name, id) = RECORDING.key();
    let query = json!({
        "debugName": debug_name,
        "debugId": id,
        "startAddress": format!("{start:#x}"),
        "size": frame["function_size"],
        "continueUntilFunctionEnd": true,
    });
    let answer = server.query("asm/v1", &query);
    assert_eq!(answer["arch"], std::env::consts::ARCH, "{answer}");
    let instructions = answer["instructions"].as_array().expect("instructions");
    let texts: Vec<_> = instructions
        .iter()
        .filter_map(|row| row[1].as_str())
        .collect();
    assert!(
        texts.iter().any(|text| text.starts_with("call")),
        "{texts:?}"
    );
    assert!(
        texts.last().is_some_and(|text| text.starts_with("ret")),
        "{texts:?}"
    );
}
