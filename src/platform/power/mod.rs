//! The energy that the machine uses, as its processors count it (Intel's and AMD's “running average
//! power limit”, RAPL).
//!
//! The kernel offers the counters in two ways: as events (`energy_events.rs`), which a machine may
//! allow to every user, and as files (`powercap.rs`), which usually only a privileged user reads.
//! The events come first, as in Gecko, which knows no others.

mod energy_counter;
mod energy_events;
mod powercap;
mod search;

pub(crate) use energy_counter::{EnergyCounter, EnergyDomain};
pub(crate) use search::find_energy_counters;
