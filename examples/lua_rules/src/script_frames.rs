//! Reports the running Lua functions to the profiler, with Lua's own hooks: a script frame for each
//! call, and its current line.

use std::cell::RefCell;
use std::rc::Rc;

use gekkota::script::{AutoProfilerScriptFrame, ScriptFunction, profiler_register_script_function};
use mlua::{Debug, DebugEvent, HookTriggers, Lua, VmState};

/// The stack of active Lua calls, shared with the hook.
#[derive(Clone)]
pub(crate) struct ScriptFrames(Rc<RefCell<Calls>>);

/// Function of a call. Script functions are identified by the line at which they begin, Lua's
/// built-in functions by the name that their caller uses.
#[derive(PartialEq)]
enum Callee {
    Script(usize),
    Builtin(String),
}

struct Calls {
    /// Outermost first.
    frames: Vec<(Callee, AutoProfilerScriptFrame)>,
    /// Stack address at which the application entered Lua. It places the frames on the stack: they
    /// need the address of a caller of the script functions, and a hook is not one, because it
    /// returns before the function runs.
    entered_at: usize,
    /// The function that begins at each line of the script; index 0 is the code outside of
    /// functions.
    functions: Vec<ScriptFunction>,
}

impl ScriptFrames {
    /// Installs a hook that follows the calls of `lua`, which must run no other script.
    ///
    /// # Errors
    /// Fails if Lua refuses the hook.
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
        let hook_frames = frames.clone();
        let triggers = HookTriggers::new().on_calls().on_returns().every_line();
        lua.set_hook(triggers, move |_, debug| {
            hook_frames.0.borrow_mut().handle_event(debug);
            Ok(VmState::Continue)
        })?;
        Ok(frames)
    }

    /// Runs `body`, which calls Lua. In the profile, the script frames are callers of this
    /// function, and so of all native frames of Lua.
    pub(crate) fn enter<T>(&self, body: impl FnOnce() -> T) -> T {
        let here = 0u8;
        let mut calls = self.0.borrow_mut();
        let entered_before = std::mem::replace(&mut calls.entered_at, (&raw const here).addr());
        let _restore = RestoreOnDrop {
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

    /// Returns the stack address at which the application entered Lua, or 0 outside of Lua.
    #[cfg(test)]
    pub(crate) fn entered_at(&self) -> usize {
        self.0.borrow().entered_at
    }
}

/// Restores the state from before Lua was entered, even when a panic unwinds.
struct RestoreOnDrop<'a> {
    frames: &'a ScriptFrames,
    entered_before: usize,
    depth: usize,
}

impl Drop for RestoreOnDrop<'_> {
    fn drop(&mut self) {
        let mut calls = self.frames.0.borrow_mut();
        // An error or a panic that leaves Lua skips the return events of the calls that it ends.
        calls.frames.truncate(self.depth);
        calls.entered_at = self.entered_before;
    }
}

impl Calls {
    fn handle_event(&mut self, debug: &Debug<'_>) {
        match debug.event() {
            DebugEvent::Line => {
                if let (Some((_, frame)), Some(line)) = (self.frames.last(), debug.current_line()) {
                    frame.set_line(line as u32);
                }
            }
            DebugEvent::Call => self.push(callee(debug)),
            DebugEvent::TailCall => {
                self.frames.pop();
                self.push(callee(debug));
            }
            DebugEvent::Ret => {
                let returning = callee(debug);
                // If this function caught an error, that error has ended the calls that it had
                // made.
                if let Some(index) = self
                    .frames
                    .iter()
                    .rposition(|(callee, _)| *callee == returning)
                {
                    self.frames.truncate(index);
                }
            }
            DebugEvent::Count | DebugEvent::Unknown(_) => {}
        }
    }

    fn push(&mut self, callee: Callee) {
        let function = match &callee {
            Callee::Script(line) => *self.functions.get(*line).unwrap_or(&self.functions[0]),
            Callee::Builtin(name) => profiler_register_script_function(name, "[C]", 0, 0),
        };
        let frame = AutoProfilerScriptFrame::with_stack_address(function, self.entered_at);
        self.frames.push((callee, frame));
    }
}

fn callee(debug: &Debug<'_>) -> Callee {
    let source = debug.source();
    match source.line_defined {
        _ if source.what == "C" => {
            // Built-in functions have no name of their own, only the one that the caller uses.
            Callee::Builtin(
                debug
                    .names()
                    .name
                    .as_deref()
                    .unwrap_or("(unnamed)")
                    .to_owned(),
            )
        }
        line => Callee::Script(line.unwrap_or(0)),
    }
}

/// Returns the name of the function that `line` defines. Lua's functions are values without a name.
fn defined_name(line: &str) -> &str {
    let name = line
        .split_once("function ")
        .and_then(|(_, rest)| rest.split_once('('));
    name.map_or("(anonymous)", |(name, _)| name.trim())
}
