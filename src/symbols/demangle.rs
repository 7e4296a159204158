//! Names as people wrote them.

/// The demangled name: Rust's without its hash, C++'s with its parameters, any other as it is.
pub(super) fn demangled(raw: &str) -> String {
    let readable = format!("{:#}", rustc_demangle::demangle(raw));
    if raw.starts_with("_Z") && readable == raw {
        return cpp(raw).unwrap_or(readable);
    }
    readable
}

fn cpp(raw: &str) -> Option<String> {
    cpp_demangle::Symbol::new(raw.as_bytes())
        .ok()?
        .demangle()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_and_cpp_names_are_readable_and_c_names_stay() {
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
