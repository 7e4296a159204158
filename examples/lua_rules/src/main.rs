//! Profiles a rule engine whose rules are functions of a Lua script.
//!
//! ```text
//! cargo run --release --manifest-path examples/lua_rules/Cargo.toml [-- [SECONDS] [FILE]]
//! ```
//!
//! Prints the script functions that took most of the time, and writes the profile. The call tree
//! shows script functions between the native functions, or by themselves when you select
//! “JavaScript”.

mod script_frames;

use std::error::Error;
use std::time::{Duration, Instant};

use gekkota::label::auto_profiler_label_relevant_for_js;
use gekkota::profile::ThreadSummary;
use gekkota::{AutoProfilerInit, ProfilerSession, StartParams};
use mlua::{Function, Lua, Table};

use crate::script_frames::ScriptFrames;

const FILE: &str = "rules/orders.lua";
const RULES: &str = include_str!("orders.lua");

/// The loaded rules of the script.
struct Rules {
    lua: Lua,
    frames: ScriptFrames,
    judge: Function,
}

impl Rules {
    fn load() -> mlua::Result<Self> {
        let lua = Lua::new();
        let frames = ScriptFrames::install(&lua, FILE, RULES)?;
        lua.globals().set(
            "fingerprint",
            lua.create_function(|_, text: mlua::String| Ok(fingerprint(&text)))?,
        )?;
        // The `@` tells Lua that the chunk name is a file name.
        frames.enter(|| lua.load(RULES).set_name(format!("@{FILE}")).exec())?;
        let judge = lua.globals().get("judge")?;
        Ok(Self { lua, frames, judge })
    }

    fn order(&self, number: usize) -> mlua::Result<Table> {
        let lines = (1..=number % 20 + 1).map(|count| {
            let line = self.lua.create_table()?;
            line.set("price", (number % 97) as f64 + 0.5)?;
            line.set("count", count)?;
            Ok(line)
        });
        let order = self.lua.create_table()?;
        order.set("name", format!("customer number {number}"))?;
        order.set(
            "city",
            if number.is_multiple_of(50) {
                "customer number"
            } else {
                "Springfield"
            },
        )?;
        order.set("lines", lines.collect::<mlua::Result<Vec<_>>>()?)?;
        Ok(order)
    }

    fn judge(&self, order: &Table) -> mlua::Result<f64> {
        self.frames.enter(|| self.judge.call(order))
    }
}

/// Computes a checksum for the script; its label shows it among the script's functions.
fn fingerprint(text: &mlua::String) -> u32 {
    auto_profiler_label_relevant_for_js!("fingerprint of a text", Other);
    let text = text.as_bytes();
    (0..2000u32).fold(0, |value, round| {
        let byte = text
            .get(round as usize % text.len().max(1))
            .copied()
            .unwrap_or(0);
        value.rotate_left(5) ^ u32::from(byte) ^ round
    })
}

fn work(rules: &Rules, time: Duration) -> mlua::Result<(usize, f64)> {
    let orders = (0..200)
        .map(|number| rules.order(number))
        .collect::<mlua::Result<Vec<_>>>()?;
    let end = Instant::now() + time;
    let (mut judged, mut worth) = (0, 0.0);
    while Instant::now() < end {
        for order in &orders {
            worth += rules.judge(order)?;
            judged += 1;
        }
    }
    Ok((judged, worth))
}

fn print_summary(thread: &ThreadSummary) {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    println!(
        "{}: {} samples, {:.0} ms of CPU time",
        thread.name,
        thread.samples,
        ms(thread.cpu)
    );
    println!("{:>9} {:>9}  script function", "self ms", "total ms");
    for function in thread.script_functions.iter().take(12) {
        println!(
            "{:9.1} {:9.1}  {}",
            ms(function.self_time),
            ms(function.total_time),
            function.name
        );
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let seconds = arguments
        .next()
        .map_or(Ok(2.0), |text| text.parse::<f64>())?;
    let file = arguments
        .next()
        .unwrap_or_else(|| "lua_rules.profile.json".to_owned());

    let _profiler = AutoProfilerInit::new();
    let session = ProfilerSession::start(StartParams::default())?;
    let rules = Rules::load()?;
    let (judged, worth) = work(&rules, Duration::try_from_secs_f64(seconds)?)?;
    let profile = session.finish()?;

    println!("{judged} orders judged, worth {worth:.2}\n");
    profile
        .summarize()
        .iter()
        .filter(|thread| !thread.script_functions.is_empty())
        .for_each(print_summary);
    profile.save(&file)?;
    println!("\nThe profile is in {file}: open it at https://profiler.firefox.com");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a script that can call `depth()`, which returns the number of script frames.
    fn run<T: mlua::FromLuaMulti>(rules: &Rules, script: &str) -> mlua::Result<T> {
        let frames = rules.frames.clone();
        let depth = rules.lua.create_function(move |_, ()| Ok(frames.depth()))?;
        rules.lua.globals().set("depth", depth)?;
        rules.frames.enter(|| rules.lua.load(script).eval())
    }

    #[test]
    fn failed_calls_leave_frames_balanced() {
        let rules = Rules::load().expect("the rules");
        let script = "
            local before = depth()
            local function fails(below)
              if below == 0 then error('on purpose') end
              local result = fails(below - 1)
              return result
            end
            local deepest = select(2, pcall(function()
              local inner = depth()
              return inner
            end))
            local worked = pcall(fails, 5)
            return before, deepest, worked, depth()
        ";
        let (before, deepest, worked, after): (usize, usize, bool, usize) =
            run(&rules, script).expect("run");
        // Four frames: the script, `pcall`, the function that it calls, and `depth` itself.
        assert_eq!((before, deepest, worked, after), (2, 4, false, 2));
        assert_eq!(rules.frames.depth(), 0);
    }

    #[test]
    fn error_or_panic_out_of_lua_removes_frames() {
        let rules = Rules::load().expect("the rules");
        let worth = rules
            .judge(&rules.order(3).expect("an order"))
            .expect("judged");
        assert!(worth > 0.0, "{worth}");
        // Name and city are too alike: the script catches the error.
        let worth = rules
            .judge(&rules.order(50).expect("an order"))
            .expect("judged");
        assert!(worth < 0.0, "{worth}");
        // An empty table is not an order: the error reaches the application.
        assert!(
            rules
                .judge(&rules.lua.create_table().expect("a table"))
                .is_err()
        );
        assert_eq!(rules.frames.depth(), 0);

        let panics = rules
            .lua
            .create_function(|_, ()| -> mlua::Result<()> { panic!("on purpose") });
        rules
            .lua
            .globals()
            .set("panics", panics.expect("a function"))
            .expect("set");
        let outer = rules.frames.enter(|| {
            let left = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                run::<()>(&rules, "local function calls() panics() end calls()")
            }));
            (
                left.is_err(),
                rules.frames.depth(),
                rules.frames.entered_at(),
            )
        });
        assert!(outer.0, "the panic has to reach the caller");
        assert_eq!(
            (outer.1, rules.frames.depth(), rules.frames.entered_at()),
            (0, 0, 0)
        );
        assert_ne!(outer.2, 0);
    }
}
