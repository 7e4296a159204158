//! Formats numbers without allocation. Integers and times are formatted by tables, which take about
//! half as many instructions as `itoa`, and floats by `zmij`.

/// Maximum length of a formatted number or of a row of four, in bytes. It includes a leading comma
/// and space for a four-byte store at the end.
pub(super) const MAX_BYTES: usize = 128;

/// The destination of a formatted number.
pub(super) type NumberBuffer = [u8; MAX_BYTES];

const BILLION: u64 = 1_000_000_000;

/// Tabulates the three digits of each number below 1000, the first in the lowest byte.
///
/// The highest byte has the number of digits without leading zeros (`trims_front`) or without
/// trailing zeros.
const fn triples(trims_front: bool) -> [u32; 1000] {
    let mut table = [0; 1000];
    let mut number = 0;
    while number < 1000 {
        let (high, middle, low) = (number / 100, number / 10 % 10, number % 10);
        let zeros = match (trims_front, high, middle, low) {
            (true, 0, 0, _) => 2,
            (true, 0, _, _) => 1,
            (true, _, _, _) => 0,
            (false, 0, 0, 0) => 3,
            (false, _, 0, 0) => 2,
            (false, _, _, 0) => 1,
            (false, _, _, _) => 0,
        };
        let digits = 0x30_3030 | high | middle << 8 | low << 16;
        let digits = if trims_front {
            digits >> (8 * zeros)
        } else {
            digits
        };
        table[number as usize] = digits | (3 - zeros) << 24;
        number += 1;
    }
    table
}

static FIRST_DIGITS: [u32; 1000] = triples(true);
static LAST_DIGITS: [u32; 1000] = triples(false);

/// A number, or another short piece of JSON, that is being formatted.
pub(super) struct NumberText<'a> {
    bytes: &'a mut NumberBuffer,
    length: usize,
}

impl<'a> NumberText<'a> {
    /// Begins a text in `bytes`, with a comma if `has_comma` is true.
    #[inline]
    pub(super) fn begin(bytes: &'a mut NumberBuffer, has_comma: bool) -> Self {
        bytes[0] = b',';
        Self {
            bytes,
            length: usize::from(has_comma),
        }
    }

    pub(super) fn length(&self) -> usize {
        self.length
    }

    #[inline(always)]
    pub(super) fn push_unsigned(&mut self, number: u64) {
        if number < 1000 {
            self.push_table_entry(FIRST_DIGITS[number as usize]);
        } else if number < 1_000_000 {
            let number = number as u32;
            self.push_table_entry(FIRST_DIGITS[number as usize / 1000]);
            self.push_three_digits(number % 1000);
        } else {
            // `length` is passed by value, so that it stays in a register for all shorter numbers.
            self.length = write_long(self.bytes, self.length, number);
        }
    }

    #[inline]
    pub(super) fn push_signed(&mut self, number: i64) {
        if number < 0 {
            self.push(b'-');
        }
        self.push_unsigned(number.unsigned_abs());
    }

    /// Appends nanoseconds as milliseconds, with up to six decimals and without trailing zeros.
    #[inline(always)]
    pub(super) fn push_ns_in_ms(&mut self, ns: u64) {
        self.push_unsigned(ns / 1_000_000);
        let fraction = (ns % 1_000_000) as u32;
        if fraction == 0 {
            return;
        }
        self.push(b'.');
        let (first, last) = (fraction / 1000, fraction % 1000);
        if last == 0 {
            self.push_table_entry(LAST_DIGITS[first as usize]);
        } else {
            self.push_three_digits(first);
            self.push_table_entry(LAST_DIGITS[last as usize]);
        }
    }

    /// Appends a finite number with the fewest digits that read back as the same number, and
    /// without a fraction of zero.
    pub(super) fn push_float(&mut self, number: f64) {
        let mut buffer = zmij::Buffer::new();
        // Adding 0.0 turns -0.0 into 0.0.
        let text = buffer.format_finite(number + 0.0);
        self.extend(text.strip_suffix(".0").unwrap_or(text).as_bytes());
    }

    #[inline]
    pub(super) fn push(&mut self, byte: u8) {
        self.bytes[self.length] = byte;
        self.length += 1;
    }

    #[inline]
    pub(super) fn extend(&mut self, bytes: &[u8]) {
        self.bytes[self.length..][..bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }

    /// Appends the digits of a table entry. Stores four bytes; the next bytes overwrite the
    /// surplus.
    #[inline]
    fn push_table_entry(&mut self, triple: u32) {
        self.bytes[self.length..][..4].copy_from_slice(&triple.to_le_bytes());
        self.length += (triple >> 24) as usize;
    }

    /// Appends a number below 1000 as exactly three digits.
    #[inline]
    fn push_three_digits(&mut self, number: u32) {
        self.bytes[self.length..][..4]
            .copy_from_slice(&LAST_DIGITS[number as usize % 1000].to_le_bytes());
        self.length += 3;
    }
}

/// Writes a number with more than six digits at `length`, and returns the new length.
#[inline(never)]
fn write_long(bytes: &mut NumberBuffer, length: usize, number: u64) -> usize {
    let mut text = NumberText { bytes, length };
    if number >= BILLION {
        text.push_unsigned(number / BILLION);
        text.push_three_digits((number % BILLION / 1_000_000) as u32);
    } else {
        text.push_table_entry(FIRST_DIGITS[number as usize / 1_000_000]);
    }
    let rest = (number % 1_000_000) as u32;
    text.push_three_digits(rest / 1000);
    text.push_three_digits(rest % 1000);
    text.length
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut NumberText<'_>)) -> String {
        let mut buffer = [b'?'; MAX_BYTES];
        let mut text = NumberText::begin(&mut buffer, false);
        write(&mut text);
        let length = text.length();
        String::from_utf8(buffer[..length].to_vec()).expect("ASCII")
    }

