//! What a request cannot do.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::answers::frame;
use crate::client::{Request, Response, send};
use crate::recording::RECORDING;
use crate::server::Server;

/// The header of an answer that a page of the Firefox Profiler may read.
const ALLOWED: &str = "access-control-allow-origin";

fn assert_refused(answer: &Response, status: u16, request: &str) {
    assert_eq!(answer.status, status, "{request}: {answer:?}");
    assert!(answer.body.len() < 100, "{request}: {answer:?}");
}

/// Returns the query for some instructions of a module.
fn code_of(debug_name: &str, id: &str) -> Value {
    let (start, size) = ("0x1000", "0x10");
    json!({"debugName": debug_name, "debugId": id, "startAddress": start, "size": size})
}

#[test]
fn path_without_token_is_unknown() {
    let server = Server::start(&RECORDING.path);
    let token = &server.token;
    let other = format!("/{}/profile.json", "0".repeat(token.len()));
    let shorter = format!("/{}/profile.json", &token[1..]);
    for path in [
        "/",
        "/profile.json",
        "//profile.json",
        "/symbolicate/v5",
        &other,
        &shorter,
    ] {
        for method in ["GET", "POST", "OPTIONS"] {
            let answer = server.send(method, path, &[("Content-Length", "0")], b"");
            assert_refused(&answer, 404, path);
            assert_eq!(answer.header(ALLOWED), None, "{path}");
        }
    }
}

#[test]
fn path_outside_is_unknown() {
    let server = Server::start(&RECORDING.path);
    for name in [
        "",
        "profile.json/",
        "profile.json/../../etc/passwd",
        "../etc/passwd",
        "..%2f..%2fetc%2fpasswd",
        "%2e%2e/%2e%2e/etc/passwd",
        "/etc/passwd",
        "recording.json",
        "symbolicate/v6",
        "symbolicate/v5/",
    ] {
        for method in ["GET", "POST"] {
            let answer = server.send(method, &server.path(name), &[("Content-Length", "0")], b"");
            assert_refused(&answer, 404, name);
        }
    }
}

/// A page of another site reaches this machine by a name of its own, which the browser sends.
#[test]
fn request_for_another_host_is_refused() {
    let server = Server::start(&RECORDING.path);
    let path = server.path("profile.json");
    let request = |host, headers| {
        let (method, path, body) = ("GET", &path[..], &b""[..]);
        send(
            server.port,
            &Request {
                method,
                path,
                host,
                headers,
                body,
            },
        )
    };
    let own = server.host();
    let evil = format!("evil.example:{}", server.port);
    let local = format!("localhost:{}", server.port);
    for host in [
        None,
        Some(""),
        Some("127.0.0.1"),
        Some("127.0.0.1:1"),
        Some(&evil[..]),
    ] {
        let answer = request(host, &[]);
        assert_refused(&answer, 421, host.unwrap_or("no host"));
        assert_eq!(answer.header(ALLOWED), None);
    }
    let second = [("Host", &evil[..])];
    assert_refused(&request(Some(&own), &second), 421, "two hosts");
    for host in [&own, &local] {
        assert_eq!(request(Some(host), &[]).status, 200, "{host}");
    }
}

#[test]
fn other_methods_are_refused() {
    let server = Server::start(&RECORDING.path);
    for (name, methods, allowed) in [
        (
            "profile.json",
            ["POST", "PUT", "DELETE"],
            "GET, HEAD, OPTIONS",
        ),
        ("symbolicate/v5", ["GET", "HEAD", "PUT"], "POST, OPTIONS"),
        ("source/v1", ["GET", "PATCH", "TRACE"], "POST, OPTIONS"),
    ] {
        for method in methods {
            let answer = server.send(method, &server.path(name), &[], b"");
            assert_refused(&answer, 405, method);
            assert_eq!(answer.header("allow"), Some(allowed));
        }
    }
}

