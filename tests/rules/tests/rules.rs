//! Rules of access that the compiler enforces. Each file in `cases` whose name ends in
//! `_is_refused` breaks one rule, and does not compile.
//!
//! Most files are crates that include the library's source files up to `state`, because these
//! modules are private. Cargo's environment passes them the `cfg` that the library's `build.rs`
//! would set. The cases of the attribute macro need only its package. Those of labels and
//! categories depend on the library, like an application.

const RUSTFLAGS_OF_TARGET: &str = if cfg!(target_arch = "aarch64") {
    "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUSTFLAGS"
} else {
    "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUSTFLAGS"
};

#[test]
fn code_that_breaks_a_rule_does_not_compile() {
    // SAFETY: this is the only test, so no other thread uses the environment.
    unsafe { std::env::set_var(RUSTFLAGS_OF_TARGET, "--cfg has_profiler --cap-lints allow") };
    let cases = trybuild::TestCases::new();
    cases.pass("cases/correct_use_compiles.rs");
    cases.compile_fail("cases/*_is_refused.rs");
}
