//! Colors of the viewer's graphs.

/// The color of a graph or marker.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum GraphColor {
    /// Blue.
    Blue,
    /// Green.
    Green,
    /// Grey.
    Grey,
    /// Dark grey.
    Ink,
    /// Magenta.
    Magenta,
    /// Orange.
    Orange,
    /// Purple.
    Purple,
    /// Red.
    Red,
    /// Blue-green.
    Teal,
    /// Yellow.
    Yellow,
}

impl GraphColor {
    pub(crate) const ALL: &[Self] = &[
        Self::Blue,
        Self::Green,
        Self::Grey,
        Self::Ink,
        Self::Magenta,
        Self::Orange,
        Self::Purple,
        Self::Red,
        Self::Teal,
        Self::Yellow,
    ];

    /// Returns the viewer's keyword.
    pub(crate) const fn keyword(self) -> &'static str {
        match self {
            Self::Blue => "blue",
            Self::Green => "green",
            Self::Grey => "grey",
            Self::Ink => "ink",
            Self::Magenta => "magenta",
            Self::Orange => "orange",
            Self::Purple => "purple",
            Self::Red => "red",
            Self::Teal => "teal",
            Self::Yellow => "yellow",
        }
    }
}
