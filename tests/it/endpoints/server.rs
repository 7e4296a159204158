//! The server that a variable starts.

use std::net::TcpStream;

use crate::common::left_behind::{Holdings, threads};
use crate::common::{in_forked_child, isolated, isolated_with, wait_until};
use crate::endpoints::client::{get, has_server, port_of_server, receive, request, send};
use gekkota::{AutoProfilerInit, profiler_init, profiler_is_active, profiler_shutdown};

const LOOPBACK: &[(&str, &str)] = &[("MOZ_PROFILER_HTTP", "127.0.0.1:0")];
const TOKEN: &str = "0123456789abcdef";
/// Longer than any test: only the client that leaves ends it.
const LONG: &str = "/debug/pprof/gecko?seconds=250";

#[test]
fn server_answers_until_the_profiler_ends() {
    isolated_with(LOOPBACK, || {
        let before = Holdings::now();
        let profiler = AutoProfilerInit::new();
        let port = port_of_server();
        // A thread that begins reads its own status for a moment.
        wait_until("it has a table of its own", || {
            Holdings::now().descriptors == before.descriptors
        });
        let index = get(port, "/debug/pprof/");
        assert_eq!(index.status, 200, "{index:?}");
        assert_eq!(
            index.header("Content-Type"),
            Some("text/html; charset=utf-8")
        );
        assert_eq!(index.header("Connection"), Some("close"));
        assert_eq!(index.header("Access-Control-Allow-Origin"), None);
        for target in ["/", "/debug/pprof"] {
            let other = get(port, target);
            assert_eq!(
                (other.status, other.header("Location")),
                (307, Some("/debug/pprof/"))
            );
        }
        let threads_now = get(port, "/debug/pprof/threads");
        assert_eq!(threads_now.status, 200, "{threads_now:?}");
        assert_eq!(
            threads_now.header("Content-Type"),
            Some("text/plain; charset=utf-8")
        );
        let gecko = get(port, "/debug/pprof/gecko?seconds=0.02");
        assert_eq!(
            gecko.header("Content-Disposition"),
            Some("attachment; filename=\"profile.json\"")
        );
        let length = gecko.header("Content-Length").expect("a length");
        assert_eq!(length, gecko.body.len().to_string());
        let profile: serde_json::Value = serde_json::from_slice(&gecko.body).expect("JSON");
        let names = profile["threads"].as_array().expect("threads");
        let is_own = |name: &str| name.starts_with("Profiler") || name.starts_with("Gekkota");
        assert!(
            names
                .iter()
                .all(|thread| !is_own(thread["name"].as_str().expect("a name")))
        );
        for (target, status, words) in [
            ("/other", 404, "expected one below /debug/pprof/"),
            ("/debug/pprof/mutex", 404, "expected one of profile"),
            ("/debug/pprof/profile?seconds=x", 400, "a number of seconds"),
            ("/debug/pprof/heap", 501, "nativeallocations"),
        ] {
            let reply = get(port, target);
            assert_eq!(reply.status, status, "{reply:?}");
            assert!(reply.text().contains(words), "{reply:?}");
        }
        drop(profiler);
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
        wait_until("the threads have ended", || threads() == before.threads);
        profiler_init();
        profiler_init();
        assert_eq!(get(port_of_server(), "/debug/pprof/").status, 200);
        profiler_shutdown();
        wait_until("the threads have ended", || threads() == before.threads);
    });
}

#[test]
fn headers_alone_take_no_session() {
    isolated_with(LOOPBACK, || {
        let _profiler = AutoProfilerInit::new();
        let port = port_of_server();
        for (target, status) in [(LONG, 200), ("/debug/pprof/gecko?seconds=x", 400)] {
            let mut bytes = request(target, "");
            bytes.splice(0..3, *b"HEAD");
            let reply = receive(send(port, &bytes)).expect("an answer");
            assert_eq!((reply.status, reply.body.len()), (status, 0), "{reply:?}");
            assert!(!profiler_is_active());
        }
    });
}

#[test]
fn client_that_leaves_stops_what_only_it_wanted() {
    isolated_with(LOOPBACK, || {
        let _profiler = AutoProfilerInit::new();
        let port = port_of_server();
        let one = send(port, &request(LONG, ""));
        wait_until("the client has started a session", profiler_is_active);
        let other = send(port, &request(LONG, ""));
        assert_eq!(get(port, "/debug/pprof/threads").status, 200);
        drop(one);
        assert_eq!(get(port, "/debug/pprof/threads").status, 200);
        assert!(profiler_is_active(), "one client is left");
        drop(other);
        wait_until("the last client has stopped the session", || {
            !profiler_is_active()
        });
    });
}

#[test]
fn shutdown_does_not_wait_for_clients() {
    isolated_with(LOOPBACK, || {
        let before = threads();
        let profiler = AutoProfilerInit::new();
        let client = send(port_of_server(), &request(LONG, ""));
        wait_until("the client has started a session", profiler_is_active);
        drop(profiler);
        assert!(receive(client).is_none(), "the connection is closed");
        wait_until("the threads have ended", || threads() == before);
        assert!(!profiler_is_active());
    });
}

