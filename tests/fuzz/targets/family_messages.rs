//! Reads arbitrary bytes as what a child or a parent sends.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| gekkota::fuzzing::check_family_messages(input));
