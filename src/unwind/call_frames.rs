//! Call frame information of a module: as a rule where one can hold it, else evaluated as it stands.
//!
//! Every register is followed, expressions read from the stack's copy, and what the information does not give is not
//! known. So stack realignment, procedure linkage tables, signal frames and stack probes are exact.

use std::ops::Range;

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, EvaluationResult,
    FrameDescriptionEntry, Location, NativeEndian, ParsedEhFrameHdr, Register, RegisterRule,
    UnwindContext, UnwindExpression, UnwindSection, UnwindTableRow, Value,
};

use crate::platform::ModuleImage;
use crate::unwind::native_stack::StackCopy;
use crate::unwind::register_file::{
    FP, HAS_LINK_REGISTER, RETURN_ADDRESS, RegisterFile, SP, without_signature,
};
use crate::unwind::rule::{Places, Rule};

type Bytes<'a> = EndianSlice<'a, NativeEndian>;
type Row = UnwindTableRow<usize>;

/// An expression that needs more steps than this is broken.
const MAX_STEPS: u32 = 1000;

/// The call frame information of a module.
pub(super) struct CallFrames<'a> {
    eh_frame: EhFrame<Bytes<'a>>,
    header: ParsedEhFrameHdr<Bytes<'a>>,
    bases: BaseAddresses,
}

/// Where a caller goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Caller {
    pub(super) address: u64,
    /// Whether it was interrupted there, by a signal, and did not call.
    pub(super) exact: bool,
}

/// Why a frame's caller is not had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NoCaller {
    /// There is none.
    Root,
    /// It hangs on a register that is not known here.
    UnknownRegister,
    /// What should tell is not readable or makes no sense.
    Broken,
}

impl<'a> CallFrames<'a> {
    pub(super) fn of(module: &'a ModuleImage) -> Option<Self> {
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

    /// The function that an address lies in, as far as call frame information tells.
    pub(super) fn function_at(&self, address: u64) -> Option<Range<u64>> {
        let entry = self.entry_at(address)?;
        Some(entry.initial_address()..entry.end_address())
    }

    /// The rule of an address; `None` when nothing is said of it.
    pub(super) fn rule_at(&self, address: u64, context: &mut UnwindContext<usize>) -> Option<Rule> {
        let entry = self.entry_at(address)?;
        let row = entry
            .unwind_info_for_address(&self.eh_frame, &self.bases, context, address)
            .ok()?;
        if entry.is_signal_trampoline() {
            return Some(Rule::Evaluate);
        }
        Some(to_rule(row).unwrap_or(Rule::Evaluate))
    }

    /// Evaluates what is said of `address`; turns the frame's registers into its caller's.
    pub(super) fn follow(
        &self,
        address: u64,
        exact: bool,
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
            address: address + u64::from(!exact),
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
        for (register, kept) in RegisterFile::all() {
            let rule = row.register(register);
            let value = match (register, &rule) {
                (SP, None | Some(RegisterRule::SameValue)) => Ok(cfa),
                _ => frame.value_of(register, rule, kept, cfa),
            };
            callers.set(register, value.ok());
        }
        let caller = Caller {
            address: without_signature(caller_address),
            exact: is_signal,
        };
        // A frame that has kept nothing yet; `vfork` keeps its return address in a register for good.
        let may_stay = exact && frame.address != caller.address;
        let sp = callers.get(SP).ok_or(NoCaller::UnknownRegister)?;
        let advances = sp > registers.sp() || (sp == registers.sp() && may_stay);
        // A signal's handler may run on a stack of its own, which can lie anywhere.
        if !advances && !is_signal {
            return Err(NoCaller::Broken);
        }
        *registers = callers;
        Ok(caller)
    }
}

/// A row as a rule, if one can hold it.
fn to_rule(row: &Row) -> Option<Rule> {
    let words = |bytes: i64| (bytes % 8 == 0).then_some(bytes / 8);
    let return_address = match row.register(RETURN_ADDRESS) {
        Some(RegisterRule::Undefined) => return Some(Rule::Root),
        Some(RegisterRule::Offset(bytes)) => i16::try_from(words(bytes)?)
            .ok()
            .filter(|&words| words != 0)?,
        None | Some(RegisterRule::SameValue) if HAS_LINK_REGISTER => 0,
        _ => return None,
    };
    let fp = match row.register(FP) {
        None | Some(RegisterRule::SameValue) => 0,
        Some(RegisterRule::Offset(bytes)) => i16::try_from(words(bytes)?)
            .ok()
            .filter(|&words| words != 0)?,
        _ => return None,
    };
    if row.register(SP).is_some() {
        return None;
    }
    let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else {
        return None;
    };
    let places = Places {
        frame: u16::try_from(words(offset)?).ok()?,
        fp,
        return_address,
    };
    match register {
        SP => Some(Rule::FromStackPointer(places)),
        FP => Some(Rule::FromFramePointer(places)),
        _ => None,
    }
}

/// What the rules of a row are evaluated with.
struct Frame<'a, 'b> {
    frames: &'b CallFrames<'a>,
    encoding: gimli::Encoding,
    /// Where the frame goes on.
    address: u64,
    registers: &'b RegisterFile,
    stack: StackCopy<'b>,
}

impl Frame<'_, '_> {
    fn register(&self, register: Register) -> Result<u64, NoCaller> {
        if register == RETURN_ADDRESS && !HAS_LINK_REGISTER {
            // Procedure linkage tables ask for it.
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

    /// What a register holds in the caller; without a rule, the same if the ABI has it `kept`.
    fn value_of(
        &self,
        register: Register,
        rule: Option<RegisterRule<usize>>,
        kept: bool,
        cfa: u64,
    ) -> Result<u64, NoCaller> {
        match rule {
            None if kept => self.register(register),
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
        evaluation.set_max_iterations(MAX_STEPS);
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
