//! Passes arbitrary samples through the encoder, a buffer and the decoder.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| gekkota::fuzzing::check_samples(input));
