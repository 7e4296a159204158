//! Decodes arbitrary bytes as the content of a buffer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| gekkota::fuzzing::check_decoder(input));
