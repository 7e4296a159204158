//! The look of a text on a standard stream.

use crate::platform::{StandardStream, is_terminal, terminal_columns};
use crate::session::env::environment::variable;
use crate::types::Look;

/// Width of a terminal that does not say how wide it is.
const USUAL_COLUMNS: usize = 80;

/// Returns the look that fits the stream: colors and a width for a terminal, and a plain text for
/// anything else.
///
/// `COLUMNS` overrides the width that the terminal reports. A terminal gets no colors if `NO_COLOR`
/// is set to anything, or if `TERM` is `dumb` or not set.
pub(crate) fn look_on(stream: StandardStream) -> Look {
    if !is_terminal(stream) {
        return Look::Plain;
    }
    let value_of = |name: &str| {
        let value = variable(name).filter(|value| !value.is_empty());
        value.map(|value| value.to_string_lossy().into_owned())
    };
    terminal_look(value_of, terminal_columns(stream))
}

fn terminal_look(value_of: impl Fn(&str) -> Option<String>, reported: Option<usize>) -> Look {
    let chosen = value_of("COLUMNS").and_then(|columns| columns.trim().parse().ok());
    let chosen = chosen.filter(|&columns| columns > 0);
    Look::Terminal {
        columns: chosen.or(reported).unwrap_or(USUAL_COLUMNS),
        has_colors: value_of("NO_COLOR").is_none()
            && value_of("TERM").is_some_and(|term| term != "dumb"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_choose_width_and_colors() {
        let look = |variables: &[(&str, &str)], reported| {
            let value_of = |name: &str| {
                let mut known = variables.iter().filter(|(known, _)| *known == name);
                known.next().map(|(_, value)| (*value).to_owned())
            };
            match terminal_look(value_of, reported) {
                Look::Terminal {
                    columns,
                    has_colors,
                } => (columns, has_colors),
                Look::Plain => panic!("a terminal"),
            }
        };
        let xterm = ("TERM", "xterm");
        assert_eq!(look(&[xterm], Some(132)), (132, true));
        assert_eq!(look(&[xterm], None), (80, true));
        assert_eq!(look(&[xterm, ("COLUMNS", "60")], Some(132)), (60, true));
        assert_eq!(look(&[xterm, ("COLUMNS", "0")], Some(132)), (132, true));
        assert_eq!(look(&[xterm, ("COLUMNS", "wide")], None), (80, true));
        assert_eq!(look(&[xterm, ("NO_COLOR", "0")], None), (80, false));
        assert_eq!(look(&[("TERM", "dumb")], None), (80, false));
        assert_eq!(look(&[], None), (80, false));
    }
}
