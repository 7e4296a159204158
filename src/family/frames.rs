//! Frames on a stream of bytes: a length, a kind, and so many bytes.
//!
//! The bytes come from another process, so nothing about them is certain. A frame is refused by its
//! header, before its bytes arrive, and memory grows only by bytes that have arrived.

use std::fmt;

/// Size of a frame's header: the length of its content as four bytes, least significant first, and
/// its kind.
pub(crate) const HEADER_BYTES: usize = 5;

/// Returns the maximum length of a frame of this kind, or `None` if no frame has this kind.
pub(crate) type Limits = fn(kind: u8) -> Option<usize>;

/// A frame that has arrived whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) kind: u8,
    pub(crate) content: &'a [u8],
}

/// The reason why a stream cannot be read any further.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FrameError {
    UnknownKind(u8),
    TooLong {
        kind: u8,
        bytes: usize,
        max_bytes: usize,
    },
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownKind(kind) => write!(f, "got a frame of the unknown kind {kind}"),
            Self::TooLong {
                kind,
                bytes,
                max_bytes,
            } => write!(
                f,
                "got a frame of kind {kind} of {bytes} bytes, expected at most {max_bytes} bytes"
            ),
        }
    }
}

/// Returns a frame with this content.
///
/// # Panics
/// If the content has 4 GiB or more.
pub(crate) fn frame(kind: u8, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).expect("frames are short");
    let mut bytes = Vec::with_capacity(HEADER_BYTES + content.len());
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.push(kind);
    bytes.extend_from_slice(content);
    bytes
}

/// Finds the frames in a stream that arrives in parts.
#[derive(Debug)]
pub(crate) struct FrameDecoder {
    limits: Limits,
    bytes: Vec<u8>,
    /// Number of bytes of the frames that were returned.
    consumed: usize,
    error: Option<FrameError>,
}

impl FrameDecoder {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            bytes: Vec::new(),
            consumed: 0,
            error: None,
        }
    }

    /// Adds bytes that have arrived. The caller then takes all whole frames, so that no more than a
    /// part of one stays.
    pub(crate) fn push(&mut self, part: &[u8]) {
        self.bytes.drain(..self.consumed);
        self.consumed = 0;
        if self.error.is_none() {
            self.bytes.extend_from_slice(part);
        }
    }

    /// Returns the next frame that has arrived whole.
    ///
    /// # Errors
    /// A header that is not accepted. Every later call returns the same error.
    pub(crate) fn next_frame(&mut self) -> Result<Option<Frame<'_>>, FrameError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let Some((header, rest)) = self.bytes[self.consumed..].split_first_chunk() else {
            return Ok(None);
        };
        let [a, b, c, d, kind]: [u8; HEADER_BYTES] = *header;
        let bytes = u32::from_le_bytes([a, b, c, d]) as usize;
        let refusal = match (self.limits)(kind) {
            None => Some(FrameError::UnknownKind(kind)),
            Some(max_bytes) => (bytes > max_bytes).then_some(FrameError::TooLong {
                kind,
                bytes,
                max_bytes,
            }),
        };
        if let Some(refusal) = refusal {
            self.error = Some(refusal);
            self.bytes = Vec::new();
            self.consumed = 0;
            return Err(refusal);
        }
        if rest.len() < bytes {
            return Ok(None);
        }
        let begin = self.consumed + HEADER_BYTES;
        self.consumed = begin + bytes;
        Ok(Some(Frame {
            kind,
            content: &self.bytes[begin..self.consumed],
        }))
    }

    /// Returns how many bytes wait for the rest of their frame.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.bytes.len() - self.consumed
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn limits(kind: u8) -> Option<usize> {
        [Some(4), Some(0)].get(usize::from(kind)).copied().flatten()
    }

    /// Returns what a decoder finds in these parts.
    fn decoded(parts: &[&[u8]]) -> (Vec<(u8, Vec<u8>)>, Option<FrameError>) {
        let mut decoder = FrameDecoder::new(limits);
        let mut frames = Vec::new();
        for part in parts {
            decoder.push(part);
            loop {
                match decoder.next_frame() {
                    Ok(Some(Frame { kind, content })) => frames.push((kind, content.to_vec())),
                    Ok(None) => break,
                    Err(error) => return (frames, Some(error)),
                }
            }
        }
        (frames, None)
    }

    #[test]
    fn frames_are_found_however_the_stream_is_cut() {
        let stream = [frame(0, b"abcd"), frame(1, b""), frame(0, b"x")].concat();
        let expected = vec![(0, b"abcd".to_vec()), (1, Vec::new()), (0, b"x".to_vec())];
        assert_eq!(decoded(&[&stream]), (expected.clone(), None));
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(decoded(&bytes), (expected.clone(), None));
        for cut in 0..stream.len() {
            let (one, other) = stream.split_at(cut);
            assert_eq!(decoded(&[one, other]), (expected.clone(), None), "{cut}");
            let (first, _) = decoded(&[one]);
            assert!(expected.starts_with(&first), "{cut}");
        }
    }

    #[test]
    fn header_that_is_not_accepted_ends_the_stream() {
        let long = FrameError::TooLong {
            kind: 0,
            bytes: 5,
            max_bytes: 4,
        };
        let stream = [frame(1, b""), frame(0, b"abcde"), frame(0, b"x")].concat();
        assert_eq!(decoded(&[&stream]), (vec![(1, Vec::new())], Some(long)));
        // The header is enough.
        let huge = [0xff, 0xff, 0xff, 0xff, 1];
        let (frames, error) = decoded(&[&huge]);
        assert!(frames.is_empty() && error.is_some());
        let unknown = decoded(&[&frame(2, b"")]);
        assert_eq!(unknown, (Vec::new(), Some(FrameError::UnknownKind(2))));
        let mut decoder = FrameDecoder::new(limits);
        decoder.push(&huge);
        for _ in 0..2 {
            assert!(decoder.next_frame().is_err());
            decoder.push(&frame(0, b"x"));
            assert_eq!(decoder.waiting_bytes(), 0);
        }
    }
}
