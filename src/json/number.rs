//! Formatting of numbers, without allocation.

use std::io::Write;

/// Maximum length of a formatted number or of a row of four, in bytes. It includes a leading comma
/// and space for an eight-byte store at the end.
pub(super) const MAX_BYTES: usize = 128;

/// The destination of a formatted number.
pub(super) type NumberBuffer = [u8; MAX_BYTES];

const BILLION: u64 = 1_000_000_000;
const EIGHT_ZEROS: u64 = u64::from_le_bytes([b'0'; 8]);

/// Returns the decimal digits of a number below 10^8, one a byte, the first in the lowest byte.
///
/// Splits the number into two, four and then eight parts, and divides all parts of the 64-bit word
/// in parallel.
const fn eight_digits(number: u32) -> u64 {
    let (high, low) = (number as u64 / 10_000, number as u64 % 10_000);
    let fours = high | low << 32;
    let hundreds = ((fours * 10_486) >> 20) & 0x7f_0000_007f;
    let twos = hundreds | (fours - hundreds * 100) << 16;
    let tens = ((twos * 103) >> 10) & 0x000f_000f_000f_000f;
    tens | (twos - tens * 10) << 8
}

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
    /// Starts with a comma if `has_comma` is true.
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
            // Passed by value, so that the length stays in a register for all shorter numbers.
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

    /// Appends a finite number as EcmaScript's `Number.prototype.toString` formats it: with the
    /// shortest digits that read back the same, and with an exponent from 1e21 on and below 1e-6.
    pub(super) fn push_float(&mut self, number: f64) {
        if number < 0.0 {
            self.push(b'-');
        }
        let number = number.abs();
        // Most numbers have at most three decimals. If such a number has at most fifteen digits,
        // these are the shortest, because no other decimal of this length reads back the same.
        let thousandths = (number * 1e3).round();
        if thousandths < 1e15 && thousandths / 1e3 == number {
            let thousandths = thousandths as u64;
            self.push_unsigned(thousandths / 1000);
            self.push_decimals((thousandths % 1000) as u32 * 100_000);
        } else {
            self.push_shortest(number);
        }
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

    /// Appends the first `count` of eight digits. Stores all eight; the next bytes overwrite the
    /// surplus.
    #[inline]
    fn push_digits(&mut self, digits: u64, count: u32) {
        self.bytes[self.length..][..8].copy_from_slice(&(digits | EIGHT_ZEROS).to_le_bytes());
        self.length += count as usize;
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

    /// Appends a point and an eight-digit fraction without trailing zeros; nothing for 0.
    fn push_decimals(&mut self, fraction: u32) {
        if fraction != 0 {
            let digits = eight_digits(fraction);
            self.push(b'.');
            self.push_digits(digits, 8 - digits.leading_zeros() / 8);
        }
    }

    /// Appends a positive number with its shortest digits.
    fn push_shortest(&mut self, number: f64) {
        let mut scientific = [0; MAX_BYTES];
        // The standard library's digits are the shortest; only the notation differs.
        let scientific = format_into(&mut scientific, format_args!("{number:e}"));
        let (digits, exponent) = split_scientific(scientific);
        round_midway_to_even(digits, exponent, number);
        let digits = &*digits;
        let (first, others) = (&digits[..1], digits.get(2..).unwrap_or_default());
        // Position of the decimal point, counted from before the first digit.
        let point = exponent + 1;
        let count = 1 + others.len() as i32;
        match point {
            1..=21 if count <= point => {
                self.extend(first);
                self.extend(others);
                (count..point).for_each(|_| self.push(b'0'));
            }
            1..=21 => {
                let (whole, fraction) = others.split_at(point as usize - 1);
                self.extend(first);
                self.extend(whole);
                self.push(b'.');
                self.extend(fraction);
            }
            -5..=0 => {
                self.extend(b"0.");
                (point..0).for_each(|_| self.push(b'0'));
                self.extend(first);
                self.extend(others);
            }
            _ => {
                self.extend(first);
                if !others.is_empty() {
                    self.push(b'.');
                    self.extend(others);
                }
                self.extend(if exponent < 0 { b"e-" } else { b"e+" });
                self.push_unsigned(exponent.unsigned_abs().into());
            }
        }
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

/// Formats `text` into `buffer`, which is large enough for every number, and returns the result.
fn format_into<'a>(buffer: &'a mut NumberBuffer, text: std::fmt::Arguments<'_>) -> &'a mut [u8] {
    let mut rest = &mut buffer[..];
    let _ = rest.write_fmt(text);
    let length = MAX_BYTES - rest.len();
    &mut buffer[..length]
}

/// Splits a number such as `1.5e-7` into its digits, with a point after the first if there are
/// several, and its exponent.
fn split_scientific(text: &mut [u8]) -> (&mut [u8], i32) {
    let at = text
        .iter()
        .position(|&byte| byte == b'e')
        .unwrap_or(text.len());
    let (digits, exponent) = text.split_at_mut(at);
    let exponent = str::from_utf8(exponent.get(1..).unwrap_or_default()).ok();
    (
        digits,
        exponent
            .and_then(|exponent| exponent.parse().ok())
            .unwrap_or(0),
    )
}

fn is_power_of_two(number: f64) -> bool {
    number.to_bits().trailing_zeros() >= f64::MANTISSA_DIGITS - 1
}

/// Returns the number of places after the binary point of a positive number; 0 or less for an
/// integer.
fn binary_places(number: f64) -> i32 {
    const FRACTION_BITS: i32 = f64::MANTISSA_DIGITS as i32 - 1;
    let (exponent, fraction) = (
        number.to_bits() >> FRACTION_BITS,
        number.to_bits() & ((1 << FRACTION_BITS) - 1),
    );
    // The implicit leading bit is the lowest set bit if the fraction is 0.
    let zeros = (fraction | 1 << FRACTION_BITS).trailing_zeros() as i32;
    FRACTION_BITS - zeros - (exponent as i32 - (f64::MAX_EXP - 1))
}

/// Rounds the last digit to even if the number is exactly midway between two shortest decimals: the
/// standard library chooses the greater, EcmaScript the one with an even last digit.
fn round_midway_to_even(digits: &mut [u8], exponent: i32, number: f64) {
    // With fewer digits the two decimals are too far apart to read back as the same number.
    const MIN_DIGITS: usize = 16;
    let Some((last, before)) = digits.split_last_mut() else {
        return;
    };
    let decimals = before.len() as i32 - 1 - exponent;
    // A number midway between two decimals has one decimal place more than they do, and as many
    // binary places as decimal places. Just below a power of two, floats are closer together, so
    // the smaller decimal reads back as another number.
    let is_possible = match binary_places(number) {
        _ if is_power_of_two(number) => false,
        places @ 1.. => places == decimals + 1,
        _ => decimals < 0,
    };
    if before.len() < MIN_DIGITS || last.is_multiple_of(2) || !is_possible {
        return;
    }
    let mut exact = [0; MAX_BYTES];
    let exact = format_into(&mut exact, format_args!("{number:.25e}"));
    let rest = exact
        .strip_prefix(before)
        .and_then(|rest| rest.strip_prefix(&[*last - 1, b'5']));
    if rest.is_some_and(|rest| {
        rest.iter()
            .take_while(|&&byte| byte != b'e')
            .all(|&byte| byte == b'0')
    }) {
        *last -= 1;
    }
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
    fn floats_equal_those_of_ecmascript() {
        for (number, expected) in [
            (0.0, "0"),
            (-0.0, "0"),
            (1.0, "1"),
            (-1.5, "-1.5"),
            (0.1, "0.1"),
            (0.001, "0.001"),
            (0.000123, "0.000123"),
            (0.000001, "0.000001"),
            (0.0000015, "0.0000015"),
            (9.99999e-7, "9.99999e-7"),
            (1e-7, "1e-7"),
            (-1.25e-9, "-1.25e-9"),
            (5e-324, "5e-324"),
            (2.2250738585072014e-308, "2.2250738585072014e-308"),
            (100.0, "100"),
            (123.456, "123.456"),
            (0.1 + 0.2, "0.30000000000000004"),
            (23.841461000000002, "23.841461000000002"),
            (1_700_000_000_000.25, "1700000000000.25"),
            (9_007_199_254_740_991.0, "9007199254740991"),
            (1e15, "1000000000000000"),
            (1e20, "100000000000000000000"),
            (123456789012345680000.0, "123456789012345680000"),
            (999999999999999900000.0, "999999999999999900000"),
            (1e21, "1e+21"),
            (-1.5e21, "-1.5e+21"),
            (1.7976931348623157e308, "1.7976931348623157e+308"),
            (1.0 / 3.0, "0.3333333333333333"),
            (4.35, "4.35"),
            (0.000035, "0.000035"),
            (2e-3 / 3.0, "0.0006666666666666666"),
            // Midway between two decimals, a power of two among them.
            (2f64.powi(-24), "5.960464477539063e-8"),
            (87_754_195_502_575.0 + 0.125, "87754195502575.12"),
            (-1_487_824_212_577_976.0 - 0.25, "-1487824212577976.2"),
            (1_433_259_392_540_249.0 + 0.75, "1433259392540249.8"),
            (8_796_093_022_208.0 + 0.0625, "8796093022208.062"),
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
