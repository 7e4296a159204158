//! The server for programs without one.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use crate::common::isolated;
use gekkota::endpoints::HttpServer;

/// Sends a request with these header lines, and returns the status and the whole response.
fn request(address: SocketAddr, line: &str, headers: &[&str]) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("connected");
    let headers: String = headers
        .iter()
        .map(|header| format!("{header}\r\n"))
        .collect();
    let text = format!("{line} HTTP/1.1\r\n{headers}Connection: close\r\n\r\n");
    stream.write_all(text.as_bytes()).expect("sent");
    let mut response = Vec::new();
    stream.read_to_end(&mut response).expect("received");
    let response = String::from_utf8_lossy(&response).into_owned();
    let status = response
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    (
        status.unwrap_or_else(|| panic!("no status: {response}")),
        response,
    )
}

#[test]
fn server_answers_requests_with_a_loopback_name() {
    isolated(|| {
        let local = "127.0.0.1:0".parse().expect("an address");
        let server = HttpServer::start(local, None).expect("a server");
        let address = server.address();
        let host = format!("Host: {address}");
        let (status, page) = request(address, "GET /", &[&host]);
        assert_eq!(status, 200);
        assert!(page.contains("href=\"threads\""), "{page}");
        let (status, text) = request(address, "GET /debug/pprof/threads", &["Host: localhost"]);
        assert_eq!(status, 200);
        assert!(text.contains("X-Content-Type-Options: nosniff"), "{text}");
        assert!(text.contains("\nthread "), "{text}");
        let (status, text) = request(address, "GET /summary?seconds=many", &[&host]);
        assert_eq!(status, 400);
        assert!(text.contains("got \"many\" for \"seconds\""), "{text}");
        assert_eq!(request(address, "GET /none", &[&host]).0, 404);
        assert_eq!(request(address, "POST /summary", &[&host]).0, 405);
        assert_eq!(
            request(address, "GET /threads", &["Host: evil.example"]).0,
            403
        );
        drop(server);
    });
}

#[test]
fn server_with_a_token_answers_only_with_it() {
    isolated(|| {
        let any = "0.0.0.0:0".parse().expect("an address");
        let server = HttpServer::start(any, Some("secret")).expect("a server");
        let address = SocketAddr::from(([127, 0, 0, 1], server.address().port()));
        for (target, headers, expected) in [
            ("GET /threads", &[][..], 401),
            ("GET /threads?token=other", &[], 401),
            ("GET /threads?token=secret", &[], 200),
            ("GET /threads", &["Authorization: Bearer secret"], 200),
            ("GET /threads", &["Authorization: Bearer secrets"], 401),
            ("GET /?token=secret", &["Host: my.server"], 200),
        ] {
            let headers = [&["Accept: */*"], headers].concat();
            let (status, response) = request(address, target, &headers);
            assert_eq!(status, expected, "{target}: {response}");
        }
    });
}

#[test]
fn variable_starts_the_server() {
    isolated(|| {
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = free.local_addr().expect("its address");
        drop(free);
        // SAFETY: no other thread of this process uses the environment.
        unsafe { std::env::set_var("MOZ_PROFILER_HTTP", address.to_string()) };
        gekkota::profiler_init();
        gekkota::profiler_init();
        let (status, _) = request(address, "GET /threads", &["Host: localhost"]);
        assert_eq!(status, 200);
        gekkota::profiler_shutdown();
    });
}
