//! Tells the profiler what Lua runs, by Lua's own hooks: a frame for each call, and its line.

use std::cell::RefCell;
use std::rc::Rc;

use gekkota::{AutoProfilerScriptFrame, ScriptFunction, profiler_register_script_function};
use mlua::{Debug, DebugEvent, HookTriggers, Lua, VmState};

/// The calls that Lua is in.
#[derive(Clone)]
pub(crate) struct ScriptFrames(Rc<RefCell<Calls>>);

/// Which function was called: one of the script by the line that it begins at, one of Lua's own by its caller's name for it.
#[derive(PartialEq)]
enum Called {
    OfScript(usize),
    OfLua(String),
}

struct Calls {
    /// Outermost first.
    frames: Vec<(Called, AutoProfilerScriptFrame)>,
    /// Where the host entered Lua. A hook has returned before the function runs, so its own place says nothing.
    entered_at: usize,
    /// The function that begins at each line of the script; at 0 what stands in none.
    functions: Vec<ScriptFunction>,
}

impl ScriptFrames {
    /// Follows the calls of this Lua, which runs this script alone.
    ///
    /// # Errors
    /// Lua's refusal.
    pub(crate) fn install(lua: &Lua, file: &str, script: &str) -> mlua::Result<Self> {
        let names = std::iter::once("").chain(script.lines().map(defined_name));
        let named = |(line, name): (u32, &str)| {
            profiler_register_script_function(name, file, line.max(1), 0)
        };
        let functions = (0..).zip(names).map(named).collect();
        let frames = Self(Rc::new(RefCell::new(Calls {
            frames: Vec::new(),
            entered_at: 0,
            functions,
        })));
        let of_hook = frames.clone();
        let triggers = HookTriggers::new().on_calls().on_returns().every_line();
        lua.set_hook(triggers, move |_, debug| {
            of_hook.0.borrow_mut().note(debug);
            Ok(VmState::Continue)
        })?;
        Ok(frames)
    }

    /// Runs Lua in `body`. Its frames stand above this function's in the profile, so above all of Lua's native ones.
    pub(crate) fn enter<T>(&self, body: impl FnOnce() -> T) -> T {
        let here = 0u8;
        let mut calls = self.0.borrow_mut();
        let entered_before = std::mem::replace(&mut calls.entered_at, (&raw const here).addr());
        let _leaves = Leaves {
            frames: self,
            entered_before,
            depth: calls.frames.len(),
        };
        drop(calls);
        body()
    }

    #[cfg(test)]
    pub(crate) fn depth(&self) -> usize {
        self.0.borrow().frames.len()
    }

    /// The address at which the host is in Lua; 0 where it is not.
    #[cfg(test)]
    pub(crate) fn entered_at(&self) -> usize {
        self.0.borrow().entered_at
    }
}

/// Goes back to what was there before Lua was entered, also where a panic leaves it.
struct Leaves<'a> {
    frames: &'a ScriptFrames,
    entered_before: usize,
    depth: usize,
}

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        let mut calls = self.frames.0.borrow_mut();
        // An error or a panic that left Lua left no word of the calls that it ended.
        calls.frames.truncate(self.depth);
        calls.entered_at = self.entered_before;
    }
}

impl Calls {
    fn note(&mut self, debug: &Debug<'_>) {
        match debug.event() {
            DebugEvent::Line => {
                if let (Some((_, frame)), Some(line)) = (self.frames.last(), debug.current_line()) {
                    frame.set_line(line as u32);
                }
            }
            DebugEvent::Call => self.push(called(debug)),
            DebugEvent::TailCall => {
                self.frames.pop();
                self.push(called(debug));
            }
            DebugEvent::Ret => {
                let returns = called(debug);
                // Calls above it were ended by an error that it caught.
                if let Some(index) = self
                    .frames
                    .iter()
                    .rposition(|(called, _)| *called == returns)
                {
                    self.frames.truncate(index);
                }
            }
            DebugEvent::Count | DebugEvent::Unknown(_) => {}
        }
    }

    fn push(&mut self, called: Called) {
        let function = match &called {
            Called::OfScript(line) => *self.functions.get(*line).unwrap_or(&self.functions[0]),
            Called::OfLua(name) => profiler_register_script_function(name, "[C]", 0, 0),
        };
        let frame = AutoProfilerScriptFrame::with_stack_address(function, self.entered_at);
        self.frames.push((called, frame));
    }
}

fn called(debug: &Debug<'_>) -> Called {
    let source = debug.source();
    match source.line_defined {
        _ if source.what == "C" => {
            // The names of Lua's own functions are their callers'.
            Called::OfLua(
                debug
                    .names()
                    .name
                    .as_deref()
                    .unwrap_or("(unnamed)")
                    .to_owned(),
            )
        }
        line => Called::OfScript(line.unwrap_or(0)),
    }
}

/// The name of the function that a line defines: Lua's functions are values, and know none.
fn defined_name(line: &str) -> &str {
    let name = line
        .split_once("function ")
        .and_then(|(_, rest)| rest.split_once('('));
    name.map_or("(anonymous)", |(name, _)| name.trim())
}
