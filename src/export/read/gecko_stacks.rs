//! Reads the frames and stacks of a Gecko thread, and takes the locations of frames apart.

use crate::export::read::builder::{ModelBuilder, Strings};
use crate::export::read::context::Context;
use crate::export::read::table::{TableRow, each_row};
use crate::export::read::value::{Object, Value};
use crate::model::{
    Frame, FrameId, Function, FunctionId, FunctionKind, ModuleId, ProfileModel, StackId,
    is_placeholder,
};
use crate::types::ReadError;

/// The part of a frame in a stack.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The frame was interrupted at its address.
    Innermost,
    /// The frame has called another one, so its address is the one that the call returns to.
    Caller,
}

/// The stacks of a thread. A stack is added to the model when it is first used.
pub(crate) struct GeckoStacks<'c> {
    context: &'c Context,
    frames: Vec<GeckoFrame>,
    /// The prefix and the frame of each stack.
    stacks: Vec<(Option<u32>, u32)>,
    /// The model's stack for each, by its role.
    known: [Vec<Option<StackId>>; 2],
}

struct GeckoFrame {
    frame: Frame,
    /// The address in the process, of a frame without a name.
    address: Option<u64>,
    ids: [Option<FrameId>; 2],
}

const FRAME_COLUMNS: &[&str] = &[
    "location",
    "relevantForJS",
    "innerWindowID",
    "implementation",
    "line",
    "column",
    "category",
    "subcategory",
];

impl<'c> GeckoStacks<'c> {
    pub(crate) fn read<'a>(
        builder: &mut ModelBuilder,
        context: &'c Context,
        thread: &Object<'a, '_>,
        strings: &mut Strings<'a>,
    ) -> Result<Self, ReadError> {
        let mut frames = Vec::new();
        let table = thread.table("frameTable")?;
        each_row(context.form, &table, (FRAME_COLUMNS, 1), |_, row| {
            frames.push(read_frame(builder, context, row, strings)?);
            Ok(())
        })?;
        let mut stacks = Vec::new();
        let table = thread.table("stackTable")?;
        let columns = (&["prefix", "frame"][..], 2);
        each_row(context.form, &table, columns, |index, row| {
            let frame = row.require("frame", "a frame index")?;
            let frame = frame.index(frames.len(), "a frame index")?;
            let prefix = row.read("prefix", |prefix| {
                prefix.index(index, "an earlier stack index")
            })?;
            stacks.push((prefix.map(|prefix| prefix as u32), frame as u32));
            Ok(())
        })?;
        Ok(Self {
            context,
            frames,
            known: [(); 2].map(|()| vec![None; stacks.len()]),
            stacks,
        })
    }

    /// Returns the model's stack for an index of the stack table.
    pub(crate) fn stack(
        &mut self,
        profile: &mut ProfileModel,
        index: Value<'_, '_>,
        mut role: Role,
    ) -> Result<StackId, ReadError> {
        let mut next = Some(index.index(self.stacks.len(), "a stack index")?);
        let mut missing = Vec::new();
        let mut stack = loop {
            let Some(index) = next else { break None };
            if let Some(known) = self.known[role as usize][index] {
                break Some(known);
            }
            missing.push((index, role));
            next = self.stacks[index].0.map(|prefix| prefix as usize);
            role = Role::Caller;
        };
        while let Some((index, role)) = missing.pop() {
            let frame = &mut self.frames[self.stacks[index].1 as usize];
            let frame = frame.id(profile, self.context, role);
            stack = Some(profile.append_frame(stack, frame));
            self.known[role as usize][index] = stack;
        }
        // The loop above has found or added it.
        Ok(stack.unwrap_or(StackId(0)))
    }
}

