//! Takes the location of a Gecko frame apart.

/// What the text of a location says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Location<'t> {
    /// `0x1f40`
    Address(u64),
    /// `name (in lib)`, also with `+ 12` or `(file:line)` after it
    Native {
        name: &'t str,
        library: &'t str,
        file: Option<&'t str>,
        line: Option<u32>,
    },
    /// `name (file:line:column)`, or without the name, and maybe with `[source]` after it
    Script {
        name: &'t str,
        file: &'t str,
        line: Option<u32>,
        column: Option<u32>,
    },
    /// A label, or a placeholder.
    Plain(&'t str),
}

impl<'t> Location<'t> {
    pub(super) fn parse(text: &'t str) -> Self {
        address(text)
            .or_else(|| native(text))
            .or_else(|| script(text))
            .unwrap_or(Self::Plain(text))
    }
}

fn address(text: &str) -> Option<Location<'_>> {
    let digits = text.strip_prefix("0x")?;
    let is_hexadecimal = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let address = u64::from_str_radix(digits, 16);
    address
        .ok()
        .filter(|_| is_hexadecimal)
        .map(Location::Address)
}

fn native(text: &str) -> Option<Location<'_>> {
    // An offset within the function is dropped.
    let offset = text
        .rsplit_once(" + ")
        .filter(|(_, offset)| is_number(offset));
    let (rest, file, line) = match offset {
        Some((rest, _)) => (rest, None, None),
        None => with_file(text).unwrap_or((text, None, None)),
    };
    let (name, library) = in_library(rest)?;
    Some(Location::Native {
        name,
        library,
        file,
        line,
    })
}

/// Splits `name (in lib)`.
fn in_library(text: &str) -> Option<(&str, &str)> {
    let (name, library) = text.strip_suffix(')')?.rsplit_once(" (in ")?;
    (!library.contains(')')).then_some((name, library))
}

/// Splits `name (in lib) (file:line)`.
fn with_file(text: &str) -> Option<(&str, Option<&str>, Option<u32>)> {
    let (rest, place) = text.strip_suffix(')')?.rsplit_once(" (")?;
    let (file, line) = place.rsplit_once(':')?;
    in_library(rest)?;
    let file = Some(file).filter(|file| !file.is_empty());
    Some((rest, file, known_number(line)))
}

fn script(text: &str) -> Option<Location<'_>> {
    let text = without_source(text);
    let inner = text.strip_suffix(')');
    let (name, place) = match inner.and_then(|inner| inner.rsplit_once(" (")) {
        Some((name, place)) if split_numbers(place).is_some() => (name, place),
        _ => ("", text),
    };
    let (file, line, column) = split_numbers(place)?;
    (!file.is_empty()).then_some(Location::Script {
        name,
        file,
        line,
        column,
    })
}

/// Returns the location without the index of its source at the end.
fn without_source(text: &str) -> &str {
    let index = text
        .strip_suffix(']')
        .and_then(|text| text.rsplit_once('['));
    match index {
        Some((rest, index)) if is_number(index) => rest,
        _ => text,
    }
}

/// Splits `file:line:column` or `file:line`.
fn split_numbers(place: &str) -> Option<(&str, Option<u32>, Option<u32>)> {
    let (file, last) = place.rsplit_once(':').filter(|(_, last)| is_number(last))?;
    match file.rsplit_once(':') {
        Some((file, line)) if is_number(line) && !file.is_empty() => {
            Some((file, known_number(line), known_number(last)))
        }
        _ => Some((file, known_number(last), None)),
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit())
}

/// Returns a line or a column; `None` if it is unknown.
fn known_number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|number| *number > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_read_as_the_firefox_profiler_does() {
        let native = |name, library, file, line| Location::Native {
            name,
            library,
            file,
            line,
        };
        let script = |name, file, line, column| Location::Script {
            name,
            file,
            line,
            column,
        };
        for (text, expected) in [
            ("0x1f40", Location::Address(0x1f40)),
            ("0xffffffffffffffff", Location::Address(u64::MAX)),
            ("0x", Location::Plain("0x")),
            ("0x+1", Location::Plain("0x+1")),
            ("main (in demo)", native("main", "demo", None, None)),
            (
                "<T as U>::f(int) (in libc.so.6) + 12",
                native("<T as U>::f(int)", "libc.so.6", None, None),
            ),
            (
                "main (in demo) (src/main.rs:12)",
                native("main", "demo", Some("src/main.rs"), Some(12)),
            ),
            ("f (a.js:3:4)", script("f", "a.js", Some(3), Some(4))),
            ("f (a.js:3)[12]", script("f", "a.js", Some(3), None)),
            (
                "f (https://a.test/(x).js:3:4)[1]",
                script("f", "https://a.test/(x).js", Some(3), Some(4)),
            ),
            ("f (:0:0)[1]", script("f", ":0", None, None)),
            (
                "https://a.test/:12:1",
                script("", "https://a.test/", Some(12), Some(1)),
            ),
            ("(root)", Location::Plain("(root)")),
            ("js::RunScript", Location::Plain("js::RunScript")),
            (
                "operator() (in a:b)",
                native("operator()", "a:b", None, None),
            ),
            ("a (b)", Location::Plain("a (b)")),
            ("", Location::Plain("")),
            (":1", Location::Plain(":1")),
        ] {
            assert_eq!(Location::parse(text), expected, "{text}");
        }
    }
}
