//! Makes arbitrary calls of the JSON writer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| gekkota::fuzzing::check_json(input));
