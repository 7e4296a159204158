//! Shortens function names to the width of a column.

/// Returns the name without its generic arguments. If it is still longer than `width` characters,
/// replaces its middle by `…`.
pub(crate) fn shorten(name: &str, width: usize) -> String {
    let name = without_arguments(name);
    if name.chars().count() <= width {
        return name;
    }
    let parts = path_parts(&name);
    let last = parts[parts.len() - 1];
    // The crate name tells more than a module in the middle, so try to keep it first.
    let suffixes = || (2..parts.len()).map(|from| parts[from..].join("::"));
    let with_crate = suffixes().map(|suffix| format!("{}::…::{suffix}", parts[0]));
    let without_crate = suffixes().map(|suffix| format!("…::{suffix}"));
    let fitting = with_crate
        .chain(without_crate)
        .chain([last.to_owned()])
        .find(|short| short.chars().count() <= width);
    fitting.unwrap_or_else(|| {
        last.chars()
            .take(width.saturating_sub(1))
            .chain(['…'])
            .collect()
    })
}

/// Turns `a::B<C>::d::<E>` into `a::B::d`, and `<a::B<C> as d::E>::f` into `<B as E>::f`. Keeps a
/// name with unbalanced brackets, such as an operator's, unchanged.
fn without_arguments(name: &str) -> String {
    let mut short = String::new();
    let mut rest = name;
    while let Some(open) = rest.find('<') {
        let Some(length) = bracketed_length(&rest[open..]) else {
            return name.to_owned();
        };
        let inside = &rest[open + 1..open + length - 1];
        short.push_str(&rest[..open]);
        if short.is_empty() || inside.starts_with("impl ") {
            let inside = without_arguments(inside);
            let last_part = |word| path_parts(word).pop().unwrap_or(word);
            let words: Vec<&str> = inside.split(' ').map(last_part).collect();
            short = format!("{short}<{}>", words.join(" "));
        } else if let Some(function) = short.strip_suffix("::") {
            short.truncate(function.len());
        }
        rest = &rest[open + length..];
    }
    short + rest
}

/// Returns the length of the `<…>` at the start of `text`, including the brackets. The `>` of an
/// arrow is not a bracket.
fn bracketed_length(text: &str) -> Option<usize> {
    let mut depth = 0;
    let mut before = ' ';
    for (at, letter) in text.char_indices() {
        match letter {
            '<' => depth += 1,
            '>' if before != '-' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at + 1);
        }
        before = letter;
    }
    None
}

/// Splits a path at each `::` outside of brackets. The result is never empty.
fn path_parts(name: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut at) = (0, 0);
    while at < name.len() {
        let rest = &name[at..];
        if rest.starts_with("::") {
            parts.push(&name[start..at]);
            (start, at) = (at + 2, at + 2);
        } else {
            let bracketed = rest
                .starts_with('<')
                .then(|| bracketed_length(rest))
                .flatten();
            at += bracketed
                .or_else(|| rest.chars().next().map(char::len_utf8))
                .unwrap_or(1);
        }
    }
    parts.push(&name[start..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shorten_removes_arguments_and_keeps_traits() {
        for (long, short) in [
            ("memcpy", "memcpy"),
            (
                "core::ptr::drop_in_place<alloc::vec::Vec<u8>>",
                "core::ptr::drop_in_place",
            ),
            ("a::b::<fn(u8) -> c::D>::e", "a::b::e"),
            (
                "<alloc::vec::Vec<u8> as std::io::Write>::write_all",
                "<Vec as Write>::write_all",
            ),
            (
                "core::fmt::num::<impl core::fmt::Debug for u32>::fmt",
                "core::fmt::num::<impl Debug for u32>::fmt",
            ),
            ("a::{{closure}}", "a::{{closure}}"),
            ("operator<", "operator<"),
            ("operator->", "operator->"),
            ("", ""),
        ] {
            assert_eq!(shorten(long, 60), short);
        }
    }

    #[test]
    fn shorten_removes_the_middle_first_and_keeps_characters_whole() {
        let name = "gürtel::über::straße::größe";
        for (width, short) in [
            (27, "gürtel::über::straße::größe"),
            (26, "gürtel::…::straße::größe"),
            (23, "gürtel::…::größe"),
            (15, "…::größe"),
            (7, "größe"),
            (4, "grö…"),
            (1, "…"),
        ] {
            assert_eq!(shorten(name, width), short);
        }
    }
}
