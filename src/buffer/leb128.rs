//! Numbers in as few bytes as they need: ULEB128, and zigzag for signed ones.

/// The most bytes that a number takes.
pub(super) const MAX_BYTES: usize = 10;

/// Codes `number` and gives the bytes used of `out`.
pub(super) fn encode(mut number: u64, out: &mut [u8; MAX_BYTES]) -> usize {
    let mut length = 0;
    loop {
        let low = (number & 0x7f) as u8;
        number >>= 7;
        out[length] = if number == 0 { low } else { low | 0x80 };
        length += 1;
        if number == 0 {
            return length;
        }
    }
}

/// Takes a number off the front of `bytes`; `None` when they end within it or it does not fit.
#[inline(always)]
pub(super) fn decode(bytes: &mut &[u8]) -> Option<u64> {
    match bytes.split_first() {
        Some((&byte, rest)) if byte < 0x80 => {
            *bytes = rest;
            Some(byte.into())
        }
        _ => decode_longer(bytes),
    }
}

/// A number of more than one byte.
fn decode_longer(bytes: &mut &[u8]) -> Option<u64> {
    // Most have two or three.
    if let &[first, second, ref rest @ ..] = *bytes
        && first >= 0x80
    {
        let low = u64::from(first & 0x7f) | u64::from(second & 0x7f) << 7;
        if second < 0x80 {
            *bytes = rest;
            return Some(low);
        }
        if let &[third, ref rest @ ..] = rest
            && third < 0x80
        {
            *bytes = rest;
            return Some(low | u64::from(third) << 14);
        }
    }
    let mut number = 0u64;
    for (index, &byte) in bytes.iter().enumerate().take(MAX_BYTES) {
        let low = u64::from(byte & 0x7f);
        if index == MAX_BYTES - 1 && low > 1 {
            return None;
        }
        number |= low << (7 * index as u32);
        if byte < 0x80 {
            *bytes = &bytes[index + 1..];
            return Some(number);
        }
    }
    None
}

/// Small magnitudes become small numbers, whatever their sign.
pub(crate) const fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

pub(crate) const fn unzigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coded(number: u64) -> Vec<u8> {
        let mut out = [0; MAX_BYTES];
        let length = encode(number, &mut out);
        out[..length].to_vec()
    }

    #[test]
    fn numbers_survive_in_the_bytes_they_need() {
        for (number, length) in [(0, 1), (127, 1), (128, 2), (16_383, 2), (16_384, 3), (u64::MAX, 10)] {
            let bytes = coded(number);
            assert_eq!(bytes.len(), length);
            let mut rest = &bytes[..];
            assert_eq!((decode(&mut rest), rest.len()), (Some(number), 0));
        }
    }

    #[test]
    fn cut_or_overlong_numbers_are_none() {
        assert_eq!(decode(&mut &[][..]), None);
        assert_eq!(decode(&mut &[0x80][..]), None);
        assert_eq!(decode(&mut &[0xff; 11][..]), None);
        assert_eq!(decode(&mut &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02][..]), None);
    }

    #[test]
    fn signs_survive() {
        for number in [0, 1, -1, 63, -64, i64::MAX, i64::MIN] {
            assert_eq!(unzigzag(zigzag(number)), number);
        }
        assert_eq!((zigzag(-1), zigzag(1), zigzag(-64)), (1, 2, 127));
    }
}
