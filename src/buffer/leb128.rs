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
#[inline]
pub(super) fn decode(bytes: &mut &[u8]) -> Option<u64> {
    match bytes.split_first() {
        Some((&byte, rest)) if byte < 0x80 => {
            *bytes = rest;
            Some(byte.into())
        }
        _ => decode_up_to_four(bytes).or_else(|| decode_any(bytes)),
    }
}

/// A number of up to four bytes where four can be read, without a branch for each.
#[inline]
fn decode_up_to_four(bytes: &mut &[u8]) -> Option<u64> {
    let word = u32::from_le_bytes(*bytes.first_chunk()?);
    let last_bytes = !word & 0x8080_8080;
    if last_bytes == 0 {
        return None;
    }
    let bits = last_bytes.trailing_zeros() + 1;
    let word = word & u32::MAX >> (u32::BITS - bits);
    let sevens = [0x7f, 0x3f80, 0x001f_c000, 0x0fe0_0000];
    let number = (0..4).fold(0, |number, index| number | word >> index & sevens[index]);
    *bytes = &bytes[bits as usize / 8..];
    Some(number.into())
}

fn decode_any(bytes: &mut &[u8]) -> Option<u64> {
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
    fn both_ways_of_decoding_agree() {
        let powers = (0..64).flat_map(|bits| [(1u64 << bits) - 1, 1 << bits, (1 << bits) + 0x55]);
        for number in powers {
            let mut bytes = coded(number);
            // With bytes behind it and without.
            for _ in 0..5 {
                let (mut one, mut other) = (&bytes[..], &bytes[..]);
                assert_eq!((decode(&mut one), decode_any(&mut other)), (Some(number), Some(number)));
                assert_eq!(one, other);
                bytes.push(0xff);
            }
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
