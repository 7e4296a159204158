//! Reads arbitrary bytes as what a child or a parent sends.

use crate::family::{
    Frame, FrameDecoder, HEADER_BYTES, MAX_MESSAGE_CONTENT, NumberedOrder, Report, ScriptedHub,
    order_limits, report_limits,
};

/// The token of the family in a fuzzer's input.
pub(crate) const TOKEN: &str = "0123456789abcdef";

/// Checks that bytes from another process are read the same however they are cut, take memory only as
/// they arrive, and never make the parent panic. The first byte chooses who sends, and the second the
/// length of the parts.
pub fn check_family_messages(input: &[u8]) {
    let ([sender, part_bytes], stream) = input.split_first_chunk().unwrap_or((&[0, 0], input));
    let is_child = sender % 2 == 0;
    let limits = match is_child {
        true => report_limits,
        false => order_limits,
    };
    let frames_in = |part_bytes: usize| {
        let mut decoder = FrameDecoder::new(limits);
        let mut frames = Vec::new();
        for part in stream.chunks(part_bytes) {
            decoder.push(part);
            loop {
                match decoder.next_frame() {
                    Ok(Some(Frame { kind, content })) => frames.push((kind, content.to_vec())),
                    Ok(None) => break,
                    Err(error) => return (frames, Some(error)),
                }
            }
            assert!(decoder.waiting_bytes() < HEADER_BYTES + MAX_MESSAGE_CONTENT);
        }
        (frames, None)
    };
    let (frames, error) = frames_in(stream.len().max(1));
    assert_eq!(
        (&frames, &error),
        (&frames_in(usize::from(*part_bytes) + 1).0, &error)
    );
    let mut hub = ScriptedHub::new(TOKEN);
    for (kind, content) in &frames {
        let frame = Frame {
            kind: *kind,
            content,
        };
        if !is_child {
            check_order(frame);
        } else if let Some(report) = Report::decode(frame) {
            check_report(&report);
            if !hub.hear(report) {
                return;
            }
        }
    }
}

fn check_report(report: &Report<'_>) {
    let bytes = report.encode();
    let mut decoder = FrameDecoder::new(report_limits);
    decoder.push(&bytes);
    // Texts that are too long are cut, once.
    if let Ok(Some(frame)) = decoder.next_frame() {
        let again = Report::decode(frame).expect("it was encoded here");
        assert_eq!(again.encode(), bytes);
    }
}

fn check_order(frame: Frame<'_>) {
    let Some(order) = NumberedOrder::decode(frame) else {
        return;
    };
    if let Some(bytes) = order.encode() {
        let mut decoder = FrameDecoder::new(order_limits);
        decoder.push(&bytes);
        let frame = decoder.next_frame().expect("accepted").expect("whole");
        let again = NumberedOrder::decode(frame).expect("it was encoded here");
        assert_eq!(format!("{again:?}"), format!("{order:?}"));
    }
}
