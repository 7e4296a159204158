//! Step 8 of 12: native frames and labels are merged into one stack, ordered by stack address.

use crate::types::StackAddress;
use crate::unwind::NativeFrame;

/// A frame of a merged stack: an index into the native frames or into the labels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MergedFrame {
    Native(usize),
    Label(usize),
}

/// Merges native frames and labels into `out`, oldest frame first. `native` is innermost first,
/// `labels` are oldest first.
///
/// The address of a label is the stack pointer at its push. It lies in the frame of the function
/// that pushed the label: at or above that function's stack pointer, below its caller's. So a label
/// goes between the two frames, as in Gecko.
///
/// Some labels have no matching frame, because the stack is truncated or because the application
/// moved the label's guard to another function. Such labels keep their order. The innermost native
/// frame stays innermost, because the time was spent there.
///
/// Script frames are merged like labels. Their address comes from their own push, or from the
/// interpreter's hooks, which may give the same address to several frames in a row.
#[doc(alias = "MergeStacks")]
pub(crate) fn merge_stacks(
    native: &[NativeFrame],
    labels: impl Iterator<Item = StackAddress>,
    out: &mut Vec<MergedFrame>,
) {
    out.clear();
    let mut labels = labels.enumerate().peekable();
    for (index, frame) in native.iter().enumerate().rev() {
        let innermost = index == 0;
        while let Some((label, _)) =
            labels.next_if(|(_, address)| innermost || *address >= frame.stack_address)
        {
            out.push(MergedFrame::Label(label));
        }
        out.push(MergedFrame::Native(index));
    }
    out.extend(labels.map(|(label, _)| MergedFrame::Label(label)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::CodeAddress;

    fn merged(native: &[u64], labels: &[u64]) -> String {
        let native: Vec<NativeFrame> = native
            .iter()
            .map(|&sp| NativeFrame {
                address: CodeAddress::new(sp),
                stack_address: StackAddress(sp),
            })
            .collect();
        let mut out = Vec::new();
        merge_stacks(&native, labels.iter().map(|&sp| StackAddress(sp)), &mut out);
        let name = |frame: &MergedFrame| match frame {
            MergedFrame::Native(index) => format!("n{index}"),
            MergedFrame::Label(index) => format!("l{index}"),
        };
        out.iter().map(name).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn label_is_placed_before_the_frame_that_pushed_it() {
        assert_eq!(merged(&[100, 200, 300], &[]), "n2 n1 n0");
        assert_eq!(merged(&[100, 200, 300], &[200]), "n2 l0 n1 n0");
        assert_eq!(
            merged(&[100, 200, 300], &[250, 240, 100]),
            "n2 l0 l1 n1 l2 n0"
        );
        assert_eq!(merged(&[100, 200, 300], &[400]), "l0 n2 n1 n0");
    }

    #[test]
    fn script_frames_are_placed_where_the_interpreter_was_entered() {
        // One interpreter call for each script frame, then one call for a run of three, whose hooks
        // gave all of them the same address.
        assert_eq!(merged(&[100, 200, 300], &[310, 210]), "l0 n2 l1 n1 n0");
        assert_eq!(
            merged(&[100, 200, 300], &[250, 250, 250]),
            "n2 l0 l1 l2 n1 n0"
        );
        // A call into the application, which enters the interpreter again.
        assert_eq!(
            merged(&[100, 200, 300, 400], &[350, 350, 260, 150, 150]),
            "n3 l0 l1 n2 l2 n1 l3 l4 n0"
        );
    }

    #[test]
    fn innermost_native_frame_stays_innermost_and_labels_keep_their_order() {
        assert_eq!(merged(&[100, 200], &[50]), "n1 l0 n0");
        assert_eq!(merged(&[100, 200], &[50, 300]), "n1 l0 l1 n0");
        assert_eq!(merged(&[], &[50, 40]), "l0 l1");
        assert_eq!(merged(&[], &[]), "");
    }
}
