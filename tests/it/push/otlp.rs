//! Profiles for a collector of OpenTelemetry.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::channel;

use prost::Message;

use crate::common::{Busy, LONGEST_WAIT, isolated, wait_until};
use crate::push::{OFTEN, keep};
use gekkota::push::{PushSettings, profiler_push};

#[derive(Clone, PartialEq, Message)]
struct Request {
    #[prost(message, repeated, tag = "1")]
    resource_profiles: Vec<ResourceProfiles>,
    #[prost(message, optional, tag = "2")]
    dictionary: Option<Dictionary>,
}

#[derive(Clone, PartialEq, Message)]
struct Dictionary {
    #[prost(string, repeated, tag = "5")]
    string_table: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceProfiles {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_profiles: Vec<ScopeProfiles>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<Text>,
}

#[derive(Clone, PartialEq, Message)]
struct Text {
    #[prost(string, tag = "1")]
    text: String,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeProfiles {
    #[prost(message, repeated, tag = "2")]
    profiles: Vec<Profile>,
}

#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(fixed64, tag = "3")]
    time_unix_nano: u64,
    #[prost(uint64, tag = "4")]
    duration_nano: u64,
}

/// `ExportProfilesServiceResponse`, in which two profiles are rejected.
const REJECTION: &[u8] = b"\x0a\x0c\x08\x02\x12\x08no stack";

/// Answers requests, and passes them on: their first lines, and their bodies.
fn serve(listener: &TcpListener, mut pass_on: impl FnMut(String, Vec<u8>) -> bool) {
    for stream in listener.incoming() {
        let mut stream = stream.expect("a connection");
        let (mut bytes, mut part) = (Vec::new(), [0; 8192]);
        let (head, body) = loop {
            let length = stream.read(&mut part).expect("a request");
            assert!(length > 0, "the request is whole");
            bytes.extend_from_slice(&part[..length]);
            let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
            let Some(end) = end else { continue };
            let head = String::from_utf8(bytes[..end].to_vec()).expect("UTF-8");
            let mut lines = head.lines();
            let length = lines.find_map(|line| line.strip_prefix("Content-Length: "));
            let length: usize = length.expect("a length").parse().expect("a number");
            if bytes.len() - end - 4 == length {
                break (head, bytes[end + 4..].to_vec());
            }
        };
        let answer_head = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
            REJECTION.len()
        );
        let answer = [answer_head.as_bytes(), REJECTION].concat();
        stream.write_all(&answer).expect("sent");
        if !pass_on(head, body) {
            return;
        }
    }
}

#[test]
fn collector_gets_profiles_that_join() {
    isolated(|| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (send, requests) = channel();
        std::thread::spawn(move || {
            serve(&listener, |head, body| send.send((head, body)).is_ok());
        });
        let settings = PushSettings::otlp(format!("http://{address}"))
            .interval(OFTEN)
            .service("shop")
            .label("region", "eu");
        let pusher = profiler_push(settings).expect("pushing");
        let _busy = Busy::start_registered();
        let mut has_function = false;
        let mut last_end = None;
        let mut count = 0;
        while !has_function || count < 3 {
            let (head, body) = requests.recv_timeout(LONGEST_WAIT).expect("a request");
            assert!(
                head.starts_with("POST /v1development/profiles HTTP/1.1\r\n"),
                "{head}"
            );
            assert!(
                head.contains("\r\nContent-Type: application/x-protobuf\r\n"),
                "{head}"
            );
            keep("otlp", &body);
            let request = Request::decode(&*body).expect("a message");
            let texts = request.dictionary.expect("a dictionary").string_table;
            assert_eq!(texts[0], "");
            has_function |= texts.iter().any(|text| text.contains("busy_function"));
            let [resource] = &request.resource_profiles[..] else {
                panic!("one process");
            };
            let attributes = &resource.resource.as_ref().expect("a resource").attributes;
            let named = attributes.iter().map(|pair| {
                let value = pair.value.as_ref().expect("a value");
                (&*pair.key, &*value.text)
            });
            let expected = [("service.name", "shop"), ("region", "eu")];
            assert!(named.eq(expected), "{attributes:?}");
            let profile = &resource.scope_profiles[0].profiles[0];
            if let Some(end) = last_end {
                assert_eq!(profile.time_unix_nano, end);
            }
            last_end = Some(profile.time_unix_nano + profile.duration_nano);
            count += 1;
        }
        wait_until("the rejected profiles are counted", || {
            let counts = pusher.counts();
            counts.sent > 0 && counts.rejected == 2 * counts.sent
        });
        drop(pusher);
    });
}
