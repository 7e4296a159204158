//! Call frame information of a module: converted to a rule where possible, otherwise evaluated.
//!
//! The evaluation tracks all registers, and its expressions read the stack's copy. A register that
//! the information does not define is unknown. So stack realignment, procedure linkage tables,
//! signal frames and stack probes are unwound exactly.

use std::ops::Range;

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, EvaluationResult,
    FrameDescriptionEntry, Location, NativeEndian, ParsedEhFrameHdr, Register, RegisterRule,
    UnwindContext, UnwindExpression, UnwindSection, UnwindTableRow, Value,
};

use crate::platform::ModuleImage;
use crate::unwind::native_stack::{
    EXCEPTION_DATA, FP, HAS_LINK_REGISTER, RETURN_ADDRESS, RegisterFile, SP, StackCopy,
    strip_pointer_signature,
};
use crate::unwind::rules::{FrameOffsets, Rule};

type Bytes<'a> = EndianSlice<'a, NativeEndian>;
type Row = UnwindTableRow<usize>;

/// Maximum number of evaluation steps; an expression that needs more is treated as malformed.
const MAX_EXPRESSION_STEPS: u32 = 1000;

/// The call frame information of a module.
pub(crate) struct CallFrames<'a> {
    eh_frame: EhFrame<Bytes<'a>>,
    header: ParsedEhFrameHdr<Bytes<'a>>,
    bases: BaseAddresses,
}

/// The code address of a caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Caller {
    pub(crate) address: u64,
    /// Whether `address` is the next instruction of an interrupted frame, not a return address.
    pub(crate) is_pc: bool,
}

/// Reason why a frame's caller cannot be found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoCaller {
    /// The frame is the root and has no caller.
    Root,
    /// The caller depends on a register whose value is unknown.
    UnknownRegister,
    /// The required information or stack memory is missing, unreadable or inconsistent.
    Broken,
}

impl<'a> CallFrames<'a> {
    pub(crate) fn of(module: &'a ModuleImage) -> Option<Self> {
        let unwind = module.unwind_sections()?;
        let bases = BaseAddresses::default()
            .set_eh_frame_hdr(unwind.eh_frame_hdr_address)
            .set_eh_frame(unwind.eh_frame_address);
        let mut eh_frame = EhFrame::from(EndianSlice::new(&unwind.eh_frame, NativeEndian));
        eh_frame.set_address_size(8);
        let header = EhFrameHdr::from(EndianSlice::new(&unwind.eh_frame_hdr, NativeEndian));
        let header = header.parse(&bases, 8).ok()?;
        Some(Self {
            eh_frame,
            header,
            bases,
        })
    }

