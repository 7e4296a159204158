//! Functions that count as one, whatever their file, their module's number and their address.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::export::function_names::{comparable_library, comparable_name, one_line};
use crate::model::{Function, FunctionId, FunctionKind, ProfileModel, is_whole_stack};

/// Which functions count as one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Grouping {
    /// Those with the same name in the same library.
    ByName,
    /// Those that two builds of a program share: see [`comparable_name`]. All addresses of a
    /// library without a name are one.
    AcrossBuilds,
}

/// Functions of the same name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct FunctionGroup<'a> {
    /// `Native` also for a placeholder that replaces all functions of a stack.
    pub(crate) kind: FunctionKind,
    /// The name; for a script function, with the place where the function begins.
    pub(crate) name: Cow<'a, str>,
    pub(crate) library: Option<&'a str>,
    /// Whether the name is known, rather than an address.
    pub(crate) is_named: bool,
}

/// The groups of the functions of one or several profiles.
#[derive(Debug, Default)]
pub(crate) struct FunctionGroups<'a> {
    groups: Vec<FunctionGroup<'a>>,
    numbers: HashMap<FunctionGroup<'a>, u32>,
}

/// The number of each function's group, in the order of a profile's functions.
#[derive(Debug)]
pub(crate) struct GroupNumbers(Vec<u32>);

impl GroupNumbers {
    pub(crate) fn of(&self, function: FunctionId) -> u32 {
        self.0[function.0 as usize]
    }
}

impl<'a> FunctionGroups<'a> {
    /// Adds the functions of a profile, and returns the numbers of their groups.
    pub(crate) fn add(&mut self, profile: &'a ProfileModel, grouping: Grouping) -> GroupNumbers {
        let mut number = |function: &Function| {
            let group = group(profile, function, grouping);
            if let Some(&known) = self.numbers.get(&group) {
                return known;
            }
            let number = self.groups.len() as u32;
            self.groups.push(group.clone());
            self.numbers.insert(group, number);
            number
        };
        GroupNumbers(profile.functions().iter().map(&mut number).collect())
    }

    pub(crate) fn get(&self, number: u32) -> &FunctionGroup<'a> {
        &self.groups[number as usize]
    }

    pub(crate) fn len(&self) -> usize {
        self.groups.len()
    }
}

fn group<'a>(
    profile: &'a ProfileModel,
    function: &Function,
    grouping: Grouping,
) -> FunctionGroup<'a> {
    let name = profile.text(function.name);
    let is_named = function.kind != FunctionKind::Native || !is_address(name);
    let module = function
        .module
        .map(|module| profile.module(module).name.as_str());
    let library = module.filter(|name| !name.is_empty());
    let across = grouping == Grouping::AcrossBuilds;
    let name = match function.kind {
        FunctionKind::Script => script_name(profile, function, !across),
        _ if across && !is_named => Cow::Borrowed("(unnamed code)"),
        _ if across => comparable_name(name),
        _ => Cow::Borrowed(name),
    };
    FunctionGroup {
        kind: match is_whole_stack(profile.text(function.name)) {
            true => FunctionKind::Native,
            false => function.kind,
        },
        name,
        library: if across {
            library.map(comparable_library)
        } else {
            library
        },
        is_named,
    }
}

/// Returns whether this is the text in the place of an unknown name.
fn is_address(name: &str) -> bool {
    let digits = name.strip_prefix("0x").unwrap_or_default();
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns a script function's name as the viewer shows it.
fn script_name<'a>(
    profile: &'a ProfileModel,
    function: &Function,
    has_position: bool,
) -> Cow<'a, str> {
    let name = one_line(profile.text(function.name));
    let file = function.file.map(|file| profile.text(file));
    if file.is_none() && function.line.is_none() {
        return name;
    }
    let file = one_line(file.filter(|file| !file.is_empty()).unwrap_or("<script>"));
    let line = function.line.unwrap_or(0);
    let place = match function.column {
        _ if !has_position => file.into_owned(),
        None => format!("{file}:{line}"),
        Some(column) => format!("{file}:{line}:{column}"),
    };
    match name.is_empty() {
        true => Cow::Owned(place),
        false => Cow::Owned(format!("{name} ({place})")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::test_profile::TestProfile;

    #[test]
    fn functions_of_one_name_are_one_group() {
        let mut test = TestProfile::new(1_000_000);
        let app = test.library("app");
        let other = test.library("other");
        let in_file = |test: &mut TestProfile, name, module, file| {
            let name = test.profile.intern(name);
            let file = test.profile.intern(file);
            test.profile.intern_function(Function {
                module: Some(module),
                file: Some(file),
                ..Function::new(name, FunctionKind::Native)
            })
        };
        let one = in_file(&mut test, "f::{closure#1}", app, "a.rs");
        let same = in_file(&mut test, "f::{closure#1}", app, "b.rs");
        let next = in_file(&mut test, "f::{closure#2}", app, "a.rs");
        let elsewhere = in_file(&mut test, "f::{closure#1}", other, "a.rs");
        let address = in_file(&mut test, "0x1f40", app, "");
        let other_address = in_file(&mut test, "0x1f44", app, "");
        let mut groups = FunctionGroups::default();
        let by_name = groups.add(&test.profile, Grouping::ByName);
        assert_eq!(by_name.of(one), by_name.of(same));
        assert_ne!(by_name.of(one), by_name.of(next));
        assert_ne!(by_name.of(one), by_name.of(elsewhere));
        assert_ne!(by_name.of(address), by_name.of(other_address));
        assert!(!groups.get(by_name.of(address)).is_named);
        let mut groups = FunctionGroups::default();
        let across = groups.add(&test.profile, Grouping::AcrossBuilds);
        assert_eq!(across.of(one), across.of(next));
        assert_ne!(across.of(one), across.of(elsewhere));
        assert_eq!(across.of(address), across.of(other_address));
        // And the two names of time that belongs to no sample.
        assert_eq!(groups.len(), 3 + 2);
    }

    #[test]
    fn script_function_has_name_file_and_position() {
        let mut test = TestProfile::new(1_000_000);
        let (name, file) = (test.profile.intern("f"), test.profile.intern("a/b.lua"));
        let function = Function {
            file: Some(file),
            line: Some(3),
            column: Some(7),
            ..Function::new(name, FunctionKind::Script)
        };
        let id = test.profile.intern_function(function);
        for (grouping, text) in [
            (Grouping::ByName, "f (a/b.lua:3:7)"),
            (Grouping::AcrossBuilds, "f (a/b.lua)"),
        ] {
            let mut groups = FunctionGroups::default();
            let numbers = groups.add(&test.profile, grouping);
            assert_eq!(groups.get(numbers.of(id)).name, text);
        }
    }
}
