//! Stop 7 of 12: the copy is unwound by call frame information, on the sampler's own time.

use std::collections::HashMap;
use std::sync::Arc;

use gimli::UnwindContext;

use crate::base::{CodeAddress, StackAddress, TimeStamp};
use crate::platform::{ModuleImage, Registers};
use crate::unwind::call_frames::{CallFrames, Caller, NoCaller};
use crate::unwind::code_map::CodeMap;
use crate::unwind::frame_pointer::{Believe, follow_frame};
use crate::unwind::function_bounds::FunctionBounds;
use crate::unwind::generated_code::KnownCode;
use crate::unwind::machine_code::{has_fixed_frame, shape_in_function, shape_in_generated};
use crate::unwind::module_table::ModuleTable;
use crate::unwind::native_stack::{Captured, NativeFrame, NativeStack, StackCopy};
use crate::unwind::register_file::RegisterFile;
use crate::unwind::rule::{CodeShape, Rule};
use crate::unwind::rule_cache::{RuleCache, RuleKey};

/// A stack deeper than this is cut at its older end.
const MAX_FRAMES: usize = 16 << 10;

/// Which registers a walk follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Follow {
    /// Stack and frame pointer, by the cached rules: enough for nearly all code.
    Pointers,
    /// All, by evaluating what is said of each frame; some µs a frame.
    AllRegisters,
}

/// Unwinds copied stacks of this process.
pub(crate) struct Unwinder {
    modules: ModuleTable,
    rules: RuleCache,
    code: KnownCode,
    /// The functions of modules in which an address without call frame information was met, by the module's start.
    functions: HashMap<u64, FunctionBounds>,
    /// Whether a function's frame has a fixed size, by the function's address.
    fixed_frames: HashMap<u64, bool>,
    context: UnwindContext<usize>,
}

impl Caller {
    /// Where the instruction that runs or calls is.
    fn lookup_address(self) -> u64 {
        self.address.wrapping_sub(u64::from(!self.exact))
    }

    fn key(self) -> RuleKey {
        RuleKey::new(self.lookup_address(), self.exact)
    }

    /// As it stands in a stack, in which every address but the innermost is taken for a return address. One that was
    /// interrupted by a signal is none: it is put where a return to just behind its first byte would lead, so that its
    /// name is looked up at itself.
    fn to_frame(self, sp: u64) -> NativeFrame {
        NativeFrame {
            address: CodeAddress::new(self.address.wrapping_add(u64::from(self.exact))),
            stack_address: StackAddress(sp),
        }
    }
}

impl Unwinder {
    /// An unwinder that knows the modules that are loaded now. A few hundred µs.
    pub(crate) fn new() -> Self {
        let mut unwinder = Self {
            modules: ModuleTable::default(),
            rules: RuleCache::new(),
            code: KnownCode::new(),
            functions: HashMap::new(),
            fixed_frames: HashMap::new(),
            context: UnwindContext::new(),
        };
        unwinder.refresh_modules();
        unwinder
    }

    /// Whether anything was loaded or unloaded since the last refresh.
    pub(crate) fn look_at_modules(&mut self) -> bool {
        self.modules.look()
    }

    /// Follows what was loaded and unloaded. What is known of modules that stay is kept.
    pub(crate) fn refresh_modules(&mut self) {
        self.modules.refresh();
        for gone in self.modules.gone() {
            self.rules.forget(&gone.range);
            self.functions.remove(&gone.range.start);
            self.fixed_frames
                .retain(|function, _| !gone.range.contains(function));
        }
    }

    pub(crate) fn modules(&self) -> &ModuleTable {
        &self.modules
    }

    /// What `/tmp/perf-PID.map` says of generated code, if it says more than at the last call.
    pub(crate) fn changed_perf_map(&mut self) -> Option<Arc<CodeMap>> {
        self.code.changed_perf_map()
    }

    /// Looks what is loaded, if nobody did after a capture of that time was made. To be called before it is unwound.
    fn look_after(&mut self, time: TimeStamp) {
        if !self.modules.has_looked_after(time) {
            self.modules.look();
        }
    }

    /// Fills `out` with the innermost frame alone.
    pub(crate) fn take_innermost(&mut self, captured: &Captured<'_>, out: &mut NativeStack) {
        out.frames.clear();
        out.truncated = false;
        out.frames.push(innermost_frame(&captured.registers));
        self.look_after(captured.time);
        self.cut_where_doubtful(captured.time, out);
    }

    /// Fills `out` with the stack that these registers and bytes are of.
    pub(crate) fn unwind(&mut self, captured: &Captured<'_>, out: &mut NativeStack) {
        let Captured {
            registers,
            stack,
            time,
        } = captured;
        self.look_after(*time);
        // A frame that hangs on a register which the rules do not follow is rare enough to begin again for.
        if self.walk(registers, *stack, out, Follow::Pointers) == NoCaller::UnknownRegister {
            self.walk(registers, *stack, out, Follow::AllRegisters);
        }
        self.cut_where_doubtful(*time, out);
    }

    /// Leaves out what lies where other code was loaded when it was copied, or may have been.
    fn cut_where_doubtful(&self, time: TimeStamp, out: &mut NativeStack) {
        out.doubtful = false;
        if !self.modules.has_doubts(time) {
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
        }
    }

    /// Whether the frame of the function that this frame is of has the same size each time that it is at this instruction,
    /// so that the distance of its stack pointer from its frame pointer is known from another time.
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

