//! With an address space that leaves too little for the buffer's capacity (`ulimit -v`), the buffer
//! continues with the memory that it has, and grows again when memory is available.

use super::{MIB, add_markers, buffer_info, end_limit, held_bytes, limit_memory};
use crate::common::{LONGEST_WAIT, Read, isolated};
use gekkota::{ProfilerSession, StartParams};
use std::time::Instant;

/// Size of a marker's text, in bytes.
const TEXT_BYTES: usize = 4000;
/// Number of markers in the limited memory, 256 MiB of them.
const MARKERS: usize = 1 << 16;

fn records_within_what_it_has(free_mib: u64) {
    let params = StartParams::default().capacity_bytes(2 << 30);
    let session = ProfilerSession::start(params).expect("start");
    gekkota::register_thread("writer");
    add_markers(0..100, TEXT_BYTES);
    limit_memory(free_mib * MIB);
    add_markers(100..MARKERS, TEXT_BYTES);
    let limited = buffer_info();
    let held = held_bytes();
    println!("{held} bytes held, {limited:?}");
    assert!(held < free_mib * MIB, "{limited:?}");
    assert!(
        limited.recycled_bytes > 0 || limited.dropped_entries > 0,
        "{limited:?}"
    );
    end_limit();
    let end = Instant::now() + LONGEST_WAIT;
    let mut number = MARKERS;
    while held_bytes() < held + 16 * MIB {
        assert!(Instant::now() < end, "{:?}", buffer_info());
        add_markers(number..number + 200, TEXT_BYTES);
        number += 200;
    }
    let read = Read::from_profile(&session.finish().expect("profile"));
    let losses = &read.0["meta"]["losses"];
    println!("{losses}");
    assert!(losses["refused_chunks"].as_u64() > Some(0), "{losses}");
    let events = read.logged_events();
    let is_logged = |event: &&&str| **event == "no memory for a chunk of the buffer";
    assert_eq!(events.iter().filter(is_logged).count(), 1, "{events:?}");
    let last = format!("marker {:9} ", number - 1);
    let markers = read.markers("writer");
    let text = markers.last().expect("a marker").5["name"].as_str();
    assert!(text.expect("a text").starts_with(&last), "{text:?}");
    // No lost marker is uncounted.
    let lost = losses["entries_without_memory"].as_u64().expect("a count");
    let log = &read.0["profilingLog"][std::process::id().to_string()]["buffer"];
    let put = log["put_entries"].as_u64().expect("a count");
    assert!(put + lost >= number as u64, "{put} and {lost} of {number}");
}

#[test]
fn session_goes_on_with_20_mib_of_addresses() {
    isolated(|| records_within_what_it_has(20));
}

#[test]
fn session_goes_on_with_50_mib_of_addresses() {
    isolated(|| records_within_what_it_has(50));
}

#[test]
fn session_goes_on_with_100_mib_of_addresses() {
    isolated(|| records_within_what_it_has(100));
}
