//! The functions that stand for a stack: those of the program's own crates, and what they called.

use crate::export::explanation::TimeKind;
use crate::export::function_groups::{FunctionGroups, GroupNumbers, Grouping};
use crate::export::function_names::one_line;
use crate::export::own_code::OwnCrates;
use crate::export::run_loops::is_run_loop;
use crate::model::{FunctionId, FunctionKind, ProfileModel, StackId};

/// Maximum number of functions in a text.
const MAX_FUNCTIONS: usize = 8;

/// The numbers of the functions that stand for a stack.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub(super) struct StackKey {
    /// The innermost first.
    functions: Vec<u32>,
    /// What the innermost of them called.
    inside: Vec<u32>,
}

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

    /// Returns the functions that stand for a stack. Those of the runtime are left out, and so is
    /// what waits in the kernel if the stack is that of a suspended task.
    pub(super) fn key(&self, stack: Option<StackId>, kind: TimeKind) -> StackKey {
        let profile = self.profile;
        let function_of = |frame| profile.frame(frame).function;
        let functions = profile.stack_frames(stack).map(function_of);
        let functions = functions.take_while(|function| !is_run_loop(profile, *function));
        let is_code =
            |function: &FunctionId| profile.function(*function).kind != FunctionKind::Structure;
        let functions: Vec<_> = functions.filter(is_code).collect();
        let is_own = |function: &FunctionId| self.own[function.0 as usize];
        let number = |function: &FunctionId| self.numbers.of(*function);
        let Some(first_own) = functions.iter().position(is_own) else {
            return StackKey {
                functions: functions.iter().take(MAX_FUNCTIONS).map(number).collect(),
                inside: Vec::new(),
            };
        };
        let own = functions.iter().filter(|function| is_own(function));
        let mut inside = Vec::new();
        if first_own > 0 && kind != TimeKind::Await {
            inside.push(number(&functions[first_own - 1]));
            inside.push(number(&functions[0]));
            inside.dedup();
        }
        let mut functions: Vec<_> = own.map(number).collect();
        // A function that calls itself, and one beside a label of the same name.
        functions.dedup();
        functions.truncate(MAX_FUNCTIONS);
        StackKey { functions, inside }
    }

    /// Returns the names of the functions of a key.
    pub(super) fn names(&self, key: &StackKey) -> (Vec<String>, Vec<String>) {
        let name = |number: &u32| one_line(&self.groups.get(*number).name).into_owned();
        let mut functions: Vec<_> = key.functions.iter().map(name).collect();
        if functions.is_empty() {
            functions.push("(no stack)".to_owned());
        }
        (functions, key.inside.iter().map(name).collect())
    }
}
