//! Texts of the host's that are kept have a length at most.

/// As much of the beginning of a text as so many bytes hold, cut at a character.
pub(crate) fn cut_at_character(text: &str, most_bytes: usize) -> &str {
    // `str::floor_char_boundary` is younger than the compilers that build this.
    let end = (0..=most_bytes.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        for (most, cut) in [(0, ""), (1, "a"), (2, "a"), (3, "aé"), (4, "aé"), (6, "aé"), (7, "aé𝄞")] {
            assert_eq!(cut_at_character("aé𝄞", most), cut, "{most}");
        }
        assert_eq!(cut_at_character("aé𝄞", usize::MAX), "aé𝄞");
    }
}
