//! Step 7 of 12: unwinds a copied stack, by call frame information where that exists.

use std::collections::HashMap;

use gimli::UnwindContext;

use crate::platform::{ModuleImage, Registers};
use crate::types::{CodeAddress, StackAddress, TimeStamp};
use crate::unwind::call_frames::{CallFrames, Caller, NoCaller};
use crate::unwind::code_map::CodeMap;
use crate::unwind::frame_pointer::walk::{
    CallProof, call_with_result_at, direct_callees, follow_frame, has_fixed_frame,
    shape_in_function, shape_in_generated,
};
use crate::unwind::function_bounds::FunctionBounds;
use crate::unwind::generated_code::KnownCode;
use crate::unwind::module_table::ModuleTable;
use crate::unwind::native_stack::{Captured, NativeFrame, NativeStack, RegisterFile, StackCopy};
use crate::unwind::rules::{CodeShape, Rule, RuleCache, RuleKey};

/// Maximum number of frames; a deeper stack is truncated at its older end.
pub(crate) const MAX_FRAMES: usize = 16 << 10;

/// The registers that a walk tracks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TrackedRegisters {
    /// Stack pointer and frame pointer, by cached rules: enough for nearly all code.
    Pointers,
    /// All registers, by evaluating the call frame information of each frame. Cost: some µs per
    /// frame.
    AllRegisters,
}

/// Unwinds copied stacks of this process.
pub(crate) struct Unwinder {
    modules: ModuleTable,
    rules: RuleCache,
    code: KnownCode,
    /// Functions by the start address of their module, for modules in which an address without call
    /// frame information occurred.
    functions: HashMap<u64, FunctionBounds>,
    /// Whether a function's frame has a fixed size, by the function's address.
    fixed_frames: HashMap<u64, bool>,
    context: UnwindContext<usize>,
}

impl Caller {
    /// Returns an address inside the instruction that runs or calls.
    fn lookup_address(self) -> u64 {
        self.address.wrapping_sub(u64::from(!self.is_pc))
    }

    fn key(self) -> RuleKey {
        RuleKey::new(self.lookup_address(), self.is_pc)
    }

    /// Converts to a frame of a stack. Names are looked up one byte before the address of each
    /// frame but the innermost, because that is normally a return address. A frame that a signal
    /// interrupted has no return address, and a signal trampoline made no call: the kernel lets the
    /// handler return to its first instruction. So one is added to the address of both, to
    /// compensate.
    fn to_frame(self, rule: Rule, sp: u64) -> NativeFrame {
        let is_next_instruction = self.is_pc || rule == Rule::SignalTrampoline;
        NativeFrame {
            address: CodeAddress::new(self.address.wrapping_add(is_next_instruction.into())),
            stack_address: StackAddress(sp),
        }
    }
}

impl Unwinder {
    /// Creates an unwinder that knows the modules loaded now, if there is memory for their list. Waits
    /// for the loader, so the caller holds no lock. Cost: a few hundred µs.
    pub(crate) fn new() -> Self {
        let mut unwinder = Self::with_modules(ModuleTable::default());
        unwinder.refresh_modules();
        unwinder
    }

    /// Creates an unwinder that continues a list of modules.
    pub(crate) fn with_modules(modules: ModuleTable) -> Self {
        Self {
            modules,
            rules: RuleCache::new(),
            code: KnownCode::new(),
            functions: HashMap::new(),
            fixed_frames: HashMap::new(),
            context: UnwindContext::new(),
        }
    }

    /// Checks whether any module was loaded or unloaded since the last refresh.
    pub(crate) fn check_modules(&mut self) -> bool {
        self.modules.check()
    }

    /// Updates the list of modules. Keeps everything cached for modules that are still loaded.
    /// Returns false without enough memory for the list; the next check asks for a refresh again.
    pub(crate) fn refresh_modules(&mut self) -> bool {
        if !self.modules.refresh() {
            return false;
        }
        for gone in self.modules.gone() {
            self.rules.forget(&gone.range);
            self.functions.remove(&gone.range.start);
            self.fixed_frames
                .retain(|function, _| !gone.range.contains(function));
        }
        true
    }

