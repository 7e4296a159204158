//! Encodes and decodes numbers as in the buffer.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| gekkota::fuzzing::check_leb128(input));
