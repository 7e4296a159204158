//! Tells the storm which compiler made it, so that the libraries that it loads are made by the same one.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=RUSTC");
    let compiler = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    println!("cargo::rustc-env=STORM_RUSTC={compiler}");
}
