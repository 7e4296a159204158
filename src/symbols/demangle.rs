//! Demangling of symbol names.

/// Returns the demangled name: Rust names without hash, C++ names with parameters, all others
/// unchanged.
pub(super) fn demangled(raw: &str) -> String {
    let readable = format!("{:#}", rustc_demangle::demangle(raw));
    if raw.starts_with("_Z") && readable == raw {
        return demangle_cpp(raw).unwrap_or(readable);
    }
    readable
}

fn demangle_cpp(raw: &str) -> Option<String> {
    cpp_demangle::Symbol::new(raw.as_bytes())
        .ok()?
        .demangle()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demangled_makes_rust_and_cpp_readable_and_keeps_c() {
        for (raw, readable) in [
            ("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write"),
            ("_RNvCs15kBYyAo9fc_7mycrate3foo", "mycrate::foo"),
            (
                "_ZNSt6vectorIiSaIiEE9push_backEOi",
                "std::vector<int, std::allocator<int> >::push_back(int&&)",
            ),
            ("memcpy", "memcpy"),
            ("_Znonsense", "_Znonsense"),
        ] {
            assert_eq!(demangled(raw), readable);
        }
    }
}
