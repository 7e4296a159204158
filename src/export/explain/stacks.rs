//! The functions that represent a stack: those of the program's own crates, and what they called.

use crate::export::function_groups::{FunctionGroups, GroupNumbers, Grouping, OwnCrates};
use crate::export::function_names::one_line;
use crate::export::run_loops::is_run_loop;
use crate::model::{FunctionId, FunctionKind, ProfileModel, StackId};
use crate::types::TimeKind;

/// Maximum number of functions in a text.
const MAX_FUNCTIONS: usize = 8;

/// Finds the texts of stacks.
pub(super) struct StackTexts<'a> {
    profile: &'a ProfileModel,
    groups: FunctionGroups<'a>,
    numbers: GroupNumbers,
    /// Whether a function is the program's own.
    own: Vec<bool>,
}

impl<'a> StackTexts<'a> {
    pub(super) fn of(profile: &'a ProfileModel) -> Self {
        let mut groups = FunctionGroups::default();
        let numbers = groups.add(profile, Grouping::ByName);
        let crates = OwnCrates::of(profile);
        let functions = profile.functions().iter();
        let own = functions.map(|function| {
            crates.contain(function)
                || matches!(function.kind, FunctionKind::Label | FunctionKind::Script)
        });
        Self {
            profile,
            groups,
            numbers,
            own: own.collect(),
        }
    }

    /// Returns the names of the functions that represent a stack, the innermost first, and the
    /// names of functions that the innermost one called. Functions of the runtime are left out. For
    /// a suspended task, the functions that wait in the kernel are left out, too.
    pub(super) fn names(
        &self,
        stack: Option<StackId>,
        kind: TimeKind,
    ) -> (Vec<String>, Vec<String>) {
        let profile = self.profile;
        let function_of = |frame| profile.frame(frame).function;
        let functions = profile.stack_frames(stack).map(function_of);
        let functions = functions.take_while(|function| !is_run_loop(profile, *function));
        let functions: Vec<_> = functions.collect();
        let name = |function: &FunctionId| {
            let group = self.groups.get(self.numbers.of(*function));
            one_line(&group.name).into_owned()
        };
        let is_code =
            |function: &&FunctionId| profile.function(**function).kind != FunctionKind::Structure;
        let code: Vec<_> = functions.iter().filter(is_code).collect();
        let is_own = |function: &&&FunctionId| self.own[function.0 as usize];
        let first_own = code.iter().position(|function| is_own(&function));
        let mut names: Vec<_> = match first_own {
            Some(_) => code
                .iter()
                .filter(is_own)
                .map(|function| name(function))
                .collect(),
            None => code.iter().map(|function| name(function)).collect(),
        };
        // Merges a function that calls itself, and a function next to a label of the same name.
        names.dedup();
        names.truncate(MAX_FUNCTIONS);
        if names.is_empty() {
            // A placeholder for code, such as a note that a sample is missing.
            let mut notes = functions
                .iter()
                .filter(|function| !profile.is_root(**function));
            names.push(notes.next().map_or_else(|| "(no stack)".to_owned(), name));
        }
        let mut inside = Vec::new();
        if let Some(first_own) = first_own.filter(|first| *first > 0 && kind != TimeKind::Await) {
            inside = [first_own - 1, 0].map(|at| name(code[at])).to_vec();
            inside.dedup();
        }
        (names, inside)
    }
}
