//! Clients that ask for everything at random, leave, stall and send garbage. No resource remains.
//!
//! `GEKKOTA_SOAK_SECONDS=60` lets them ask for that long, instead of some times each.

use std::time::{Duration, Instant};

use crate::common::left_behind::Holdings;
use crate::common::{Busy, isolated_with, wait_until};
use crate::endpoints::client::{get, port_of_server, receive, request, send};
use gekkota::{AutoProfilerInit, profiler_is_active};

const CLIENTS: u64 = 16;
/// Number of a client's requests without the variable.
const REQUESTS: u64 = 8;
const RESIDENT_SLACK_KIB: usize = 24 << 10;
/// The C library keeps up to 40 MiB of stacks of threads that have ended.
const MAPPED_SLACK_KIB: usize = 128 << 10;
const NAMES: [&str; 9] = [
    "profile",
    "wall",
    "heap",
    "gecko",
    "flamegraph",
    "summary",
    "threads",
    "",
    "mutex",
];

/// Numbers that look random.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        let multiplied = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = multiplied.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn act(port: u16, numbers: &mut Numbers) {
    let name = NAMES[numbers.below(NAMES.len() as u64) as usize];
    let (hundredths, hz) = (numbers.below(20), 1 + numbers.below(1_200));
    let target = format!("/debug/pprof/{name}?seconds=0.{hundredths:02}&hz={hz}");
    match numbers.below(8) {
        // Leaves at once, or before the answer.
        0 => drop(send(port, &request(&target, ""))),
        1 => {
            let client = send(port, &request("/debug/pprof/gecko?seconds=200", ""));
            std::thread::sleep(Duration::from_millis(hundredths));
            drop(client);
        }
        // Stalls within the head, or does not read.
        2 => {
            let client = send(port, b"GET /debug/pprof/");
            std::thread::sleep(Duration::from_millis(hundredths * 5));
            drop(client);
        }
        3 => {
            let client = send(port, &request(&target, ""));
            std::thread::sleep(Duration::from_millis(hundredths * 20));
            drop(client);
        }
        4 => {
            let garbage: Vec<u8> = (0..numbers.below(12_000))
                .map(|_| numbers.below(256) as u8)
                .collect();
            let _ = receive_unless_silent(port, &garbage);
        }
        _ => {
            let reply = get(port, &target);
            let expected = [200, 400, 404, 500, 501, 503];
            assert!(expected.contains(&reply.status), "{target}: {}", reply.head);
        }
    }
}

/// Sends bytes that may look like the beginning of a request, for whose rest the server would wait.
fn receive_unless_silent(port: u16, bytes: &[u8]) -> Option<u16> {
    let client = send(port, bytes);
    client.shutdown(std::net::Shutdown::Write).ok()?;
    Some(receive(client)?.status)
}

#[test]
fn clients_leave_nothing_behind() {
    isolated_with(&[("MOZ_PROFILER_HTTP", "127.0.0.1:0")], || {
        Holdings::prepare();
        let seconds = std::env::var("GEKKOTA_SOAK_SECONDS").ok();
        let seconds: Option<u64> = seconds.map(|text| text.parse().expect("a number of seconds"));
        let _busy = [Busy::start(), Busy::start()];
        let _profiler = AutoProfilerInit::new();
        let port = port_of_server();
        let round = |seed: u64, end: Option<Instant>| {
            std::thread::scope(|scope| {
                for client in 0..CLIENTS {
                    scope.spawn(move || {
                        let mut numbers = Numbers(seed + client);
                        let mut done = 0;
                        while end.map_or(done < REQUESTS, |end| Instant::now() < end) {
                            act(port, &mut numbers);
                            done += 1;
                        }
                    });
                }
            });
        };
        // What stays for the process's life comes with the first requests.
        for name in NAMES {
            get(port, &format!("/debug/pprof/{name}?seconds=0.05"));
        }
        round(1, None);
        let is_quiet = |before: Option<Holdings>| {
            let now = Holdings::now();
            let is_as_before = before.is_none_or(|before| {
                (before.threads, before.descriptors) == (now.threads, now.descriptors)
            });
            !profiler_is_active() && is_as_before
        };
        let mut before = Holdings::now();
        wait_until("the first clients have left", || {
            let now = Holdings::now();
            let is_same = (now.threads, now.descriptors) == (before.threads, before.descriptors);
            before = now;
            // The harness has two threads, the test two busy ones, and the server three.
            is_same && !profiler_is_active() && now.threads <= 7
        });
        let end = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
        round(1_000, end);
        wait_until("the clients have left", || is_quiet(Some(before)));
        let after = Holdings::now();
        after.assert_as_before(&before, RESIDENT_SLACK_KIB, MAPPED_SLACK_KIB);
        assert_eq!(get(port, "/debug/pprof/threads").status, 200);
    });
}
