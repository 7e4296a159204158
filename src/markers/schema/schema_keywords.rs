//! The keywords of the viewer's marker schema.

macro_rules! keywords {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $keyword:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$doc])* $variant,)+
        }

        impl $name {
            /// Returns the viewer's keyword.
            pub(crate) const fn keyword(self) -> &'static str {
                match self {
                    $(Self::$variant => $keyword,)+
                }
            }

            #[cfg(test)]
            const ALL: &[Self] = &[$(Self::$variant,)+];
        }
    };
}

keywords! {
    /// A part of the viewer that shows markers of a type.
    Location {
        /// The marker chart, with a row for each name.
        MarkerChart = "marker-chart",
        /// The marker table.
        MarkerTable = "marker-table",
        /// The main thread's track.
        TimelineOverview = "timeline-overview",
        /// The memory track, or the main thread's track if the process has no memory track.
        TimelineMemory = "timeline-memory",
        /// A track for each thread with such markers.
        TimelineIPC = "timeline-ipc",
        /// The main thread's track, in a row of its own.
        TimelineFileIO = "timeline-fileio",
        /// A track for each thread with such markers. It shows only markers of the type
        /// [`NetworkMarker`](crate::marker::built_in::NetworkMarker).
        TimelineNetwork = "timeline-network",
        /// The stack chart. Current viewers do not draw these markers.
        StackChart = "stack-chart",
    }
}

keywords! {
    /// How the viewer shows a field, and the field's unit.
    Format {
        /// A URL.
        Url = "url",
        /// The path of a file.
        FilePath = "file-path",
        /// A string that the viewer removes when the user shares a profile without private data.
        SanitizedString = "sanitized-string",
        /// A string.
        String = "string",
        /// A string in the thread's string table, as
        /// [`JSONWriter::unique_string_property`](crate::schema::JSONWriter::unique_string_property)
        /// writes it.
        UniqueString = "unique-string",
        /// Milliseconds, shown in a suitable unit.
        Duration = "duration",
        /// Milliseconds since the process started, as
        /// [`JSONWriter::time_property`](crate::schema::JSONWriter::time_property) writes it. The
        /// viewer shows the value as it is, whereas it shows the marker's own times relative to the
        /// start of the profile.
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
        /// An integer.
        Integer = "integer",
        /// A number.
        Decimal = "decimal",
        /// An integer, whose lowest 32 bits are shown in hexadecimal.
        Hexadecimal = "hexadecimal",
        /// A process id, as a string. Shown with the name of the process's main thread, if the
        /// profile has it.
        Pid = "pid",
        /// A thread id. Shown with the thread's name, if the profile has it.
        Tid = "tid",
        /// An array of strings or numbers. The viewer fails to load a profile in which such a field
        /// has another type.
        List = "list",
        /// A flow id, as [`JSONWriter::flow_property`](crate::schema::JSONWriter::flow_property)
        /// writes it.
        Flow = "flow-id",
        /// The id of a flow that ends with this marker.
        TerminatingFlow = "terminating-flow-id",
    }
}

keywords! {
    /// How a graph draws a field over time.
    GraphType {
        /// A line.
        Line = "line",
        /// A bar for each marker.
        Bar = "bar",
        /// A line with the area below it filled.
        LineFilled = "line-filled",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The viewer's keywords. With any other keyword, the viewer hides the item or fails to load
    /// the profile. The table format is not here, because it has no keyword.
    const FORMATS: &str = "url file-path sanitized-string string unique-string duration time seconds milliseconds \
        microseconds nanoseconds bytes percentage integer decimal hexadecimal pid tid list flow-id terminating-flow-id";
    const LOCATIONS: &str = "marker-chart marker-table timeline-overview timeline-memory timeline-ipc timeline-fileio \
        timeline-network stack-chart";

    #[test]
    fn keywords_equal_those_of_the_viewer() {
        let joined = |keywords: Vec<&str>| keywords.join(" ");
        assert_eq!(
            joined(Format::ALL.iter().map(|format| format.keyword()).collect()),
            FORMATS
        );
        assert_eq!(
            joined(
                Location::ALL
                    .iter()
                    .map(|location| location.keyword())
                    .collect()
            ),
            LOCATIONS
        );
        assert_eq!(
            joined(GraphType::ALL.iter().map(|graph| graph.keyword()).collect()),
            "line bar line-filled"
        );
        let colors = joined(
            crate::types::GraphColor::ALL
                .iter()
                .map(|color| color.keyword())
                .collect(),
        );
        assert_eq!(
            colors,
            "blue green grey ink magenta orange purple red teal yellow"
        );
    }
}
