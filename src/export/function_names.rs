//! Names of functions, made short for a line of text, and made comparable between two builds.

use std::borrow::Cow;

/// Marks the place where a part of a name is left out.
const LEFT_OUT: &str = "..";

/// Maximum length of a name that is taken apart. The time for that is up to the square of it.
const MAX_PARSED_CHARS: usize = 4096;

/// Maximum number of generic argument lists within others in a shortened name.
const MAX_KEPT_DEPTH: usize = 32;

/// Suffixes by which compilers name a part or a copy of a function. What follows them may differ in
/// each build.
const COPY_SUFFIXES: [&str; 5] = [".llvm.", ".part.", ".isra.", ".constprop.", ".cold"];

/// Returns a function's name in at most `max_chars` characters. Generic arguments go first, the
/// innermost ones before the others, and then the middle of the path: the crate and the function
/// stay.
pub(crate) fn short_function_name(name: &str, max_chars: usize) -> String {
    let name = cut_middle(name, MAX_PARSED_CHARS);
    let fits = |text: &str| text.chars().count() <= max_chars;
    if fits(&name) {
        return name;
    }
    let deepest = generics_depth(&name).unwrap_or(0).min(MAX_KEPT_DEPTH);
    let mut text = name;
    for kept in (0..deepest).rev() {
        text = without_generics(&text, kept);
        if fits(&text) {
            return text;
        }
    }
    without_middle_of_path(&text, max_chars).unwrap_or_else(|| cut_middle(&text, max_chars))
}

/// Returns a text without control characters, which would break a line or a column.
pub(crate) fn one_line(text: &str) -> Cow<'_, str> {
    match text.contains(char::is_control) {
        true => Cow::Owned(text.replace(char::is_control, " ")),
        false => Cow::Borrowed(text),
    }
}

/// Returns a text in at most `max_chars` characters, without its middle if it is longer.
pub(crate) fn cut_middle(text: &str, max_chars: usize) -> String {
    let chars: Vec<char> = one_line(text).chars().collect();
    if chars.len() <= max_chars {
        return chars.into_iter().collect();
    }
    let kept = max_chars.saturating_sub(LEFT_OUT.len());
    // The end of a path says more than its beginning.
    let head = kept / 3;
    let tail = &chars[chars.len() - (kept - head)..];
    chars[..head]
        .iter()
        .copied()
        .chain(LEFT_OUT.chars())
        .chain(tail.iter().copied())
        .take(max_chars)
        .collect()
}

/// Visits each character with the number of generic argument lists around it. The brackets of a
/// list count as inside. Returns `None` if the brackets do not match, as in `operator<`.
fn visit_generics(name: &str, mut visit: impl FnMut(char, usize)) -> Option<()> {
    let mut open: Vec<bool> = Vec::new();
    let mut depth = 0;
    let mut last = ' ';
    for letter in name.chars() {
        match letter {
            '<' => {
                // Otherwise it begins a path such as `<A as B>::f`.
                let is_generic = last.is_alphanumeric() || matches!(last, '_' | ':' | '}');
                depth += usize::from(is_generic);
                open.push(is_generic);
                visit(letter, depth);
            }
            '>' if !matches!(last, '-' | '=') => {
                let is_generic = open.pop()?;
                visit(letter, depth);
                depth -= usize::from(is_generic);
            }
            _ => visit(letter, depth),
        }
        last = letter;
    }
    open.is_empty().then_some(())
}

fn generics_depth(name: &str) -> Option<usize> {
    let mut deepest = 0;
    visit_generics(name, |_, depth| deepest = deepest.max(depth))?;
    Some(deepest)
}

/// Replaces the contents of generic argument lists that lie within `kept` others.
fn without_generics(name: &str, kept: usize) -> String {
    let mut text = String::with_capacity(name.len());
    let mut last_depth = 0;
    let _ = visit_generics(name, |letter, depth| {
        if depth <= kept {
            if last_depth > kept {
                text.push('>');
            }
            text.push(letter);
        } else if last_depth <= kept {
            text.push('<');
            text.push_str(LEFT_OUT);
        }
        last_depth = depth;
    });
    if last_depth > kept {
        text.push('>');
    }
    text
}

/// Leaves out elements in the middle of a path. `None` if that does not make it short enough.
fn without_middle_of_path(name: &str, max_chars: usize) -> Option<String> {
    // The brackets of a qualified path count here, unlike for generics.
    let mut depth = 0_i32;
    let mut ends = Vec::new();
    let bytes = name.as_bytes();
    for (at, &byte) in bytes.iter().enumerate() {
        match byte {
            b'<' | b'(' | b'{' | b'[' => depth += 1,
            b'>' if at > 0 && bytes[at - 1] == b'-' => {}
            b'>' | b')' | b'}' | b']' => depth -= 1,
            b':' if depth == 0 && bytes[at + 1..].starts_with(b":") => ends.push(at),
            _ => {}
        }
    }
    let head = &name[..*ends.first()?];
    // The longest tail that fits.
    let tails = ends.iter().skip(1).map(|&end| &name[end..]);
    let mut texts = tails.map(|tail| format!("{head}::{LEFT_OUT}{tail}"));
    texts.find(|text| text.chars().count() <= max_chars)
}

