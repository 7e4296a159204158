//! Demangling of symbol names.

use backtrace::SymbolName;

/// Returns the demangled name: Rust names without hash, C++ names with parameters, all others
/// unchanged. The suffix by which LLVM makes a local name unique is removed, and so is the default
/// version of a library's function.
pub(super) fn demangled(raw: &str) -> String {
    let raw = without_llvm_suffix(without_default_version(raw));
    // The C++ demangler also accepts an encoded type, such as `i` for `int`, which may be the name
    // of a C function.
    if raw.starts_with("_Z") || raw.starts_with("_R") {
        format!("{:#}", SymbolName::new(raw.as_bytes()))
    } else {
        raw.to_owned()
    }
}

/// Returns `memcpy` for `memcpy@@GLIBC_2.14`. A version that is not the default stays: it is another
/// function than the one that callers get today.
pub(super) fn without_default_version(raw: &str) -> &str {
    raw.split_once("@@").map_or(raw, |(name, _)| name)
}

fn without_llvm_suffix(raw: &str) -> &str {
    let is_number = |text: &str| {
        text.bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'A'..=b'F' | b'@'))
    };
    match raw.split_once(".llvm.") {
        Some((name, number)) if is_number(number) => name,
        _ => raw,
    }
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
            ("memcpy@@GLIBC_2.14", "memcpy"),
            ("memcpy@GLIBC_2.2.5", "memcpy@GLIBC_2.2.5"),
            ("i", "i"),
            ("Pv", "Pv"),
            ("_Znonsense", "_Znonsense"),
            ("local.llvm.1A2B", "local"),
            (
                "_ZN4core3fmt5write17h0123456789abcdefE.llvm.1A2B",
                "core::fmt::write",
            ),
            ("local.llvm.x", "local.llvm.x"),
        ] {
            assert_eq!(demangled(raw), readable);
        }
    }
}