    pub(crate) fn modules(&self) -> &ModuleTable {
        &self.modules
    }

    /// Returns the generated code that `/tmp/perf-PID.map` lists, if it grew since the last call.
    pub(crate) fn changed_perf_map(&mut self) -> Option<CodeMap> {
        self.code.changed_perf_map()
    }

    /// Limits the size of the code that `/tmp/perf-PID.map` lists, in bytes of memory.
    pub(crate) fn limit_perf_map(&mut self, max_bytes: u64) {
        self.code.limit_perf_map(max_bytes);
    }

    /// Returns the size in memory of the code that `/tmp/perf-PID.map` lists, and how much of the
    /// file is left out, in bytes.
    pub(crate) fn perf_map_bytes(&self) -> (u64, u64) {
        self.code.perf_map_bytes()
    }

    /// Checks for module changes before a capture made at `time` is unwound, unless a check took
    /// place after that time.
    fn check_modules_since(&mut self, time: TimeStamp) {
        if !self.modules.was_checked_after(time) {
            self.modules.check();
        }
    }

    /// Fills `out` with the innermost frame only.
    pub(crate) fn unwind_innermost(&mut self, captured: &Captured<'_>, out: &mut NativeStack) {
        out.frames.clear();
        out.truncated = false;
        out.frames.push(innermost_frame(&captured.registers));
        self.check_modules_since(captured.time);
        self.cut_where_doubtful(captured.time, out);
    }

    /// Fills `out` with the frames of a captured stack.
    pub(crate) fn unwind(&mut self, captured: &Captured<'_>, out: &mut NativeStack) {
        self.check_modules_since(captured.time);
        let mut walk = |tracked| self.walk(&captured.registers, captured.stack, out, tracked);
        // Frames based on a register that the rules do not track are rare, so the walk simply
        // starts again.
        if walk(TrackedRegisters::Pointers) == NoCaller::UnknownRegister {
            walk(TrackedRegisters::AllRegisters);
        }
        self.cut_where_doubtful(captured.time, out);
    }

    /// Truncates the stack at the first frame whose address belonged, or may have belonged, to
    /// other code when the stack was copied. A stack that is cut for this reason, or because the
    /// list of modules is old, is doubtful.
    fn cut_where_doubtful(&self, time: TimeStamp, out: &mut NativeStack) {
        out.doubtful = false;
        if !self.modules.may_be_doubtful(time) {
            return;
        }
        let is_doubtful = |(index, frame): (usize, &NativeFrame)| {
            self.modules
                .is_doubtful(frame.address.get().wrapping_sub(u64::from(index > 0)), time)
        };
        if let Some(first) = out.frames.iter().enumerate().position(is_doubtful) {
            out.frames.truncate(first);
            out.truncated = true;
            out.doubtful = true;
        } else if out.truncated && self.modules.is_stale() {
            // The walk may have ended in a module that the list does not have yet.
            out.doubtful = true;
        }
    }

    /// Returns whether the frame's function always has a frame of the same size at this
    /// instruction. If so, the distance between stack pointer and frame pointer can be reused from
    /// another sample.
    pub(crate) fn has_fixed_frame(&mut self, frame: &NativeFrame, innermost: bool) -> bool {
        let address = frame.address.get().wrapping_sub(u64::from(!innermost));
        let Some(module) = self.modules.find(address) else {
            return false;
        };
        let function = CallFrames::of(module).and_then(|frames| frames.function_at(address));
        let Some(function) = function else {
            return false;
        };
        *self
            .fixed_frames
            .entry(function.start)
            .or_insert_with(|| has_fixed_frame(&function))
    }