#[test]
fn too_large_body_is_refused() {
    let server = Server::start(&RECORDING.path);
    let path = server.path("symbolicate/v5");
    let declared = [("Content-Length", "100000000000")];
    assert_refused(
        &server.send("POST", &path, &declared, b"{"),
        413,
        "a length",
    );
    // A body of unknown length, in chunks of 16 MiB.
    let chunk = [&b"1000000\r\n"[..], &vec![b' '; 16 << 20], b"\r\n"].concat();
    let chunked = [("Transfer-Encoding", "chunked")];
    assert_refused(
        &server.send("POST", &path, &chunked, &chunk.repeat(5)),
        413,
        "chunks",
    );
}

#[test]
fn other_body_is_refused() {
    let server = Server::start(&RECORDING.path);
    let path = server.path("symbolicate/v5");
    let two = [("Content-Length", "2")];
    assert_refused(
        &server.send("POST", &path, &two, b"\xff\xff"),
        400,
        "no UTF-8",
    );
    let answer = server.send("POST", &path, &two, b"{]");
    assert!(answer.json()["error"].is_string(), "{answer:?}");
}

#[test]
fn answers_are_for_the_profiler_only() {
    let server = Server::start(&RECORDING.path);
    for name in ["profile.json", "asm/v1", "unknown"] {
        let answer = server.get(&server.path(name));
        assert_eq!(answer.header(ALLOWED), Some("https://profiler.firefox.com"));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
    }
    let own = Server::start_with(&RECORDING.path, &["--profiler", "http://localhost:4242/"]);
    let answer = own.get(&own.path("profile.json"));
    assert_eq!(answer.header(ALLOWED), Some("http://localhost:4242"));
    assert!(
        own.link.starts_with("http://localhost:4242/from-url/"),
        "{}",
        own.link
    );
}

#[test]
fn browser_may_ask_before_it_requests() {
    let server = Server::start(&RECORDING.path);
    let headers = [
        ("Origin", "https://profiler.firefox.com"),
        ("Access-Control-Request-Method", "POST"),
        ("Access-Control-Request-Headers", "user-agent"),
        ("Access-Control-Request-Private-Network", "true"),
    ];
    let answer = server.send("OPTIONS", &server.path("symbolicate/v5"), &headers, b"");
    assert_eq!(answer.status, 204);
    assert_eq!(answer.header(ALLOWED), Some("https://profiler.firefox.com"));
    assert_eq!(
        answer.header("access-control-allow-methods"),
        Some("POST, OPTIONS")
    );
    assert_eq!(
        answer.header("access-control-allow-headers"),
        Some("user-agent")
    );
    assert_eq!(
        answer.header("access-control-allow-private-network"),
        Some("true")
    );
}

#[test]
fn only_modules_of_the_profile_have_names() {
    let server = Server::start(&RECORDING.path);
    let (debug_name, id) = RECORDING.key();
    let other_id = "0123456789ABCDEF0123456789ABCDEF0";
    let path = RECORDING.module["path"].as_str().expect("a path");
    for (debug_name, id) in [(debug_name, other_id), ("view", id), (path, id), ("", id)] {
        let query =
            json!({"memoryMap": [[debug_name, id]], "stacks": [[[0, RECORDING.addresses[0]]]]});
        let answer = server.query("symbolicate/v5", &query);
        let result = &answer["results"][0];
        assert_eq!(
            result["found_modules"][format!("{debug_name}/{id}")],
            false,
            "{answer}"
        );
        assert_eq!(result["stacks"][0][0]["function"], Value::Null, "{answer}");
        let query = code_of(debug_name, id);
        let answer = server.query("asm/v1", &query);
        assert!(
            answer["error"].is_string() && answer["instructions"].is_null(),
            "{answer}"
        );
    }
    // A query for instructions may name a module by other fields.
    for query in [
        json!({"codeId": RECORDING.module["codeId"], "startAddress": "0x1000", "size": "0x10"}),
        json!({"name": path, "debugId": id, "startAddress": "0x1000", "size": "0x10"}),
    ] {
        let answer = server.query("asm/v1", &query);
        assert!(
            answer["error"].is_string() && answer["instructions"].is_null(),
            "{answer}"
        );
    }
}