    /// Walks to the root, or as far as it goes; gives what ended it.
    fn walk(
        &mut self,
        registers: &Registers,
        stack: StackCopy<'_>,
        out: &mut NativeStack,
        follow: Follow,
    ) -> NoCaller {
        out.frames.clear();
        out.truncated = true;
        let mut frame = Caller {
            address: registers.pc,
            exact: true,
        };
        let innermost = innermost_frame(registers);
        let mut registers = RegisterFile::new(registers);
        out.frames.push(innermost);
        let Some(mut rule) = self.rule_of(frame) else {
            return NoCaller::Broken;
        };
        while out.frames.len() < MAX_FRAMES {
            let caller = match rule {
                Rule::FromStackPointer(places) if follow == Follow::Pointers => places
                    .follow(registers.sp(), &mut registers, stack, frame.exact)
                    .map(|address| Caller {
                        address,
                        exact: false,
                    })
                    .ok_or(NoCaller::Broken),
                Rule::FromFramePointer(places) if follow == Follow::Pointers => registers
                    .fp()
                    .ok_or(NoCaller::UnknownRegister)
                    .and_then(|fp| {
                        places
                            .follow(fp, &mut registers, stack, frame.exact)
                            .ok_or(NoCaller::Broken)
                    })
                    .map(|address| Caller {
                        address,
                        exact: false,
                    }),
                Rule::Root => Err(NoCaller::Root),
                Rule::Uncovered(shape) => {
                    self.follow_uncovered(shape, frame, &mut registers, stack)
                }
                Rule::Generated => self.follow_generated(frame, &mut registers, stack),
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
            out.frames.push(caller.to_frame(registers.sp()));
            (frame, rule) = (caller, callers_rule);
        }
        NoCaller::Broken
    }

    /// The rule of a frame; `None` outside of all known code.
    #[inline]
    fn rule_of(&mut self, frame: Caller) -> Option<Rule> {
        match self.rules.get(frame.key()) {
            Some(rule) => Some(rule),
            None => self.make_rule(frame),
        }
    }

    #[cold]
    fn make_rule(&mut self, frame: Caller) -> Option<Rule> {
        let address = frame.lookup_address();
        let Some(module) = self.modules.find(address) else {
            // Not kept: generated code changes.
            return self
                .code
                .find(address, true)
                .is_some_and(|code| code.live)
                .then_some(Rule::Generated);
        };
        let covered =
            CallFrames::of(module).and_then(|frames| frames.rule_at(address, &mut self.context));
        let rule = covered.unwrap_or_else(|| {
            if self.code.find(address, false).is_some_and(|code| code.live) {
                // Memory of the module's own that code was generated into.
                return Rule::Generated;
            }
            let bounds = bounds_of(module, &mut self.functions);
            let is_linked = |word| bounds.is_linked(word);
            let function = bounds.start_of(address);
            Rule::Uncovered(shape_in_function(
                frame.address,
                frame.exact,
                function,
                is_linked,
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
        frames.follow(address, frame.exact, registers, stack, &mut self.context)
    }

    fn follow_uncovered(
        &mut self,
        shape: CodeShape,
        frame: Caller,
        registers: &mut RegisterFile,
        stack: StackCopy<'_>,
    ) -> Result<Caller, NoCaller> {
        let believe = match shape {
            CodeShape::Framed { function } => Believe::CallTo(frame.address - u64::from(function)),
            _ => Believe::AnyCall,
        };
        self.follow_frame(shape, believe, frame, registers, stack)
    }

    fn follow_generated(
        &mut self,
        frame: Caller,
        registers: &mut RegisterFile,
        stack: StackCopy<'_>,
    ) -> Result<Caller, NoCaller> {
        let code = self
            .code
            .find(frame.lookup_address(), false)
            .ok_or(NoCaller::Broken)?;
        let shape = shape_in_generated(frame.address, frame.exact, code.range.start);
        self.follow_frame(shape, Believe::AnyCall, frame, registers, stack)
    }

    fn follow_frame(
        &mut self,
        shape: CodeShape,
        believe: Believe,
        frame: Caller,
        registers: &mut RegisterFile,
        stack: StackCopy<'_>,
    ) -> Result<Caller, NoCaller> {
        let Self {
            modules,
            code,
            functions,
            ..
        } = self;
        let is_code = |address| {
            modules.find(address).is_some()
                || code.find(address, false).is_some_and(|code| code.live)
        };
        let is_linked = |address| {
            modules
                .find(address)
                .is_some_and(|module| bounds_of(module, functions).is_linked(address))
        };
        follow_frame(
            shape,
            believe,
            frame.exact,
            registers,
            stack,
            is_code,
            is_linked,
        )
        .map(|address| Caller {
            address,
            exact: false,
        })
        .ok_or(NoCaller::Broken)
    }
}

fn innermost_frame(registers: &Registers) -> NativeFrame {
    NativeFrame {
        address: CodeAddress::new(registers.pc),
        stack_address: StackAddress(registers.sp),
    }
}

/// The functions of a module, read when they are first asked for.
fn bounds_of<'a>(
    module: &ModuleImage,
    known: &'a mut HashMap<u64, FunctionBounds>,
) -> &'a FunctionBounds {
    known
        .entry(module.range.start)
        .or_insert_with(|| FunctionBounds::read(module))
}