    /// Walks to the root or as far as possible, and returns why the walk ended.
    fn walk(
        &mut self,
        registers: &Registers,
        stack: StackCopy<'_>,
        out: &mut NativeStack,
        tracked: TrackedRegisters,
    ) -> NoCaller {
        out.frames.clear();
        out.truncated = true;
        let mut frame = Caller {
            address: registers.pc,
            is_pc: true,
        };
        let innermost = innermost_frame(registers);
        let mut registers = RegisterFile::new(registers);
        out.frames.push(innermost);
        let Some(mut rule) = self.rule_of(frame) else {
            return NoCaller::Broken;
        };
        while out.frames.len() < MAX_FRAMES {
            let caller = match rule {
                Rule::FromStackPointer(offsets) if tracked == TrackedRegisters::Pointers => {
                    let sp = registers.sp();
                    returned_to(offsets.follow(sp, &mut registers, stack, frame.is_pc))
                }
                Rule::FromFramePointer(offsets) if tracked == TrackedRegisters::Pointers => {
                    match registers.fp() {
                        Some(fp) => {
                            returned_to(offsets.follow(fp, &mut registers, stack, frame.is_pc))
                        }
                        None => Err(NoCaller::UnknownRegister),
                    }
                }
                Rule::Root => Err(NoCaller::Root),
                Rule::Uncovered(_) | Rule::Generated => {
                    self.follow_shape(rule, frame, &mut registers, stack)
                }
                Rule::JumpsToHandler => Err(NoCaller::Broken),
                _ => self.evaluate(frame, &mut registers, stack),
            };
            let caller = match caller {
                Ok(caller) => caller,
                Err(end) => {
                    out.truncated = end != NoCaller::Root;
                    return end;
                }
            };
            let Some(callers_rule) = self.rule_of(caller) else {
                return NoCaller::Broken;
            };
            out.frames
                .push(caller.to_frame(callers_rule, registers.sp()));
            (frame, rule) = (caller, callers_rule);
        }
        NoCaller::Broken
    }

    /// Returns the rule of a frame, or `None` if its address lies outside of all known code.
    #[inline]
    fn rule_of(&mut self, frame: Caller) -> Option<Rule> {
        match self.rules.get(frame.key()) {
            // The application may have generated code into memory of a module itself, even after the
            // address occurred in a stack.
            Some(Rule::Uncovered(_)) if self.is_generated(frame, false) => Some(Rule::Generated),
            Some(rule) => Some(rule),
            None => self.make_rule(frame),
        }
    }

    /// Returns whether the frame is of generated code. `may_poll` allows reading the perf map.
    fn is_generated(&mut self, frame: Caller, may_poll: bool) -> bool {
        self.code.find(frame.lookup_address(), may_poll).is_some()
    }

    #[cold]
    fn make_rule(&mut self, frame: Caller) -> Option<Rule> {
        let address = frame.lookup_address();
        let Some(module) = self.modules.find(address) else {
            // Not cached, because generated code changes.
            return self.is_generated(frame, true).then_some(Rule::Generated);
        };
        let context = &mut self.context;
        let covered =
            CallFrames::of(module).and_then(|frames| match frames.rule_at(address, context)? {
                Rule::JumpsToHandler if has_saved_registers(&frames, frame, context) => {
                    Some(Rule::Evaluate)
                }
                rule => Some(rule),
            });
        let rule = covered.unwrap_or_else(|| {
            if self.code.find(address, false).is_some() {
                return Rule::Generated;
            }
            let bounds = bounds_of(module, &mut self.functions);
            if !frame.is_pc
                && bounds.is_start_routine(address)
                && call_with_result_at(frame.address).is_some_and(|call| bounds.is_exit(call))
            {
                return Rule::Root;
            }
            let is_linker_owned = |word| bounds.is_linker_owned(word);
            let function = bounds.start_of(address);
            Rule::Uncovered(shape_in_function(
                frame.address,
                frame.is_pc,
                function,
                is_linker_owned,
            ))
        });
        if rule != Rule::Generated {
            self.rules.put(frame.key(), rule);
        }
        Some(rule)
    }

    fn evaluate(
        &mut self,
        frame: Caller,
        registers: &mut RegisterFile,
        stack: StackCopy<'_>,
    ) -> Result<Caller, NoCaller> {
        let address = frame.lookup_address();
        let module = self.modules.find(address).ok_or(NoCaller::Broken)?;
        let frames = CallFrames::of(module).ok_or(NoCaller::Broken)?;
        frames.follow(address, frame.is_pc, registers, stack, &mut self.context)
    }