fn read_frame<'a>(
    builder: &mut ModelBuilder,
    context: &Context,
    row: &TableRow<'a, '_>,
    strings: &mut Strings<'a>,
) -> Result<GeckoFrame, ReadError> {
    let line = row.position("line")?;
    let column = row.position("column")?;
    let is_relevant_for_js = row.read("relevantForJS", Value::bool)?.unwrap_or(false);
    let inner_window_id = row.read("innerWindowID", |id| id.unsigned("the id of a page"))?;
    let implementation = row.read("implementation", |name| {
        strings.id(&mut builder.profile, *name)
    })?;
    let category = context.category(row.get("category"), row.get("subcategory"))?;
    let location = row.require("location", "a string index")?;
    let mut own_line = None;
    let mut address = None;
    let function = match Location::parse(strings.get(location)?) {
        Location::Address(at) => {
            address = Some(at);
            None
        }
        Location::Native {
            name,
            library,
            file,
            line,
        } => {
            own_line = line;
            let module = match context.module_names.get(library) {
                Some(module) => *module,
                None => builder.unplaced_module(context.process, library),
            };
            let profile = &mut builder.profile;
            Some(Function {
                module: Some(module),
                file: file.map(|file| profile.intern(file)),
                ..Function::new(profile.intern(name), FunctionKind::Native)
            })
        }
        Location::Script {
            name,
            file,
            line,
            column,
        } => {
            let profile = &mut builder.profile;
            Some(Function {
                file: Some(profile.intern(file)),
                line,
                column,
                is_relevant_for_js,
                ..Function::new(profile.intern(name), FunctionKind::Script)
            })
        }
        Location::Plain(text) => {
            let kind = match is_placeholder(text) {
                true => FunctionKind::Structure,
                false => FunctionKind::Label,
            };
            Some(Function {
                is_relevant_for_js,
                ..Function::new(builder.profile.intern(text), kind)
            })
        }
    };
    // The function of an address depends on the role.
    let function = function.map(|function| builder.profile.intern_function(function));
    Ok(GeckoFrame {
        frame: Frame {
            line: line.or(own_line),
            column,
            category,
            inner_window_id: inner_window_id.unwrap_or(0),
            implementation,
            ..Frame::new(function.unwrap_or(FunctionId(0)))
        },
        address,
        ids: [None; 2],
    })
}

impl GeckoFrame {
    fn id(&mut self, profile: &mut ProfileModel, context: &Context, role: Role) -> FrameId {
        if let Some(known) = self.ids[role as usize] {
            return known;
        }
        if let Some(address) = self.address {
            let within_call = match role {
                Role::Innermost => address,
                Role::Caller => address.saturating_sub(1),
            };
            let module = module_at(profile, context, within_call);
            let relative = match module {
                Some(module) => {
                    let module = profile.module(module);
                    let relative = within_call.wrapping_sub(module.start);
                    relative.wrapping_add(module.offset)
                }
                None => within_call,
            };
            let name = profile.intern(&format!("{relative:#x}"));
            self.frame.address = Some(relative);
            self.frame.function = profile.intern_function(Function {
                module,
                ..Function::new(name, FunctionKind::Native)
            });
        }
        let id = profile.intern_frame(&self.frame);
        self.ids[role as usize] = Some(id);
        id
    }
}

fn module_at(profile: &ProfileModel, context: &Context, address: u64) -> Option<ModuleId> {
    let modules = &context.modules;
    let after = modules.partition_point(|&module| profile.module(module).start <= address);
    let module = *modules.get(after.checked_sub(1)?)?;
    (address < profile.module(module).end).then_some(module)
}

/// What the text of a location says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Location<'t> {
    /// `0x1f40`
    Address(u64),
    /// `name (in lib)`, also with `+ 12` or `(file:line)` after it
    Native {
        name: &'t str,
        library: &'t str,
        file: Option<&'t str>,
        line: Option<u32>,
    },
    /// `name (file:line:column)`, or without the name, and maybe with `[source]` after it
    Script {
        name: &'t str,
        file: &'t str,
        line: Option<u32>,
        column: Option<u32>,
    },
    /// A label, or a placeholder.
    Plain(&'t str),
}

impl<'t> Location<'t> {
    fn parse(text: &'t str) -> Self {
        address(text)
            .or_else(|| native(text))
            .or_else(|| script(text))
            .unwrap_or(Self::Plain(text))
    }
}

fn address(text: &str) -> Option<Location<'_>> {
    let digits = text.strip_prefix("0x")?;
    let is_hexadecimal = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let address = u64::from_str_radix(digits, 16);
    address
        .ok()
        .filter(|_| is_hexadecimal)
        .map(Location::Address)
}