    fn float(number: f64) -> String {
        text(|text| text.push_float(number))
    }

    /// Returns a fixed sequence of pseudo-random numbers.
    fn scattered() -> impl Iterator<Item = u64> {
        let step = |bits: &u64| {
            Some(
                bits.wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(99),
            )
        };
        std::iter::successors(Some(88_172_645_463_325_252u64), step).map(|bits| bits ^ bits >> 29)
    }

    #[test]
    fn integers_equal_those_of_the_standard_library() {
        let powers = (0..20)
            .map(|power| 10u64.pow(power))
            .flat_map(|power| [power - 1, power, power + 1]);
        for number in powers
            .chain([u64::MAX, 42, 99, 100])
            .chain(scattered().take(10_000))
        {
            for number in [number, number >> 17, number >> 40] {
                assert_eq!(text(|text| text.push_unsigned(number)), number.to_string());
                assert_eq!(
                    text(|text| text.push_signed(number as i64)),
                    (number as i64).to_string()
                );
            }
        }
        assert_eq!(
            text(|text| text.push_signed(i64::MIN)),
            i64::MIN.to_string()
        );
    }

    /// The cases are those of Gecko's `JSONTimeOutput`.
    #[test]
    fn times_have_at_most_six_decimals_and_no_trailing_zeros() {
        for (ns, expected) in [
            (0, "0"),
            (1, "0.000001"),
            (9, "0.000009"),
            (10, "0.00001"),
            (12, "0.000012"),
            (123, "0.000123"),
            (1_000, "0.001"),
            (1_001, "0.001001"),
            (100_000, "0.1"),
            (123_456, "0.123456"),
            (999_999, "0.999999"),
            (1_000_000, "1"),
            (1_000_001, "1.000001"),
            (1_500_000, "1.5"),
            (10_020_000, "10.02"),
            (23_841_461, "23.841461"),
            (123_456_789_012_345_678, "123456789012.345678"),
            (u64::MAX, "18446744073709.551615"),
        ] {
            assert_eq!(text(|text| text.push_ns_in_ms(ns)), expected);
        }
        for ns in scattered().take(10_000).map(|ns| ns >> 20) {
            let written = text(|text| text.push_ns_in_ms(ns));
            let (ms, fraction) = written.split_once('.').unwrap_or((&written, ""));
            assert!(!fraction.ends_with('0') && fraction.len() <= 6, "{written}");
            assert_eq!(format!("{ms}{fraction:0<6}").parse(), Ok(ns), "{written}");
        }
    }

    #[test]
    fn floats_have_no_needless_characters() {
        for (number, expected) in [
            (0.0, "0"),
            (-0.0, "0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (0.1, "0.1"),
            (0.001, "0.001"),
            (1e-7, "1e-7"),
            (-1.25e-9, "-1.25e-9"),
            (5e-324, "5e-324"),
            (100.0, "100"),
            (123.456, "123.456"),
            (0.1 + 0.2, "0.30000000000000004"),
            (1_700_000_000_000.25, "1700000000000.25"),
            (9_007_199_254_740_991.0, "9007199254740991"),
            (1.7976931348623157e308, "1.7976931348623157e+308"),
            (1.0 / 3.0, "0.3333333333333333"),
        ] {
            assert_eq!(float(number), expected);
        }
    }

    #[test]
    fn floats_read_back_with_the_shortest_digits() {
        let of_bits = scattered()
            .map(f64::from_bits)
            .filter(|number| number.is_finite());
        let of_decimals = scattered().map(|bits| (bits >> 30) as f64 / 1e3);
        let of_more = scattered().map(|bits| (bits >> 40) as f64 / 1e5);
        let powers = (-1074..1024).map(|power| 2f64.powi(power));
        for number in powers
            .chain(of_bits.take(10_000))
            .chain(of_decimals.take(10_000))
            .chain(of_more.take(10_000))
        {
            let written = float(number);
            assert_eq!(written.parse(), Ok(number));
            assert!(
                serde_json::from_str::<serde_json::Number>(&written).is_ok(),
                "{written}"
            );
            let digits = |text: &str| {
                let mantissa = text
                    .split('e')
                    .next()
                    .unwrap_or_default()
                    .replace(['-', '.'], "");
                mantissa.trim_matches('0').len()
            };
            assert_eq!(
                digits(&written),
                digits(&format!("{number:e}")),
                "{written}"
            );
        }
    }
}