    /// Follows a frame of code without call frame information.
    fn follow_shape(
        &mut self,
        rule: Rule,
        frame: Caller,
        registers: &mut RegisterFile,
        stack: StackCopy<'_>,
    ) -> Result<Caller, NoCaller> {
        let (shape, proof) = match rule {
            Rule::Uncovered(shape @ CodeShape::Framed { function }) => {
                let start = frame.address - u64::from(function);
                (shape, CallProof::CallTo(start))
            }
            Rule::Uncovered(shape) => (shape, CallProof::AnyCall),
            _ => {
                let code = self.code.find(frame.lookup_address(), false);
                let start = code.ok_or(NoCaller::Broken)?.range.start;
                let shape = shape_in_generated(frame.address, frame.is_pc, start);
                (shape, CallProof::AnyCall)
            }
        };
        let is_code = |address| {
            self.modules.find(address).is_some() || self.code.find(address, false).is_some()
        };
        let is_linker_owned = |address| {
            let module = self.modules.find(address);
            module.is_some_and(|module| {
                bounds_of(module, &mut self.functions).is_linker_owned(address)
            })
        };
        returned_to(follow_frame(
            shape,
            proof,
            frame.is_pc,
            registers,
            stack,
            is_code,
            is_linker_owned,
        ))
    }
}

/// Returns whether a function that will jump to an exception's handler still has its caller's
/// registers and its return address where it saved them.
///
/// Before the jump, libgcc calls `uw_install_context_1`, which replaces them with the handler's, and
/// then `_Unwind_DebugHook`. These calls follow each other without a branch. So if both are still to
/// come, the saved values are unchanged. For an interrupted frame, one more call is required, in
/// case the first one is inlined and calls `memcpy`.
fn has_saved_registers(
    frames: &CallFrames<'_>,
    frame: Caller,
    context: &mut UnwindContext<usize>,
) -> bool {
    let Some(jump) = frames.handler_jump_after(frame.lookup_address(), context) else {
        return false;
    };
    let is_function = |address: &u64| {
        frames
            .function_at(*address)
            .is_some_and(|function| function.start == *address)
    };
    let calls = direct_callees(&(frame.address..jump)).into_iter();
    calls.filter(is_function).count() >= if frame.is_pc { 3 } else { 2 }
}

/// Returns the caller with this return address, if it was found.
fn returned_to(address: Option<u64>) -> Result<Caller, NoCaller> {
    let address = address.ok_or(NoCaller::Broken)?;
    Ok(Caller {
        address,
        is_pc: false,
    })
}

fn innermost_frame(registers: &Registers) -> NativeFrame {
    NativeFrame {
        address: CodeAddress::new(registers.pc),
        stack_address: StackAddress(registers.sp),
    }
}

/// Returns the functions of a module, which are read on first use.
fn bounds_of<'a>(
    module: &ModuleImage,
    known: &'a mut HashMap<u64, FunctionBounds>,
) -> &'a FunctionBounds {
    known
        .entry(module.range.start)
        .or_insert_with(|| FunctionBounds::read(module))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::{TestFolder, TestLibrary, monotonic_now};

    #[test]
    fn stack_in_a_module_that_is_not_listed_yet_is_doubtful() {
        let mut unwinder = Unwinder::new();
        let folder = TestFolder::new("not-listed-yet");
        let plugin = TestLibrary::load(&folder.compile("plugin", "function", &[]));
        let mut stack = NativeStack::default();
        let mut unwind = |unwinder: &mut Unwinder| {
            let registers = Registers {
                pc: plugin.address(),
                ..Registers::default()
            };
            let captured = Captured {
                registers,
                stack: StackCopy {
                    start: 0,
                    bytes: &[],
                },
                time: monotonic_now(),
            };
            unwinder.unwind(&captured, &mut stack);
            (stack.truncated, stack.doubtful)
        };
        assert_eq!(unwind(&mut unwinder), (true, true));
        // Other tests may load libraries, too.
        let is_certain = (0..100).any(|_| {
            unwinder.refresh_modules();
            unwind(&mut unwinder) == (true, false)
        });
        assert!(is_certain, "a stack without memory is only truncated");
        plugin.close();
    }
}
