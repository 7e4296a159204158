//! The words that the viewer knows in a schema.

macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$doc])* $variant,)+
        }

        impl $name {
            /// The viewer's word for it.
            #[cfg(has_profiler)]
            pub(super) const fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            #[cfg(all(test, has_profiler))]
            const ALL: &[Self] = &[$(Self::$variant,)+];
        }
    };
}

words! {
    /// Where markers of a type are shown.
    Location {
        /// The marker chart, by rows of name.
        MarkerChart = "marker-chart",
        /// The marker table.
        MarkerTable = "marker-table",
        /// The track of the main thread.
        TimelineOverview = "timeline-overview",
        /// The track of memory; where the process has none, the main thread's.
        TimelineMemory = "timeline-memory",
        /// A track for each thread with such markers.
        TimelineIPC = "timeline-ipc",
        /// The track of the main thread, in a row of their own.
        TimelineFileIO = "timeline-fileio",
        /// A track for each thread with such markers; it shows those of the type
        /// [`NetworkMarker`](crate::marker::built_in::NetworkMarker) alone.
        TimelineNetwork = "timeline-network",
        /// The stack chart, which the viewer does not draw yet.
        StackChart = "stack-chart",
    }
}

words! {
    /// How the viewer shows a field; in which unit it is.
    Format {
        /// A string that is an URL.
        Url = "url",
        /// A string that is the path of a file.
        FilePath = "file-path",
        /// A string that is left out when a profile is shared without private data.
        SanitizedString = "sanitized-string",
        /// A string.
        String = "string",
        /// A string of the profile's table, as [`JSONWriter::unique_string_property`](crate::schema::JSONWriter::unique_string_property)
        /// writes it.
        UniqueString = "unique-string",
        /// Milliseconds, shown in a unit that fits.
        Duration = "duration",
        /// Milliseconds since the process began, as [`JSONWriter::time_property`](crate::schema::JSONWriter::time_property) writes it;
        /// shown so, while the viewer shows a marker's own times from the beginning of the profile.
        Time = "time",
        /// Milliseconds, shown as seconds.
        Seconds = "seconds",
        /// Milliseconds.
        Milliseconds = "milliseconds",
        /// Microseconds.
        Microseconds = "microseconds",
        /// Nanoseconds.
        Nanoseconds = "nanoseconds",
        /// Bytes.
        Bytes = "bytes",
        /// A number from 0 to 1.
        Percentage = "percentage",
        /// A whole number.
        Integer = "integer",
        /// A number.
        Decimal = "decimal",
        /// A whole number, of which the lowest 32 bits are shown, to the base of 16.
        Hexadecimal = "hexadecimal",
        /// The id of a process, as a string; shown with the name of its main thread, where the profile has one.
        Pid = "pid",
        /// The id of a thread; shown with its name, where the profile has it.
        Tid = "tid",
        /// An array of strings or numbers. With a field of this format that is none, the viewer shows nothing of the profile.
        List = "list",
        /// A flow, as [`JSONWriter::flow_property`](crate::schema::JSONWriter::flow_property) writes it.
        Flow = "flow-id",
        /// A flow that ends with this marker.
        TerminatingFlow = "terminating-flow-id",
    }
}

words! {
    /// How a field is drawn over time.
    GraphType {
        /// A line.
        Line = "line",
        /// A bar for each marker.
        Bar = "bar",
        /// A line, and the place below it filled.
        LineFilled = "line-filled",
    }
}

words! {
    /// In which colour.
    GraphColor {
        /// Blue.
        Blue = "blue",
        /// Green.
        Green = "green",
        /// Grey.
        Grey = "grey",
        /// Dark grey.
        Ink = "ink",
        /// Magenta.
        Magenta = "magenta",
        /// Orange.
        Orange = "orange",
        /// Purple.
        Purple = "purple",
        /// Red.
        Red = "red",
        /// Blue-green.
        Teal = "teal",
        /// Yellow.
        Yellow = "yellow",
    }
}

#[cfg(all(test, has_profiler))]
mod tests {
    use super::*;

    /// What the viewer knows: another word, and it shows nothing of what it stands for, or nothing at all. A table is the only
    /// format that is no word.
    const FORMATS: &str = "url file-path sanitized-string string unique-string duration time seconds milliseconds \
        microseconds nanoseconds bytes percentage integer decimal hexadecimal pid tid list flow-id terminating-flow-id";
    const PLACES: &str = "marker-chart marker-table timeline-overview timeline-memory timeline-ipc timeline-fileio \
        timeline-network stack-chart";

    #[test]
    fn all_words_are_the_viewers_and_all_of_the_viewers_are_there() {
        let words = |words: Vec<&str>| words.join(" ");
        assert_eq!(
            words(Format::ALL.iter().map(|format| format.word()).collect()),
            FORMATS
        );
        assert_eq!(
            words(Location::ALL.iter().map(|place| place.word()).collect()),
            PLACES
        );
        assert_eq!(
            words(GraphType::ALL.iter().map(|graph| graph.word()).collect()),
            "line bar line-filled"
        );
        let colors = words(GraphColor::ALL.iter().map(|color| color.word()).collect());
        assert_eq!(
            colors,
            "blue green grey ink magenta orange purple red teal yellow"
        );
    }
}
