//! Escaping of string contents.

/// Number of bytes compared at a time.
const STEP_BYTES: usize = 16;

const fn needs_escape(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// Returns whether a step has a byte that must be escaped. It has no branches, so the compiler
/// compares all bytes of a step at once.
fn is_hit<const N: usize>(step: &[u8; N]) -> bool {
    step.iter()
        .fold(false, |hit, &byte| hit | needs_escape(byte))
}

/// Returns whether this text needs no escapes in a JSON string. The last step of a text overlaps
/// the step before it, so that no step compares a single byte.
pub(super) fn is_plain(text: &[u8]) -> bool {
    let (steps, _) = text.as_chunks::<STEP_BYTES>();
    if let Some(last) = text.last_chunk::<STEP_BYTES>() {
        !steps.iter().any(is_hit) && !is_hit(last)
    } else if let (Some(first), Some(last)) = (text.first_chunk::<8>(), text.last_chunk::<8>()) {
        !is_hit(first) && !is_hit(last)
    } else if let (Some(first), Some(last)) = (text.first_chunk::<4>(), text.last_chunk::<4>()) {
        !is_hit(first) && !is_hit(last)
    } else {
        !text.iter().any(|&byte| needs_escape(byte))
    }
}

/// Returns the index of the first byte that must be escaped in a JSON string.
fn find_escape(bytes: &[u8]) -> Option<usize> {
    let (steps, rest) = bytes.as_chunks::<STEP_BYTES>();
    match steps.iter().position(is_hit) {
        Some(step) => {
            let within = steps[step].iter().position(|&byte| needs_escape(byte));
            within.map(|within| step * STEP_BYTES + within)
        }
        None => {
            let within = rest.iter().position(|&byte| needs_escape(byte));
            within.map(|within| steps.len() * STEP_BYTES + within)
        }
    }
}

/// Escapes `text` and passes the result to `put` in parts.
pub(super) fn escape(mut text: &[u8], mut put: impl FnMut(&[u8])) {
    while let Some(at) = find_escape(text) {
        put(&text[..at]);
        match text[at] {
            b'"' => put(b"\\\""),
            b'\\' => put(b"\\\\"),
            b'\n' => put(b"\\n"),
            b'\r' => put(b"\\r"),
            b'\t' => put(b"\\t"),
            byte => {
                let digit = |digit: u8| b"0123456789abcdef"[usize::from(digit)];
                put(&[b'\\', b'u', b'0', b'0', digit(byte >> 4), digit(byte & 15)]);
            }
        }
        text = &text[at + 1..];
    }
    put(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn escaped(text: &str) -> String {
        let mut out = Vec::new();
        escape(text.as_bytes(), |part| out.extend_from_slice(part));
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn each_byte_at_each_position_reads_back() {
        for length in [0, 1, 7, 15, 16, 17, 31, 32, 40] {
            for at in 0..length {
                for byte in 0..128u8 {
                    let mut text = "é".repeat(length / 2) + &"x".repeat(length % 2);
                    text.insert(text.char_boundary_before(at), char::from(byte));
                    let json = format!("\"{}\"", escaped(&text));
                    assert_eq!(serde_json::from_str::<String>(&json).expect("JSON"), text);
                }
            }
        }
    }

    trait CharBoundary {
        fn char_boundary_before(&self, at: usize) -> usize;
    }

    impl CharBoundary for String {
        fn char_boundary_before(&self, at: usize) -> usize {
            (0..=at)
                .rev()
                .find(|&at| self.is_char_boundary(at))
                .unwrap_or(0)
        }
    }

    #[test]
    fn text_is_plain_if_it_has_no_byte_to_escape() {
        for length in 0..70 {
            let plain = vec![b'x'; length];
            assert!(is_plain(&plain), "{length}");
            for at in 0..length {
                for byte in [0, 0x1f, b'"', b'\\'] {
                    let mut text = plain.clone();
                    text[at] = byte;
                    assert!(!is_plain(&text), "{byte} at {at} of {length}");
                }
            }
        }
    }

    #[test]
    fn text_without_escapes_is_passed_in_one_part() {
        let text = "no escape in this: µ \u{7f} \u{2028} \u{1f600}";
        let mut parts = Vec::new();
        escape(text.as_bytes(), |part| parts.push(part.to_vec()));
        assert_eq!(parts, [text.as_bytes()]);
        assert_eq!(escaped("\0\u{1f}\"\\\n\r\t"), r#"\u0000\u001f\"\\\n\r\t"#);
    }
}