fn native(text: &str) -> Option<Location<'_>> {
    // An offset within the function is dropped.
    let offset = text
        .rsplit_once(" + ")
        .filter(|(_, offset)| is_number(offset));
    let (rest, file, line) = match offset {
        Some((rest, _)) => (rest, None, None),
        None => with_file(text).unwrap_or((text, None, None)),
    };
    let (name, library) = in_library(rest)?;
    Some(Location::Native {
        name,
        library,
        file,
        line,
    })
}

/// Splits `name (in lib)`.
fn in_library(text: &str) -> Option<(&str, &str)> {
    let (name, library) = text.strip_suffix(')')?.rsplit_once(" (in ")?;
    (!library.contains(')')).then_some((name, library))
}

/// Splits `name (in lib) (file:line)`.
fn with_file(text: &str) -> Option<(&str, Option<&str>, Option<u32>)> {
    let (rest, place) = text.strip_suffix(')')?.rsplit_once(" (")?;
    let (file, line) = place.rsplit_once(':')?;
    in_library(rest)?;
    let file = Some(file).filter(|file| !file.is_empty());
    Some((rest, file, known_number(line)))
}

fn script(text: &str) -> Option<Location<'_>> {
    let text = without_source(text);
    let inner = text.strip_suffix(')');
    let (name, place) = match inner.and_then(|inner| inner.rsplit_once(" (")) {
        Some((name, place)) if split_numbers(place).is_some() => (name, place),
        _ => ("", text),
    };
    let (file, line, column) = split_numbers(place)?;
    (!file.is_empty()).then_some(Location::Script {
        name,
        file,
        line,
        column,
    })
}

/// Returns the location without the index of its source at the end.
fn without_source(text: &str) -> &str {
    let index = text
        .strip_suffix(']')
        .and_then(|text| text.rsplit_once('['));
    match index {
        Some((rest, index)) if is_number(index) => rest,
        _ => text,
    }
}

/// Splits `file:line:column` or `file:line`.
fn split_numbers(place: &str) -> Option<(&str, Option<u32>, Option<u32>)> {
    let (file, last) = place.rsplit_once(':').filter(|(_, last)| is_number(last))?;
    match file.rsplit_once(':') {
        Some((file, line)) if is_number(line) && !file.is_empty() => {
            Some((file, known_number(line), known_number(last)))
        }
        _ => Some((file, known_number(last), None)),
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit())
}

/// Returns a line or a column; `None` if it is unknown.
fn known_number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|number| *number > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_read_as_the_firefox_profiler_does() {
        let native = |name, library, file, line| Location::Native {
            name,
            library,
            file,
            line,
        };
        let script = |name, file, line, column| Location::Script {
            name,
            file,
            line,
            column,
        };
        for (text, expected) in [
            ("0x1f40", Location::Address(0x1f40)),
            ("0xffffffffffffffff", Location::Address(u64::MAX)),
            ("0x", Location::Plain("0x")),
            ("0x+1", Location::Plain("0x+1")),
            ("main (in demo)", native("main", "demo", None, None)),
            (
                "<T as U>::f(int) (in libc.so.6) + 12",
                native("<T as U>::f(int)", "libc.so.6", None, None),
            ),
            (
                "main (in demo) (src/main.rs:12)",
                native("main", "demo", Some("src/main.rs"), Some(12)),
            ),
            ("f (a.js:3:4)", script("f", "a.js", Some(3), Some(4))),
            ("f (a.js:3)[12]", script("f", "a.js", Some(3), None)),
            (
                "f (https://a.test/(x).js:3:4)[1]",
                script("f", "https://a.test/(x).js", Some(3), Some(4)),
            ),
            ("f (:0:0)[1]", script("f", ":0", None, None)),
            (
                "https://a.test/:12:1",
                script("", "https://a.test/", Some(12), Some(1)),
            ),
            ("(root)", Location::Plain("(root)")),
            ("js::RunScript", Location::Plain("js::RunScript")),
            (
                "operator() (in a:b)",
                native("operator()", "a:b", None, None),
            ),
            ("a (b)", Location::Plain("a (b)")),
            ("", Location::Plain("")),
            (":1", Location::Plain(":1")),
        ] {
            assert_eq!(Location::parse(text), expected, "{text}");
        }
    }
}
