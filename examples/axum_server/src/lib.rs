//! What both servers do: the work of their requests, and their command line.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Mutex;
use std::time::Duration;

use gekkota::{Features, StartParams, profiler_start};

/// Prices of the orders that were answered. Nothing removes them: the memory profile shows a leak.
static ANSWERED: Mutex<Option<HashMap<u64, Vec<u64>>>> = Mutex::new(None);

/// Answers an order: computes its price, and remembers it.
#[inline(never)]
pub fn answer_order(number: u64) -> String {
    let price = price_basket(number);
    remember_order(number, price);
    format!("order {number} costs {price}\n")
}

/// Uses the processor for about a millisecond.
#[inline(never)]
pub fn price_basket(number: u64) -> u64 {
    let mut price = number;
    for item in 0..400_000u64 {
        price = std::hint::black_box(price.wrapping_mul(6_364_136_223_846_793_005) ^ item);
    }
    price % 10_000
}

/// Keeps 8 KiB.
#[inline(never)]
pub fn remember_order(number: u64, price: u64) {
    let mut answered = ANSWERED.lock().unwrap_or_else(|error| error.into_inner());
    let prices = answered.get_or_insert_default();
    prices.insert(number, vec![price; 1024]);
}

/// The command line of both servers.
pub struct Arguments {
    /// The port of 127.0.0.1; 0 lets the system choose one.
    pub port: u16,
    /// Whether a session runs all the time. Only then the memory is known.
    pub is_always_on: bool,
    /// Number of threads that answer.
    pub threads: usize,
}

impl Arguments {
    /// Reads the arguments `--port PORT`, `--on-demand` and `--threads THREADS`.
    ///
    /// # Errors
    /// A description of the bad argument.
    pub fn read() -> Result<Self, lexopt::Error> {
        use lexopt::prelude::{Long, ValueExt};
        let mut arguments = Self {
            port: 8080,
            is_always_on: true,
            threads: 2,
        };
        let mut parser = lexopt::Parser::from_env();
        while let Some(argument) = parser.next()? {
            match argument {
                Long("port") => arguments.port = parser.value()?.parse()?,
                Long("on-demand") => arguments.is_always_on = false,
                Long("threads") => arguments.threads = parser.value()?.parse()?,
                other => return Err(other.unexpected()),
            }
        }
        Ok(arguments)
    }

    /// Starts the session that runs all the time, if there is to be one: 100 samples a second, and
    /// the stacks of allocations.
    ///
    /// # Errors
    /// Those of [`profiler_start`].
    pub fn start_session(&self) -> Result<(), Box<dyn Error>> {
        if self.is_always_on {
            let params = StartParams::default()
                .interval(Duration::from_millis(10))
                .features(Features::default() | Features::NATIVE_ALLOCATIONS);
            profiler_start(params)?;
        }
        Ok(())
    }
}
