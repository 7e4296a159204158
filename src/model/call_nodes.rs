//! The tree of a thread's calls: stacks by function instead of by address.

use crate::model::profile::{ProfileModel, Thread};
use crate::model::stacks::{FunctionId, StackId};
use crate::util::{NumberMap, pair_key};

/// Index of a call node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct NodeId(pub(crate) u32);

/// A function with its callers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct CallNode {
    /// The caller's node, which comes before this one. `None` for an outermost function.
    pub(crate) parent: Option<NodeId>,
    pub(crate) function: FunctionId,
}

/// The call nodes of one thread. Two stacks that go through the same functions share their nodes,
/// whatever the addresses in these functions.
#[derive(Debug)]
pub(crate) struct CallNodes {
    nodes: Vec<CallNode>,
    /// The number of each stack's node plus 2; 1 for a stack of left out frames only; 0 for a stack
    /// that was not looked up.
    by_stack: Vec<u32>,
    /// By the number of the caller's node plus 1, and the function.
    by_call: NumberMap<NodeId>,
}

impl CallNodes {
    /// Returns no nodes. They are for the stacks that the profile has now.
    pub(crate) fn new(profile: &ProfileModel) -> Self {
        Self {
            nodes: Vec::new(),
            by_stack: vec![0; profile.stack_count()],
            by_call: NumberMap::default(),
        }
    }

    /// Returns the nodes of all samples of a thread, and of CPU time that belongs to none. A root frame,
    /// which all stacks of a thread share and which is not code, gets no node.
    pub(crate) fn of(profile: &ProfileModel, thread: &Thread) -> Self {
        let mut nodes = Self::new(profile);
        nodes.add_inside(profile, ProfileModel::RAN_BETWEEN_SAMPLES, None);
        for sample in thread.samples.iter() {
            if let Some(stack) = sample.stack {
                nodes.add_inside(profile, stack, None);
            }
        }
        nodes
    }

    /// Returns the node of a stack's innermost function, and adds it and its callers if they are
    /// new. The frames of `outside` and of its prefixes are left out; without another frame, there
    /// is no node.
    ///
    /// The caller must choose `outside` by the frames alone: as the innermost frame of some kind.
    pub(crate) fn add_inside(
        &mut self,
        profile: &ProfileModel,
        stack: StackId,
        outside: Option<StackId>,
    ) -> Option<NodeId> {
        // The prefixes must be added first.
        let mut missing = Vec::new();
        let mut next = Some(stack);
        let mut node = loop {
            let Some(stack) = next.filter(|_| next != outside) else {
                break None;
            };
            if let Some(known) = self.known_node(stack) {
                break known;
            }
            missing.push(stack);
            next = profile.stack(stack).0;
        };
        for stack in missing.into_iter().rev() {
            let function = profile.frame(profile.stack(stack).1).function;
            if !profile.is_root(function) {
                node = Some(self.call(node, function));
            }
            self.by_stack[stack.0 as usize] = node.map_or(1, |node| node.0 + 2);
        }
        node
    }

    /// Returns the node of a stack that was looked up before.
    fn known_node(&self, stack: StackId) -> Option<Option<NodeId>> {
        let number = self.by_stack[stack.0 as usize].checked_sub(1)?;
        Some(number.checked_sub(1).map(NodeId))
    }

    fn call(&mut self, parent: Option<NodeId>, function: FunctionId) -> NodeId {
        let Self { nodes, by_call, .. } = self;
        let key = pair_key(parent.map_or(0, |parent| parent.0 + 1), function.0);
        *by_call.entry(key).or_insert_with(|| {
            nodes.push(CallNode { parent, function });
            NodeId(nodes.len() as u32 - 1)
        })
    }

    /// Returns the node of a stack that was added before.
    pub(crate) fn node_of(&self, stack: StackId) -> Option<NodeId> {
        self.known_node(stack).flatten()
    }

    /// Returns all nodes. A caller's node comes before those of the functions that it calls.
    pub(crate) fn nodes(&self) -> &[CallNode] {
        &self.nodes
    }

    #[cfg(any(test, feature = "formats"))]
    pub(crate) fn get(&self, id: NodeId) -> &CallNode {
        &self.nodes[id.0 as usize]
    }

    /// Returns a node and its callers, the innermost first.
    #[cfg(any(test, feature = "formats"))]
    pub(crate) fn path(&self, node: Option<NodeId>) -> impl Iterator<Item = NodeId> + '_ {
        std::iter::successors(node, |node| self.get(*node).parent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::stacks::{Frame, Function, FunctionKind};

    #[test]
    fn stacks_through_the_same_functions_share_a_node() {
        let mut profile = ProfileModel::default();
        let mut function = |name, kind| {
            let name = profile.intern(name);
            profile.intern_function(Function::new(name, kind))
        };
        let (root, work) = (
            function("(root)", FunctionKind::Structure),
            function("work", FunctionKind::Native),
        );
        let root = profile.intern_frame(&Frame::new(root));
        let root = profile.append_frame(None, root);
        let mut at = |prefix, address| {
            let frame = profile.intern_frame(&Frame {
                address: Some(address),
                ..Frame::new(work)
            });
            profile.append_frame(Some(prefix), frame)
        };
        let (one, other) = (at(root, 1), at(root, 2));
        let recursive = at(other, 1);
        let mut nodes = CallNodes::new(&profile);
        let mut add = |stack| nodes.add_inside(&profile, stack, None);
        assert_eq!(add(root), None);
        let node = add(one).expect("a node");
        assert_eq!(add(other), Some(node));
        let inner = add(recursive).expect("a node");
        assert_eq!(nodes.path(Some(inner)).collect::<Vec<_>>(), [inner, node]);
        assert_eq!(nodes.node_of(one), Some(node));
        assert_eq!(nodes.nodes().len(), 2);

        let mut inside = CallNodes::new(&profile);
        assert_eq!(inside.add_inside(&profile, other, Some(other)), None);
        let node = inside.add_inside(&profile, recursive, Some(other));
        assert_eq!(inside.path(node).count(), 1);
    }
}