#[test]
fn bad_requests_get_words_and_hold_no_place() {
    isolated_with(LOOPBACK, || {
        let _profiler = AutoProfilerInit::new();
        let port = port_of_server();
        let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(100_000));
        let post = "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 999999999999\r\n\r\nbody";
        let body = post.replace("POST", "GET");
        let foreign = request("/", "Origin: https://evil.example\r\n");
        let rebound = request("/", "")
            .iter()
            .map(|byte| *byte as char)
            .collect::<String>();
        let rebound = rebound.replace("127.0.0.1", "evil.example");
        for _ in 0..40 {
            for (bytes, status) in [
                (
                    &b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"[..],
                    400,
                ),
                (long.as_bytes(), 431),
                (post.as_bytes(), 405),
                (body.as_bytes(), 413),
                (&foreign[..], 403),
                (rebound.as_bytes(), 403),
            ] {
                let reply = receive(send(port, bytes));
                // The kernel may drop an answer if more bytes arrive after it.
                let is_lost = reply.is_none() && bytes.len() > 10_000;
                assert!(
                    is_lost || reply.as_ref().is_some_and(|reply| reply.status == status),
                    "{reply:?}"
                );
                assert!(reply.is_none_or(|reply| reply.text().contains(", expected ")));
            }
        }
        assert_eq!(get(port, "/debug/pprof/").status, 200);
    });
}

#[test]
fn connections_beyond_the_limit_are_refused_with_words() {
    isolated_with(LOOPBACK, || {
        let _profiler = AutoProfilerInit::new();
        let port = port_of_server();
        let mut asking: Vec<_> = (0..32).map(|_| send(port, &request(LONG, ""))).collect();
        wait_until("a further client is refused", || {
            let reply = receive(send(port, b""));
            reply.is_some_and(|reply| reply.status == 503 && reply.header("Retry-After").is_some())
        });
        asking.pop();
        wait_until("a place is free again", || {
            let reply = receive(send(port, &request("/debug/pprof/", "")));
            reply.is_some_and(|reply| reply.status == 200)
        });
    });
}

#[test]
fn token_is_needed_if_it_is_set() {
    isolated_with(&[LOOPBACK[0], ("MOZ_PROFILER_HTTP_TOKEN", TOKEN)], || {
        let _profiler = AutoProfilerInit::new();
        let port = port_of_server();
        let refused = get(port, "/debug/pprof/threads");
        assert_eq!(
            (refused.status, refused.header("WWW-Authenticate")),
            (401, Some("Bearer"))
        );
        let mut bytes = request("/debug/pprof/threads", "");
        bytes.splice(0..3, *b"HEAD");
        let headers_alone = receive(send(port, &bytes)).expect("an answer");
        assert_eq!((headers_alone.status, headers_alone.body.len()), (401, 0));
        let header = format!("Authorization: Bearer {TOKEN}\r\n");
        let reply = receive(send(port, &request("/debug/pprof/threads", &header)));
        assert_eq!(reply.expect("an answer").status, 200);
        let index = get(port, &format!("/debug/pprof/?token={TOKEN}"));
        assert!(
            index
                .text()
                .contains(&format!("href=\"threads?token={TOKEN}\"")),
            "{index:?}"
        );
        assert_eq!(index.header("Referrer-Policy"), Some("no-referrer"));
        let linked = get(
            port,
            &format!("/debug/pprof/summary?seconds=0.02&token={TOKEN}"),
        );
        assert_eq!(linked.status, 200, "{linked:?}");
    });
}

#[test]
fn address_that_others_reach_needs_a_token() {
    isolated_with(&[("MOZ_PROFILER_HTTP", "0.0.0.0:0")], || {
        let _profiler = AutoProfilerInit::new();
        assert!(!has_server());
    });
}

#[test]
fn program_without_the_variable_listens_nowhere() {
    isolated(|| {
        let _profiler = AutoProfilerInit::new();
        assert!(!has_server());
    });
}

#[test]
fn child_of_a_fork_serves_only_once_it_is_initialized() {
    isolated_with(LOOPBACK, || {
        let _profiler = AutoProfilerInit::new();
        let port = port_of_server();
        let client = send(port, &request(LONG, ""));
        wait_until("the client has started a session", profiler_is_active);
        let told = in_forked_child(|| {
            let had_server = has_server();
            profiler_init();
            let own = port_of_server();
            let status = get(own, "/debug/pprof/gecko?seconds=0.02").status;
            profiler_shutdown();
            format!("{had_server} {} {status}", own == port)
        });
        assert_eq!(told, "false false 200");
        assert!(profiler_is_active());
        assert_eq!(get(port, "/debug/pprof/threads").status, 200);
        drop(client);
        wait_until("the client has left", || !profiler_is_active());
    });
}

/// In a sandbox the server has no descriptor table of its own.
#[test]
#[cfg(target_arch = "x86_64")]
fn server_works_in_a_sandbox_and_a_forked_child_keeps_no_connection() {
    isolated_with(LOOPBACK, || {
        crate::sampling::sandbox::kill_for(
            crate::common::seccomp::Filtered::AllThreads,
            &[libc::SYS_close_range, libc::SYS_unshare],
        );
        let _profiler = AutoProfilerInit::new();
        let port = port_of_server();
        let answer = get(port, "/debug/pprof/gecko?seconds=0.02");
        assert_eq!(answer.status, 200, "{answer:?}");
        let sockets_in_child = in_forked_child(|| {
            let files = std::fs::read_dir("/proc/self/fd").expect("descriptors");
            let links = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
            let is_socket =
                |link: &std::path::PathBuf| link.to_string_lossy().starts_with("socket:");
            links.filter(is_socket).count().to_string()
        });
        assert_eq!(sockets_in_child, "0");
        assert_eq!(get(port, "/debug/pprof/threads").status, 200);
    });
}
