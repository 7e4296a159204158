//! Finds the rows of the model's tables that a written thread needs.
//!
//! The model's tables are shared by all threads, and so are those of the format. Only the rows that
//! the written threads refer to are written, in the order of the model.

use crate::export::options::ExportOptions;
use crate::export::run_loops::is_run_loop;
use crate::model::{Frame, FrameId, FunctionId, FunctionKind, ProfileModel, StackId};

/// Marks a row that is not written.
const UNUSED: u32 = u32::MAX;

/// The rows of one table that are written, with their new indices.
#[derive(Default)]
pub(super) struct Rows {
    /// By index in the model.
    new_indices: Vec<u32>,
    /// Indices in the model, in ascending order.
    used: Vec<u32>,
}

impl Rows {
    fn new(count: usize) -> Self {
        Self {
            new_indices: vec![UNUSED; count],
            used: Vec::new(),
        }
    }

    /// Marks a row as used. Returns whether it was not marked before.
    fn mark(&mut self, row: u32) -> bool {
        let index = &mut self.new_indices[row as usize];
        std::mem::replace(index, 0) == UNUSED
    }

    /// Gives the marked rows their new indices.
    fn number(&mut self) {
        for (row, index) in self.new_indices.iter_mut().enumerate() {
            if *index != UNUSED {
                *index = self.used.len() as u32;
                self.used.push(row as u32);
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.used.len()
    }

    /// Returns the indices in the model.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        self.used.iter().copied()
    }

    /// Returns the new index of a row that is written.
    pub(super) fn new_index(&self, row: u32) -> u32 {
        self.new_indices[row as usize]
    }
}

pub(super) struct UsedRows {
    pub(super) stacks: Rows,
    pub(super) frames: Rows,
    pub(super) functions: Rows,
    pub(super) native_symbols: Rows,
    fold: Option<Fold>,
}

impl UsedRows {
    /// Finds the rows that these threads need.
    pub(super) fn of(profile: &ProfileModel, threads: &[usize], options: &ExportOptions) -> Self {
        let mut rows = Self {
            stacks: Rows::new(profile.stack_count()),
            frames: Rows::new(profile.frames().len()),
            functions: Rows::new(profile.functions().len()),
            native_symbols: Rows::new(profile.native_symbols.len()),
            fold: options.folds_runtime.then(|| Fold::of(profile)),
        };
        for &index in threads {
            let thread = &profile.threads[index];
            let sampled = options.rows(profile, thread);
            let sampled = sampled.filter_map(|row| row.sample.stack);
            let causes = thread
                .markers
                .iter()
                .filter_map(|marker| marker.payload?.stack);
            for stack in sampled.chain(causes.map(|(stack, _)| stack)) {
                rows.mark_stack(profile, stack);
            }
        }
        for table in [
            &mut rows.stacks,
            &mut rows.frames,
            &mut rows.functions,
            &mut rows.native_symbols,
        ] {
            table.number();
        }
        rows
    }

    fn mark_stack(&mut self, profile: &ProfileModel, stack: StackId) {
        let mut next = Some(stack);
        while let Some(stack) = next {
            if !self.stacks.mark(stack.0) {
                return;
            }
            let (_, frame) = profile.stack(stack);
            if self.frames.mark(frame.0) {
                let frame = profile.frame(frame);
                self.functions.mark(frame.function.0);
                if let Some(symbol) = frame.native_symbol {
                    self.native_symbols.mark(symbol);
                }
            }
            next = self.prefix(profile, stack);
        }
    }

    /// Returns the prefix that a stack has in the file.
    pub(super) fn prefix(&self, profile: &ProfileModel, stack: StackId) -> Option<StackId> {
        let (prefix, _) = profile.stack(stack);
        match &self.fold {
            Some(fold) => fold.prefix(stack, prefix),
            None => prefix,
        }
    }

    /// Returns the new index of a stack of a written thread.
    pub(super) fn stack(&self, stack: StackId) -> u64 {
        self.stacks.new_index(stack.0).into()
    }

    pub(super) fn frames<'a>(
        &'a self,
        profile: &'a ProfileModel,
    ) -> impl Iterator<Item = &'a Frame> {
        let used = self.frames.used.iter();
        used.map(move |&frame| profile.frame(FrameId(frame)))
    }
}

/// Cuts the stacks so that they begin inside of the runtime's innermost run loop.
struct Fold {
    /// Whether the innermost frame of each stack is a run loop.
    ends_in_run_loop: Vec<bool>,
    /// The outermost stack of each stack plus one, if that is a root frame; else 0.
    roots: Vec<u32>,
}

impl Fold {
    fn of(profile: &ProfileModel) -> Self {
        let functions = (0..profile.functions().len() as u32).map(FunctionId);
        let run_loops: Vec<bool> = functions.map(|id| is_run_loop(profile, id)).collect();
        let mut fold = Self {
            ends_in_run_loop: Vec::with_capacity(profile.stack_count()),
            roots: Vec::with_capacity(profile.stack_count()),
        };
        for stack in (0..profile.stack_count() as u32).map(StackId) {
            let (prefix, frame) = profile.stack(stack);
            let function = profile.frame(frame).function;
            let is_structure = profile.function(function).kind == FunctionKind::Structure;
            fold.ends_in_run_loop.push(run_loops[function.0 as usize]);
            fold.roots.push(match prefix {
                Some(prefix) => fold.roots[prefix.0 as usize],
                None if is_structure => stack.0 + 1,
                None => 0,
            });
        }
        fold
    }

    /// Returns the prefix of a folded stack. A stack that ends in a run loop keeps that frame:
    /// without it, a sample in the run loop itself would be lost.
    fn prefix(&self, stack: StackId, prefix: Option<StackId>) -> Option<StackId> {
        let ends_in_run_loop = |stack: StackId| self.ends_in_run_loop[stack.0 as usize];
        let prefix = prefix?;
        if ends_in_run_loop(stack) || ends_in_run_loop(prefix) {
            return self.roots[stack.0 as usize].checked_sub(1).map(StackId);
        }
        Some(prefix)
    }
}
