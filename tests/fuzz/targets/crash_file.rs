//! Rescues arbitrary bytes as a crash file.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| gekkota::fuzzing::check_crash_file(input));
