//! Any bytes as what a buffer holds.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| gekkota::fuzzing::check_decoder(input));
