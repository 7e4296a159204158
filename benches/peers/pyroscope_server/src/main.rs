//! The server of `cargo peers always_on`, profiled by pyroscope-rs at 100 Hz.
//!
//! Usage: `pyroscope_server PEERS SECONDS STORE`. `PEERS` is the program of the measurements, which
//! also has the clients. `STORE` is the address that takes the profiles.

#[path = "../../src/busy.rs"]
#[allow(dead_code, reason = "the server needs only its work")]
mod busy;
#[path = "../../src/raw.rs"]
#[allow(
    dead_code,
    reason = "the server only reads a clock and chooses processors"
)]
mod raw;
#[path = "../../src/serving.rs"]
mod serving;

use std::error::Error;
use std::path::Path;

use pyroscope::backend::{BackendConfig, PprofConfig, pprof_backend};
use pyroscope::pyroscope::PyroscopeAgentBuilder;

const HZ: u32 = 100;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [peers, seconds, store] = &arguments[..] else {
        return Err(format!(
            "cannot run the server: got {} arguments, expected PEERS SECONDS STORE",
            arguments.len()
        )
        .into());
    };
    let run = serving::Run {
        program: Path::new(peers),
        clients: &["--child", "always_on", "clients"],
        seconds,
    };
    let start = || {
        let backend = pprof_backend(PprofConfig { sample_rate: HZ }, BackendConfig::default());
        let agent =
            PyroscopeAgentBuilder::new(store, "always_on", HZ, "pyroscope-rs", "2", backend);
        Ok(agent.build()?.start()?)
    };
    println!("{}", serving::run(&run, || {}, |_| (), start)?);
    Ok(())
}