/// Returns the name by which a function of one build is found in another one: without hash, without
/// the numbers of closures, and without the suffixes of a compiler's copies.
pub(crate) fn comparable_name(name: &str) -> Cow<'_, str> {
    let copy = COPY_SUFFIXES.iter().filter_map(|suffix| name.find(suffix));
    let name = match copy.min() {
        Some(end) if end > 0 => &name[..end],
        _ => name,
    };
    let name = match name.rsplit_once("::h") {
        Some((path, hash)) if is_hash(hash, 16) && hash.len() == 16 => path,
        _ => name,
    };
    match name.contains(['{', '[']) {
        true => Cow::Owned(without_numbers(name)),
        false => Cow::Borrowed(name),
    }
}

/// Returns a library's name without the hash that Cargo adds to a test's or a bench's.
pub(crate) fn comparable_library(name: &str) -> &str {
    match name.rsplit_once('-') {
        Some((name, hash)) if is_hash(hash, 16) => name,
        _ => name,
    }
}

fn is_hash(text: &str, min_digits: usize) -> bool {
    text.len() >= min_digits && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Writes `{closure#3}` and `{{closure}}#3` as `{{closure}}`, and leaves out a crate's hash:
/// `regex[1a2b3c4d5e6f7081]::f`.
fn without_numbers(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find(['{', '[']) {
        text.push_str(&rest[..at]);
        let is_hash_place = text.ends_with(|last: char| last.is_alphanumeric() || last == '_');
        rest = &rest[at..];
        let element = rest.strip_prefix('{').and_then(|rest| {
            let braces = if rest.starts_with('{') { "}}" } else { "}" };
            rest.trim_start_matches('{').split_once(braces)
        });
        let hash = rest.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        match (element, hash) {
            (Some((element, after)), _) => {
                let word = element.split('#').next().unwrap_or(element);
                text.push_str("{{");
                text.push_str(word);
                text.push_str("}}");
                let digits =
                    |after: &str| after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
                rest = match after.strip_prefix('#') {
                    Some(number) => &number[number.len() - digits(number)..],
                    None => after,
                };
            }
            (None, Some((hash, after))) if is_hash_place && is_hash(hash, 8) => rest = after,
            _ => {
                text.push_str(&rest[..1]);
                rest = &rest[1..];
            }
        }
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_function_name_drops_generics_before_the_path() {
        let name = "<alloc::vec::Vec<core::option::Option<u8>> as core::iter::Extend<u8>>::extend";
        for (max, short) in [
            (99, name),
            (
                73,
                "<alloc::vec::Vec<core::option::Option<..>> as core::iter::Extend<u8>>::extend",
            ),
            (
                70,
                "<alloc::vec::Vec<..> as core::iter::Extend<..>>::extend",
            ),
            (20, "<alloc..ter::Extend<.."),
        ] {
            let text = short_function_name(name, max);
            assert!(text.chars().count() <= max, "{text}");
            if max >= 70 && short.chars().count() <= max {
                assert_eq!(text, short);
            }
        }
        let long = "server::http::connection::pool::handle::<Request<Body>>::{{closure}}";
        assert_eq!(
            short_function_name(long, 60),
            "server::http::connection::pool::handle::<..>::{{closure}}"
        );
        assert_eq!(
            short_function_name(long, 40),
            "server::..::handle::<..>::{{closure}}"
        );
    }

    #[test]
    fn short_function_name_accepts_any_text() {
        for text in [
            "",
            "operator<",
            "a<b>>c",
            "->",
            "f(fn(A) -> B<C>)",
            "ü\n<é<ß>",
            "::::",
            "{{[",
            &"a<".repeat(100_000),
            &format!("{}{}", "a<".repeat(900), ">".repeat(900)),
            &"a::".repeat(100_000),
        ] {
            for max in 0..12 {
                let short = short_function_name(text, max);
                assert!(short.chars().count() <= max, "{text} {short}");
                assert!(!short.contains('\n'));
            }
            comparable_name(text);
        }
    }

    #[test]
    fn comparable_name_is_the_same_in_each_build() {
        for (name, comparable) in [
            ("a::b::h0123456789abcdef", "a::b"),
            ("a::b::hash", "a::b::hash"),
            ("a::{{closure}}#12::c", "a::{{closure}}::c"),
            ("a::{closure#0}", "a::{{closure}}"),
            ("a::{{closure}}", "a::{{closure}}"),
            ("a[0123456789abcdef]::f", "a::f"),
            ("<[u8] as T>::f", "<[u8] as T>::f"),
            ("work.part.0.cold", "work"),
            ("work.llvm.123", "work"),
            ("a{b", "a{b"),
        ] {
            assert_eq!(comparable_name(name), comparable);
        }
        assert_eq!(comparable_library("server-0123456789abcdef"), "server");
        assert_eq!(comparable_library("libc-2.31.so"), "libc-2.31.so");
    }
}
