//! Variable-length numbers: ULEB128, with zigzag for signed ones.

/// Maximum length of an encoded number, in bytes.
pub(crate) const MAX_BYTES: usize = 10;

/// Encodes `number` into `out` and returns how many bytes it takes.
pub(crate) fn encode(mut number: u64, out: &mut [u8; MAX_BYTES]) -> usize {
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

/// Returns the number at the front of `bytes` and its length, or `None` if it is cut off or exceeds
/// 64 bits.
#[inline(always)]
pub(crate) fn decode(bytes: &[u8]) -> Option<(u64, usize)> {
    match bytes.first() {
        Some(&byte) if byte < 0x80 => Some((byte.into(), 1)),
        _ => decode_up_to_eight(bytes).or_else(|| decode_any(bytes)),
    }
}

/// Decodes a number of up to eight bytes if eight bytes can be read, without a branch for each
/// byte: merges pairs of 7-bit groups, then pairs of the results.
#[inline(always)]
fn decode_up_to_eight(bytes: &[u8]) -> Option<(u64, usize)> {
    let word = u64::from_le_bytes(*bytes.first_chunk()?);
    let last_bytes = !word & 0x8080_8080_8080_8080;
    if last_bytes == 0 {
        return None;
    }
    let bits = last_bytes.trailing_zeros() + 1;
    let sevens = word & u64::MAX >> (u64::BITS - bits);
    let pairs = sevens & 0x007f_007f_007f_007f | (sevens & 0x7f00_7f00_7f00_7f00) >> 1;
    let fours = pairs & 0x0000_3fff_0000_3fff | (pairs & 0x3fff_0000_3fff_0000) >> 2;
    let number = fours & 0x0fff_ffff | (fours & 0x0fff_ffff_0000_0000) >> 4;
    Some((number, bits as usize / 8))
}

#[cold]
fn decode_any(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut number = 0u64;
    for (index, &byte) in bytes.iter().enumerate().take(MAX_BYTES) {
        let low = u64::from(byte & 0x7f);
        if index == MAX_BYTES - 1 && low > 1 {
            return None;
        }
        number |= low << (7 * index as u32);
        if byte < 0x80 {
            return Some((number, index + 1));
        }
    }
    None
}

/// Maps signed numbers of small magnitude to small unsigned numbers.
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
    fn numbers_round_trip_in_minimal_length() {
        for (number, length) in [
            (0, 1),
            (127, 1),
            (128, 2),
            (16_383, 2),
            (16_384, 3),
            (u64::MAX, 10),
        ] {
            let bytes = coded(number);
            assert_eq!(bytes.len(), length);
            assert_eq!(decode(&bytes), Some((number, length)));
        }
    }

    #[test]
    fn fast_and_general_decoding_agree() {
        let powers = (0..64).flat_map(|bits| [(1u64 << bits) - 1, 1 << bits, (1 << bits) + 0x55]);
        for number in powers {
            let mut bytes = coded(number);
            // With and without bytes after it.
            let taken = bytes.len();
            for _ in 0..9 {
                assert_eq!(
                    (decode(&bytes), decode_any(&bytes)),
                    (Some((number, taken)), Some((number, taken)))
                );
                bytes.push(0xff);
            }
        }
    }

    #[test]
    fn decode_cut_or_overlong_number_returns_none() {
        assert_eq!(decode(&[]), None);
        assert_eq!(decode(&[0x80]), None);
        assert_eq!(decode(&[0xff; 11]), None);
        assert_eq!(
            decode(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]),
            None
        );
    }

    #[test]
    fn signed_numbers_round_trip() {
        for number in [0, 1, -1, 63, -64, i64::MAX, i64::MIN] {
            assert_eq!(unzigzag(zigzag(number)), number);
        }
        assert_eq!((zigzag(-1), zigzag(1), zigzag(-64)), (1, 2, 127));
    }
}
