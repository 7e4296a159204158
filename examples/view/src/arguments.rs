//! The command line.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use lexopt::prelude::*;

use crate::link::{Origin, Range};

pub(crate) const USAGE: &str =
    "usage: view PROFILE [--port PORT] [--idle MINUTES] [--profiler ORIGIN] [--range RANGE]

PROFILE             a profile in Gecko's format or in the Firefox Profiler's own;
                    it may be compressed with gzip
--port PORT         the port of 127.0.0.1 to listen on; by default a free one
--idle MINUTES      end after so many minutes without a request; by default 60
--profiler ORIGIN   where the Firefox Profiler runs, such as http://localhost:4242;
                    by default https://profiler.firefox.com
--range RANGE       what to show at first, such as 4920123u81000: from 4,920,123 µs on,
                    for 81,000 µs; the text beside a dump has the range of its cause";

#[derive(Debug)]
pub(crate) struct Arguments {
    pub(crate) profile: PathBuf,
    /// 0 means any free port.
    pub(crate) port: u16,
    pub(crate) idle: Duration,
    pub(crate) profiler: Origin,
    pub(crate) range: Option<Range>,
}

impl Arguments {
    /// Returns `None` if the user asks for help.
    pub(crate) fn parse() -> Result<Option<Self>, Box<dyn Error>> {
        let mut parser = lexopt::Parser::from_env();
        let (mut profile, mut port, mut range) = (None, 0, None);
        let (mut minutes, mut profiler) = (60.0, Origin::default());
        while let Some(argument) = parser.next()? {
            match argument {
                Long("port") => port = parser.value()?.parse()?,
                Long("idle") => minutes = parser.value()?.parse()?,
                Long("profiler") => profiler = Origin::parse(&parser.value()?.string()?)?,
                Long("range") => range = Some(Range::parse(&parser.value()?.string()?)?),
                Short('h') | Long("help") => return Ok(None),
                Value(path) if profile.is_none() => profile = Some(PathBuf::from(path)),
                _ => return Err(argument.unexpected().into()),
            }
        }
        Ok(Some(Self {
            profile: profile.ok_or("got no PROFILE; --help shows the usage")?,
            port,
            idle: Duration::try_from_secs_f64(60.0 * minutes)
                .map_err(|_| format!("--idle: got {minutes}, expected a number of minutes"))?,
            profiler,
            range,
        }))
    }
}
