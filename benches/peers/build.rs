//! Leaves the debug information out of the library that `unwind` and `start` load.

fn main() {
    // `start` loads 200 copies of the library, each from a file of its own.
    println!("cargo::rustc-link-arg-cdylib=-Wl,--strip-debug");
    println!("cargo::rerun-if-changed=build.rs");
}
