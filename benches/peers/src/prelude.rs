//! What nearly every measurement uses.

pub(crate) use std::time::{Duration, Instant};

pub(crate) use gekkota::{ProfilerSession, StartParams, ThreadGuard, register_thread};
pub(crate) use serde_json::{Value, json};

pub(crate) use crate::numbers::median;
pub(crate) use crate::profile::{Counts, to_json};
pub(crate) use crate::study::{Arguments, Fallible, INTERVAL, Measurement, Study, number};
pub(crate) use crate::temporary::Temporary;
pub(crate) use crate::{child, pprof_rs};
