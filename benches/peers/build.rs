//! Compiles the C library of `library_threads`, and leaves the debug information out of the library
//! that `unwind` and `start` load.

fn main() {
    // `start` loads 200 copies of the library, each from a file of its own.
    println!("cargo::rustc-link-arg-cdylib=-Wl,--strip-debug");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=native/workers.c");
    // Cargo would link it to the library of this package only. `library_programs.rs` names it.
    cc::Build::new()
        .cargo_metadata(false)
        .file("native/workers.c")
        .compile("peers_workers");
    let folder = std::env::var("OUT_DIR").expect("cargo sets it");
    println!("cargo::rustc-link-search=native={folder}");
}
