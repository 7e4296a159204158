//! A category as profiles describe it, and the colors that categories may have.

/// Number of Gecko's categories. The categories of the application are numbered from here.
pub(crate) const GECKO_CATEGORIES: usize = 25;
/// Index of Gecko's category “Other”, used for categories beyond the maximum.
pub(crate) const OTHER: u8 = 1;

/// One row of `meta.categories`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CategoryInfo {
    pub(crate) label: &'static str,
    pub(crate) color: &'static str,
    pub(crate) subcategories: &'static [&'static str],
}

impl CategoryInfo {
    /// Returns a category whose texts are never freed. Allocates.
    pub(crate) fn leaked(label: &str, color: &str, subcategories: &[String]) -> &'static Self {
        fn leak(text: &str) -> &'static str {
            Box::leak(Box::from(text))
        }
        let subcategories: Vec<_> = subcategories.iter().map(|name| leak(name)).collect();
        Box::leak(Box::new(Self {
            label: leak(label),
            color: leak(color),
            subcategories: subcategories.leak(),
        }))
    }

    /// Returns a copy whose texts are never freed. Allocates.
    pub(crate) fn leaked_copy(&self) -> Self {
        fn leak(text: &str) -> &'static str {
            Box::leak(Box::from(text))
        }
        let subcategories: Vec<_> = self.subcategories.iter().copied().map(leak).collect();
        Self {
            label: leak(self.label),
            color: leak(self.color),
            subcategories: subcategories.leak(),
        }
    }
}

/// The colors that the viewer supports for categories.
const COLORS: [&str; 14] = [
    "transparent",
    "blue",
    "brown",
    "darkgrey",
    "green",
    "grey",
    "lightblue",
    "lightgreen",
    "lightred",
    "magenta",
    "orange",
    "purple",
    "red",
    "yellow",
];

const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    if one.len() != other.len() {
        return false;
    }
    let mut index = 0;
    while index < one.len() {
        if one[index] != other[index] {
            return false;
        }
        index += 1;
    }
    true
}

/// Returns the index of a word in a list that contains it.
#[doc(hidden)]
pub const fn place_among(words: &[&str], word: &str) -> u8 {
    let mut index = 0;
    while index < words.len() {
        if is_same(words[index], word) {
            return index as u8;
        }
        index += 1;
    }
    panic!("the list contains the word")
}

pub(crate) const fn is_known_color(color: &str) -> bool {
    let mut index = 0;
    while index < COLORS.len() {
        if is_same(COLORS[index], color) {
            return true;
        }
        index += 1;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_known_color_accepts_only_the_viewers_colors() {
        assert!(is_known_color("grey") && is_known_color("lightgreen"));
        assert!(!is_known_color("gray") && !is_known_color("pink") && !is_known_color(""));
    }
}