    fn entry_at(&self, address: u64) -> Option<FrameDescriptionEntry<Bytes<'a>>> {
        let table = self.header.table()?;
        table
            .fde_for_address(
                &self.eh_frame,
                &self.bases,
                address,
                EhFrame::cie_from_offset,
            )
            .ok()
    }

    /// Returns the range of the function that contains `address`, according to call frame
    /// information.
    pub(crate) fn function_at(&self, address: u64) -> Option<Range<u64>> {
        let entry = self.entry_at(address)?;
        Some(entry.initial_address()..entry.end_address())
    }

    /// Returns whether call frame information marks `address` as a signal trampoline.
    pub(crate) fn is_signal_trampoline(&self, address: u64) -> bool {
        self.entry_at(address)
            .is_some_and(|entry| entry.is_signal_trampoline())
    }

    /// Returns the rule of an address, or `None` if call frame information does not cover it.
    pub(crate) fn rule_at(&self, address: u64, context: &mut UnwindContext<usize>) -> Option<Rule> {
        let entry = self.entry_at(address)?;
        let row = entry
            .unwind_info_for_address(&self.eh_frame, &self.bases, context, address)
            .ok()?;
        if entry.is_signal_trampoline() {
            return Some(Rule::SignalTrampoline);
        }
        if saves_exception_data(row) {
            return Some(Rule::JumpsToHandler);
        }
        Some(to_rule(row).unwrap_or(Rule::Evaluate))
    }

    /// Returns the address after `address` where the function begins to jump to an exception's
    /// handler. There, its frame is found by a register other than the stack pointer and the frame
    /// pointer.
    pub(crate) fn handler_jump_after(
        &self,
        address: u64,
        context: &mut UnwindContext<usize>,
    ) -> Option<u64> {
        let entry = self.entry_at(address)?;
        let mut rows = entry.rows(&self.eh_frame, &self.bases, context).ok()?;
        while let Some(row) = rows.next_row().ok()? {
            let is_jump = match row.cfa() {
                CfaRule::RegisterAndOffset { register, .. } => ![SP, FP].contains(register),
                CfaRule::Expression(_) => false,
            };
            if is_jump && row.start_address() > address {
                return Some(row.start_address());
            }
        }
        None
    }

    /// Evaluates the call frame information of `address` and changes `registers` to the caller's.
    pub(crate) fn follow(
        &self,
        address: u64,
        is_pc: bool,
        registers: &mut RegisterFile,
        stack: StackCopy<'_>,
        context: &mut UnwindContext<usize>,
    ) -> Result<Caller, NoCaller> {
        let entry = self.entry_at(address).ok_or(NoCaller::Broken)?;
        let row = entry.unwind_info_for_address(&self.eh_frame, &self.bases, context, address);
        let row = row.map_err(|_| NoCaller::Broken)?;
        if row.register(RETURN_ADDRESS) == Some(RegisterRule::Undefined) {
            return Err(NoCaller::Root);
        }
        let frame = Frame {
            frames: self,
            encoding: entry.cie().encoding(),
            address: address + u64::from(!is_pc),
            registers,
            stack,
        };
        let cfa = frame.cfa(row.cfa())?;
        let caller_address = match row.register(RETURN_ADDRESS) {
            None | Some(RegisterRule::SameValue) if !HAS_LINK_REGISTER => {
                return Err(NoCaller::Broken);
            }
            rule => frame.value_of(RETURN_ADDRESS, rule, true, cfa)?,
        };
        let is_signal = entry.is_signal_trampoline();
        let mut callers = *registers;
        for (register, callee_saved) in RegisterFile::all() {
            let rule = row.register(register);
            let value = match (register, &rule) {
                (SP, None | Some(RegisterRule::SameValue)) => Ok(cfa),
                _ => frame.value_of(register, rule, callee_saved, cfa),
            };
            callers.set(register, value.ok());
        }
        let caller = Caller {
            address: strip_pointer_signature(caller_address),
            is_pc: is_signal,
        };
        // An interrupted frame that has not saved anything yet may have its caller's stack pointer.
        // So may `vfork`, which keeps its return address in a register.
        let may_stay = is_pc && frame.address != caller.address;
        let sp = callers.get(SP).ok_or(NoCaller::UnknownRegister)?;
        let advances = sp > registers.sp() || (sp == registers.sp() && may_stay);
        // A signal handler may run on an alternate stack, which can be at any address.
        if !advances && !is_signal {
            return Err(NoCaller::Broken);
        }
        *registers = callers;
        Ok(caller)
    }
}

/// Returns whether the function saves the registers that pass data to an exception's handler, and no
/// other caller-saved register after them. Only functions with `__builtin_eh_return` do.
fn saves_exception_data(row: &Row) -> bool {
    let is_saved = |number| {
        matches!(
            row.register(Register(number)),
            Some(RegisterRule::Offset(_))
        )
    };
    (0..EXCEPTION_DATA).all(is_saved) && !is_saved(EXCEPTION_DATA)
}

