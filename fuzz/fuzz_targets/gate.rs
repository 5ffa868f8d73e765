#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| reqwest_jitter::fuzzing::gate(data));
