//! Reads the frames and stacks of a Gecko thread.

use crate::export::read::builder::{ModelBuilder, Strings, category_pair};
use crate::export::read::context::Context;
use crate::export::read::location::Location;
use crate::export::read::table::{TableRow, each_row};
use crate::export::read::value::{Object, Value};
use crate::model::{
    Frame, FrameId, Function, FunctionKind, ModuleId, ProfileModel, StackId, is_placeholder,
};
use crate::types::ReadError;

/// The part of a frame in a stack.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// The frame was interrupted at its address.
    Innermost,
    /// The frame has called another one, so its address is the one that the call returns to.
    Caller,
}

/// The stacks of a thread. A stack is added to the model when it is first used.
pub(super) struct GeckoStacks {
    frames: Vec<GeckoFrame>,
    /// The prefix and the frame of each stack.
    stacks: Vec<(Option<u32>, u32)>,
    /// The model's stack for each, by its role.
    innermost: Vec<Option<StackId>>,
    callers: Vec<Option<StackId>>,
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

impl GeckoStacks {
    pub(super) fn read<'a>(
        builder: &mut ModelBuilder,
        context: &Context,
        thread: &Object<'a, '_>,
        strings: &mut Strings<'a>,
    ) -> Result<Self, ReadError> {
        let table = |key| thread.require(key, "a table")?.object("a table");
        let mut frames = Vec::new();
        each_row(
            context.form,
            &table("frameTable")?,
            (FRAME_COLUMNS, 1),
            |_, row| {
                frames.push(read_frame(builder, context, row, strings)?);
                Ok(())
            },
        )?;
        let mut stacks = Vec::new();
        let columns = (&["prefix", "frame"][..], 2);
        each_row(
            context.form,
            &table("stackTable")?,
            columns,
            |index, row| {
                let prefix = row.get("prefix").map(|prefix| {
                    let prefix = prefix.index(index, "an earlier stack index");
                    prefix.map(|prefix| prefix as u32)
                });
                let frame = row.require("frame", "a frame index")?;
                let frame = frame.index(frames.len(), "a frame index")?;
                stacks.push((prefix.transpose()?, frame as u32));
                Ok(())
            },
        )?;
        Ok(Self {
            innermost: vec![None; stacks.len()],
            callers: vec![None; stacks.len()],
            frames,
            stacks,
        })
    }

    /// Returns the model's stack for an index of the stack table.
    pub(super) fn stack(
        &mut self,
        profile: &mut ProfileModel,
        context: &Context,
        index: Value<'_, '_>,
        role: Role,
    ) -> Result<StackId, ReadError> {
        let index = index.index(self.stacks.len(), "a stack index")?;
        if role == Role::Caller {
            return Ok(self.caller(profile, context, index));
        }
        if let Some(known) = self.innermost[index] {
            return Ok(known);
        }
        let (prefix, frame) = self.stacks[index];
        let prefix = prefix.map(|prefix| self.caller(profile, context, prefix as usize));
        let frame = self.frames[frame as usize].id(profile, context, role);
        let stack = profile.append_frame(prefix, frame);
        self.innermost[index] = Some(stack);
        Ok(stack)
    }

    /// Returns the model's stack for one that ends in a call.
    fn caller(&mut self, profile: &mut ProfileModel, context: &Context, index: usize) -> StackId {
        let mut missing = Vec::new();
        let mut next = Some(index);
        let mut stack = loop {
            let Some(index) = next else { break None };
            if let Some(known) = self.callers[index] {
                break Some(known);
            }
            missing.push(index);
            next = self.stacks[index].0.map(|prefix| prefix as usize);
        };
        while let Some(index) = missing.pop() {
            let frame = &mut self.frames[self.stacks[index].1 as usize];
            let frame = frame.id(profile, context, Role::Caller);
            stack = Some(profile.append_frame(stack, frame));
            self.callers[index] = stack;
        }
        // The loop above has found or added it.
        stack.unwrap_or(StackId(0))
    }
}

fn read_frame<'a>(
    builder: &mut ModelBuilder,
    context: &Context,
    row: &TableRow<'a, '_>,
    strings: &mut Strings<'a>,
) -> Result<GeckoFrame, ReadError> {
    let position = |column| {
        let position = row.get(column).map(|position| position.position());
        position.transpose().map(Option::flatten)
    };
    let (line, column) = (position("line")?, position("column")?);
    let is_relevant_for_js = row
        .get("relevantForJS")
        .map_or(Ok(false), |value| value.bool())?;
    let inner_window_id = match row.get("innerWindowID") {
        Some(id) => id.unsigned("the id of a page")?,
        None => 0,
    };
    let implementation = match row.get("implementation") {
        Some(name) => Some(strings.id(&mut builder.profile, name)?),
        None => None,
    };
    let category = category_pair(
        &context.categories,
        row.get("category"),
        row.get("subcategory"),
    )?;
    let location = row.require("location", "a string index")?;
    let location = Location::parse(strings.get(location)?);
    let mut own_line = None;
    let mut address = None;
    let function = match location {
        Location::Address(at) => {
            address = Some(at);
            // Its name depends on its role.
            Function::new(builder.profile.intern(""), FunctionKind::Native)
        }
        Location::Native {
            name,
            library,
            file,
            line,
        } => {
            own_line = line;
            let module = module_by_name(builder, context, library);
            let profile = &mut builder.profile;
            Function {
                module: Some(module),
                file: file.map(|file| profile.intern(file)),
                ..Function::new(profile.intern(name), FunctionKind::Native)
            }
        }
        Location::Script {
            name,
            file,
            line,
            column,
        } => {
            let profile = &mut builder.profile;
            Function {
                file: Some(profile.intern(file)),
                line,
                column,
                is_relevant_for_js,
                ..Function::new(profile.intern(name), FunctionKind::Script)
            }
        }
        Location::Plain(text) => {
            let kind = match is_placeholder(text) {
                true => FunctionKind::Structure,
                false => FunctionKind::Label,
            };
            Function {
                is_relevant_for_js,
                ..Function::new(builder.profile.intern(text), kind)
            }
        }
    };
    // An address gets its function when its role is known.
    let function = match address {
        Some(_) => crate::model::FunctionId(0),
        None => builder.profile.intern_function(function),
    };
    Ok(GeckoFrame {
        frame: Frame {
            line: line.or(own_line),
            column,
            category,
            inner_window_id,
            implementation,
            ..Frame::new(function)
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

fn module_by_name(builder: &mut ModelBuilder, context: &Context, name: &str) -> ModuleId {
    let known = context.module_names.get(name).copied();
    known.unwrap_or_else(|| builder.unplaced_module(context.process, name))
}
