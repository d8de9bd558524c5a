//! [`hapax_fuzz::property::fetch_response`] as a program.
#![no_main]
#![allow(unsafe_code, missing_docs, unreachable_pub, reason = "libFuzzer calls what the macro exports")]

libfuzzer_sys::fuzz_target!(|input: &[u8]| hapax_fuzz::property::fetch_response::run(input));