fn assert_no_source(server: &Server, (debug_name, id): (&str, &str), offset: &Value, file: &str) {
    let query = json!({
        "debugName": debug_name,
        "debugId": id,
        "moduleOffset": offset,
        "file": file,
    });
    let answer = server.query("source/v1", &query);
    assert!(answer["error"].is_string(), "{file}: {answer}");
    assert!(answer["source"].is_null(), "{file}: {answer}");
}

#[test]
fn only_sources_that_the_address_names_are_read() {
    let server = Server::start(&RECORDING.path);
    let offset = &frame(&server)["module_offset"];
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join(file!());
    let here = here.to_str().expect("UTF-8");
    let recording = here.replace("access.rs", "recording.rs");
    assert!(Path::new(here).is_file() && Path::new(&recording).is_file());
    for file in [
        "/etc/passwd",
        // A source file of the module, but of another function.
        here,
        // Other names of the right file, or of a file next to it.
        &recording.replace("/it/", "/./it/"),
        &format!("{recording}/../access.rs"),
        &format!("{recording}\0"),
        "recording.rs",
        "",
    ] {
        assert_no_source(&server, RECORDING.key(), offset, file);
    }
}

/// Writes a profile that lists this file as a module.
fn profile_of(name: &str, path: &Path, id: &str) -> PathBuf {
    let profile = json!({
        "meta": {},
        "libs": [{"path": path, "debugPath": path, "debugName": name, "breakpadId": id}],
    });
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.json"));
    fs::write(&file, profile.to_string()).expect("written");
    file
}

/// A profile may come from someone else, who could make it list a file that is not a module.
#[test]
fn listed_file_that_is_no_module_is_refused() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (secret, symbols) = (folder.join("secret.txt"), folder.join("symbols.sym"));
    fs::write(&secret, "secret").expect("written");
    let id = "0123456789ABCDEF0123456789ABCDEF0";
    // Breakpad's text format, in which anyone can name any file as a source.
    let text = format!(
        "MODULE Linux x86_64 {id} symbols\nFILE 0 {}\nFUNC 1000 10 0 f\n1000 10 1 0\n",
        secret.display()
    );
    fs::write(&symbols, text).expect("written");
    for (name, path) in [("symbols", &symbols), ("secret", &secret)] {
        let server = Server::start(&profile_of(name, path, id));
        let secret = secret.to_str().expect("UTF-8");
        assert_no_source(&server, (name, id), &json!("0x1000"), secret);
        let query = json!({"memoryMap": [[name, id]], "stacks": [[[0, 0x1000]]]});
        let answer = server.query("symbolicate/v5", &query);
        assert_eq!(
            answer["results"][0]["stacks"][0][0]["function"],
            Value::Null,
            "{answer}"
        );
    }
}

/// The executable that ran may have been rebuilt since.
#[test]
fn module_with_another_id_gives_no_names() {
    let path = RECORDING.module["path"].as_str().expect("a path");
    let id = "0123456789ABCDEF0123456789ABCDEF0";
    let server = Server::start(&profile_of("rebuilt", Path::new(path), id));
    let query = json!({"memoryMap": [["rebuilt", id]], "stacks": [[[0, RECORDING.addresses[0]]]]});
    let answer = server.query("symbolicate/v5", &query);
    assert_eq!(
        answer["results"][0]["found_modules"][format!("rebuilt/{id}")],
        false,
        "{answer}"
    );
    let query = code_of("rebuilt", id);
    assert!(server.query("asm/v1", &query)["error"].is_string());
}
