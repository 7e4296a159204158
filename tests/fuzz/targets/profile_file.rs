//! Reads profiles from files, and writes them in every format.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| gekkota::fuzzing::check_profile_file(input));
