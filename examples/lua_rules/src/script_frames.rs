//! Reports the running Lua functions to the profiler, with Lua's own hooks: a script frame for each
//! call, and its current line.
//!
//! A hook takes longer than a short function of Lua, and its time counts as the function's. So no
//! hook runs for each line. The current line is set at every thousandth instruction, and in the
//! caller at each call.

use std::cell::RefCell;
use std::ffi::c_void;
use std::rc::Rc;

use gekkota::script::{
    AutoProfilerScriptFrame, ScriptFunction, profiler_register_script_function,
    profiler_run_interpreter,
};
use mlua::{Debug, DebugEvent, HookTriggers, Lua, VmState};

/// Instructions between two updates of the running function's line: some 10 µs, a hundredth of the
/// time between two samples.
const INSTRUCTIONS_PER_LINE: u32 = 1000;

/// The stack of active Lua calls, shared with the hook.
#[derive(Clone)]
pub(crate) struct ScriptFrames(Rc<RefCell<Calls>>);

/// An active call.
struct Call {
    /// Address of Lua's function, which stays there while the call is active.
    function: *const c_void,
    frame: AutoProfilerScriptFrame,
}

struct Calls {
    /// Outermost first.
    active: Vec<Call>,
    /// Stack address at which the application entered Lua. It places the frames on the stack: a
    /// hook cannot, because it returns before the function runs.
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
            active: Vec::new(),
            entered_at: 0,
            functions,
        })));
        let hook_frames = frames.clone();
        let triggers = HookTriggers::new()
            .on_calls()
            .on_returns()
            .every_nth_instruction(INSTRUCTIONS_PER_LINE);
        // Unlike the hook of one coroutine, this one is found without a search.
        lua.set_global_hook(triggers, move |lua, debug| {
            hook_frames.0.borrow_mut().handle_event(lua, debug);
            Ok(VmState::Continue)
        })?;
        Ok(frames)
    }

    /// Runs `body`, which calls Lua. In the profile, the script frames are callers of all native
    /// frames of Lua.
    pub(crate) fn enter<T>(&self, body: impl FnOnce() -> T) -> T {
        profiler_run_interpreter(|stack_address| {
            let mut calls = self.0.borrow_mut();
            let _restore = RestoreOnDrop {
                frames: self,
                entered_before: std::mem::replace(&mut calls.entered_at, stack_address),
                depth: calls.active.len(),
            };
            drop(calls);
            body()
        })
    }

    #[cfg(test)]
    pub(crate) fn depth(&self) -> usize {
        self.0.borrow().active.len()
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
        calls.active.truncate(self.depth);
        calls.entered_at = self.entered_before;
    }
}

impl Calls {
    fn handle_event(&mut self, lua: &Lua, debug: &Debug<'_>) {
        match debug.event() {
            DebugEvent::Count => self.set_line(debug.current_line()),
            DebugEvent::Call => {
                let line_of_caller = lua.inspect_stack(1, |caller| caller.current_line());
                self.set_line(line_of_caller.flatten());
                self.push(debug);
            }
            DebugEvent::TailCall => {
                self.active.pop();
                self.push(debug);
            }
            DebugEvent::Ret => {
                let returning = debug.function().to_pointer();
                // If this function caught an error, that error has ended the calls that it had
                // made.
                let is_returning = |call: &Call| call.function == returning;
                if let Some(index) = self.active.iter().rposition(is_returning) {
                    self.active.truncate(index);
                }
            }
            DebugEvent::Line | DebugEvent::Unknown(_) => {}
        }
    }

    /// Sets the line of the innermost call. A built-in function has none.
    fn set_line(&self, line: Option<usize>) {
        if let (Some(call), Some(line)) = (self.active.last(), line) {
            call.frame.set_line(line as u32);
        }
    }

    fn push(&mut self, debug: &Debug<'_>) {
        let script_function = self.callee(debug);
        let entered_at = self.entered_at;
        self.active.push(Call {
            function: debug.function().to_pointer(),
            frame: AutoProfilerScriptFrame::with_stack_address(script_function, entered_at),
        });
    }

    /// Returns the function that is called. Those of the script are known by the line at which they
    /// begin, Lua's built-in functions by the name that their caller uses.
    fn callee(&self, debug: &Debug<'_>) -> ScriptFunction {
        let source = debug.source();
        if source.what == "C" {
            let names = debug.names();
            let name = names.name.as_deref().unwrap_or("(unnamed)");
            return profiler_register_script_function(name, "[C]", 0, 0);
        }
        let line = source.line_defined.unwrap_or(0);
        *self.functions.get(line).unwrap_or(&self.functions[0])
    }
}

/// Returns the name of the function that `line` defines. Lua's functions are values without a name.
fn defined_name(line: &str) -> &str {
    let name = line
        .split_once("function ")
        .and_then(|(_, rest)| rest.split_once('('));
    name.map_or("(anonymous)", |(name, _)| name.trim())
}