/// Converts a row to a rule, if a rule can express it.
fn to_rule(row: &Row) -> Option<Rule> {
    let words = |bytes: i64| (bytes % 8 == 0).then_some(bytes / 8);
    let saved_at = |bytes| i16::try_from(words(bytes)?).ok().filter(|&at| at != 0);
    let return_address = match row.register(RETURN_ADDRESS) {
        Some(RegisterRule::Undefined) => return Some(Rule::Root),
        Some(RegisterRule::Offset(bytes)) => saved_at(bytes)?,
        None | Some(RegisterRule::SameValue) if HAS_LINK_REGISTER => 0,
        _ => return None,
    };
    let fp = match row.register(FP) {
        None | Some(RegisterRule::SameValue) => 0,
        Some(RegisterRule::Offset(bytes)) => saved_at(bytes)?,
        _ => return None,
    };
    if row.register(SP).is_some() {
        return None;
    }
    let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else {
        return None;
    };
    let offsets = FrameOffsets {
        frame: u16::try_from(words(offset)?).ok()?,
        fp,
        return_address,
    };
    match register {
        SP => Some(Rule::FromStackPointer(offsets)),
        FP => Some(Rule::FromFramePointer(offsets)),
        _ => None,
    }
}

/// A frame, against which the register rules of a row are evaluated.
struct Frame<'a, 'b> {
    frames: &'b CallFrames<'a>,
    encoding: gimli::Encoding,
    /// Next instruction or return address of the frame.
    address: u64,
    registers: &'b RegisterFile,
    stack: StackCopy<'b>,
}

impl Frame<'_, '_> {
    fn register(&self, register: Register) -> Result<u64, NoCaller> {
        if register == RETURN_ADDRESS && !HAS_LINK_REGISTER {
            // The expressions of procedure linkage tables use it.
            return Ok(self.address);
        }
        self.registers
            .get(register)
            .ok_or(NoCaller::UnknownRegister)
    }

    fn word_at(&self, address: u64) -> Result<u64, NoCaller> {
        self.stack.word_at(address).ok_or(NoCaller::Broken)
    }

    fn cfa(&self, rule: &CfaRule<usize>) -> Result<u64, NoCaller> {
        match rule {
            CfaRule::RegisterAndOffset { register, offset } => {
                Ok(self.register(*register)?.wrapping_add_signed(*offset))
            }
            CfaRule::Expression(expression) => self.evaluate(expression, None),
        }
    }

    /// Returns the value of a register in the caller. Without a rule, a `callee_saved` register is
    /// unchanged.
    fn value_of(
        &self,
        register: Register,
        rule: Option<RegisterRule<usize>>,
        callee_saved: bool,
        cfa: u64,
    ) -> Result<u64, NoCaller> {
        match rule {
            None if callee_saved => self.register(register),
            Some(RegisterRule::SameValue) => self.register(register),
            Some(RegisterRule::Offset(offset)) => self.word_at(cfa.wrapping_add_signed(offset)),
            Some(RegisterRule::ValOffset(offset)) => Ok(cfa.wrapping_add_signed(offset)),
            Some(RegisterRule::Register(other)) => self.register(other),
            Some(RegisterRule::Expression(expression)) => {
                self.word_at(self.evaluate(&expression, Some(cfa))?)
            }
            Some(RegisterRule::ValExpression(expression)) => self.evaluate(&expression, Some(cfa)),
            Some(RegisterRule::Constant(value)) => Ok(value),
            _ => Err(NoCaller::UnknownRegister),
        }
    }

    fn evaluate(
        &self,
        expression: &UnwindExpression<usize>,
        first: Option<u64>,
    ) -> Result<u64, NoCaller> {
        let broken = |_| NoCaller::Broken;
        let expression = expression.get(&self.frames.eh_frame).map_err(broken)?;
        let mut evaluation = expression.evaluation(self.encoding);
        evaluation.set_max_iterations(MAX_EXPRESSION_STEPS);
        if let Some(first) = first {
            evaluation.set_initial_value(first);
        }
        let mut state = evaluation.evaluate().map_err(broken)?;
        loop {
            state = match state {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresRegister { register, .. } => evaluation
                    .resume_with_register(Value::Generic(self.register(register)?))
                    .map_err(broken)?,
                EvaluationResult::RequiresMemory {
                    address,
                    size: 8,
                    space: None,
                    ..
                } => evaluation
                    .resume_with_memory(Value::Generic(self.word_at(address)?))
                    .map_err(broken)?,
                _ => return Err(NoCaller::Broken),
            };
        }
        match evaluation.as_result().last().map(|piece| &piece.location) {
            Some(Location::Address { address }) => Ok(*address),
            _ => Err(NoCaller::Broken),
        }
    }
}
