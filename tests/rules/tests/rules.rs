//! What the compiler keeps of the rules who may touch what: each file of `cases` breaks one, and does not compile.
//!
//! The files are crates of their own, made of the same source files as the library up to `state`, since all of this is
//! private to it. What the library's `build.rs` finds out is told them by cargo's environment. Those of the attribute macro
//! need it alone; those of labels and of categories take the library as a host does.

const FLAGS_OF_TARGET: &str = if cfg!(target_arch = "aarch64") {
    "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS"
} else {
    "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS"
};

#[test]
fn what_breaks_a_rule_does_not_compile() {
    // SAFETY: no other thread of this process looks at the environment: this is its only test.
    unsafe { std::env::set_var(FLAGS_OF_TARGET, "--cfg has_profiler --cap-lints allow") };
    let cases = trybuild::TestCases::new();
    cases.pass("cases/keeps_all.rs");
    cases.compile_fail("cases/*_is_refused.rs");
}
