//! Numbers as text, without an allocation.

use std::io::Write;

/// No number's text is longer.
pub(super) const MOST_BYTES: usize = 32;

/// The text of a number, in the first bytes.
pub(super) struct NumberText {
    pub(super) bytes: [u8; MOST_BYTES],
    pub(super) length: usize,
}

/// From "00" to "99".
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + number as u8 / 10, b'0' + number as u8 % 10];
        number += 1;
    }
    pairs
};

impl NumberText {
    fn new() -> Self {
        Self { bytes: [0; MOST_BYTES], length: 0 }
    }

    pub(super) fn of_unsigned(number: u64) -> Self {
        let mut text = Self::new();
        text.push_unsigned(number);
        text
    }

    pub(super) fn of_signed(number: i64) -> Self {
        let mut text = Self::new();
        if number < 0 {
            text.push(b'-');
        }
        text.push_unsigned(number.unsigned_abs());
        text
    }

    /// Nanoseconds as milliseconds: up to six decimals, without zeros at the end.
    pub(super) fn of_ns_in_ms(ns: u64) -> Self {
        let mut text = Self::new();
        text.push_unsigned(ns / 1_000_000);
        text.push_decimals::<6>((ns % 1_000_000) as u32);
        text
    }

    /// A finite number as EcmaScript's `Number.prototype.toString` has it: the shortest digits that read back the same,
    /// with an exponent from 1e21 on and below 1e-6.
    pub(super) fn of_float(number: f64) -> Self {
        let mut text = Self::new();
        if number < 0.0 {
            text.push(b'-');
        }
        let number = number.abs();
        // Most numbers have up to three decimals. With at most fifteen digits no other so short text reads back the same, so
        // that these are the shortest digits.
        let thousandths = (number * 1e3).round();
        if thousandths < 1e15 && thousandths / 1e3 == number {
            let thousandths = thousandths as u64;
            text.push_unsigned(thousandths / 1000);
            text.push_decimals::<3>((thousandths % 1000) as u32);
        } else {
            text.push_shortest(number);
        }
        text
    }

    fn push(&mut self, byte: u8) {
        self.bytes[self.length] = byte;
        self.length += 1;
    }

    fn extend(&mut self, bytes: &[u8]) {
        self.bytes[self.length..][..bytes.len()].copy_from_slice(bytes);
        self.length += bytes.len();
    }

    fn push_unsigned(&mut self, mut number: u64) {
        let count = number.checked_ilog10().unwrap_or(0) as usize + 1;
        let digits = &mut self.bytes[self.length..][..count];
        let mut end = count;
        while number >= 100 {
            digits[end - 2..end].copy_from_slice(&PAIRS[(number % 100) as usize]);
            number /= 100;
            end -= 2;
        }
        if end == 2 {
            digits[..2].copy_from_slice(&PAIRS[number as usize]);
        } else {
            digits[0] = b'0' + number as u8;
        }
        self.length += count;
    }

    /// A point and so many digits of a fraction below `10^DIGITS`, up to the last that is not 0; nothing for 0.
    fn push_decimals<const DIGITS: usize>(&mut self, mut fraction: u32) {
        if fraction == 0 {
            return;
        }
        let decimals = &mut self.bytes[self.length..][..=DIGITS];
        decimals[0] = b'.';
        let mut end = DIGITS;
        while fraction.is_multiple_of(10) {
            fraction /= 10;
            end -= 1;
        }
        for digit in decimals[1..=end].iter_mut().rev() {
            *digit = b'0' + (fraction % 10) as u8;
            fraction /= 10;
        }
        self.length += 1 + end;
    }

    /// Of a positive number.
    fn push_shortest(&mut self, number: f64) {
        let mut scientific = [0; MOST_BYTES];
        let mut rest = &mut scientific[..];
        // The standard library's digits are the shortest; only their arrangement is another. They have room.
        let _ = write!(rest, "{number:e}");
        let unused = rest.len();
        let scientific = &scientific[..MOST_BYTES - unused];
        let (digits, exponent) = split_scientific(scientific);
        let (first, others) = (&digits[..1], digits.get(2..).unwrap_or_default());
        // Where the point is, counted from before the first digit.
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

/// The digits, which have a point after the first if there are several, and the exponent of `1.5e-7`.
fn split_scientific(text: &[u8]) -> (&[u8], i32) {
    let at = text.iter().position(|&byte| byte == b'e').unwrap_or(text.len());
    let (digits, exponent) = text.split_at(at);
    let exponent = str::from_utf8(exponent.get(1..).unwrap_or_default()).ok();
    (digits, exponent.and_then(|exponent| exponent.parse().ok()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: NumberText) -> String {
        String::from_utf8(text.bytes[..text.length].to_vec()).expect("ASCII")
    }

    /// Some numbers that look random, the same each time.
    fn scattered() -> impl Iterator<Item = u64> {
        let step = |bits: &u64| Some(bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99));
        std::iter::successors(Some(88_172_645_463_325_252u64), step).map(|bits| bits ^ bits >> 29)
    }

    #[test]
    fn integers_are_as_the_standard_library_writes_them() {
        let powers = (0..20).map(|power| 10u64.pow(power)).flat_map(|power| [power - 1, power, power + 1]);
        for number in powers.chain([u64::MAX, 42, 99, 100]).chain(scattered().take(10_000)) {
            for number in [number, number >> 17, number >> 40] {
                assert_eq!(text(NumberText::of_unsigned(number)), number.to_string());
                assert_eq!(text(NumberText::of_signed(number as i64)), (number as i64).to_string());
            }
        }
        assert_eq!(text(NumberText::of_signed(i64::MIN)), i64::MIN.to_string());
    }

    /// Gecko's `JSONTimeOutput`.
    #[test]
    fn times_have_up_to_six_decimals_and_no_zeros_at_their_end() {
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
            assert_eq!(text(NumberText::of_ns_in_ms(ns)), expected);
        }
        for ns in scattered().take(10_000).map(|ns| ns >> 20) {
            let written = text(NumberText::of_ns_in_ms(ns));
            let (ms, fraction) = written.split_once('.').unwrap_or((&written, ""));
            assert!(!fraction.ends_with('0') && fraction.len() <= 6, "{written}");
            assert_eq!(format!("{ms}{fraction:0<6}").parse(), Ok(ns), "{written}");
        }
    }

    #[test]
    fn floats_are_as_ecmascript_writes_them() {
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
        ] {
            assert_eq!(text(NumberText::of_float(number)), expected);
        }
    }

    #[test]
    fn floats_read_back_with_the_shortest_digits() {
        let of_bits = scattered().map(f64::from_bits).filter(|number| number.is_finite());
        let of_decimals = scattered().map(|bits| (bits >> 30) as f64 / 1e3);
        let of_more = scattered().map(|bits| (bits >> 40) as f64 / 1e5);
        for number in of_bits.take(10_000).chain(of_decimals.take(10_000)).chain(of_more.take(10_000)) {
            let written = text(NumberText::of_float(number));
            assert_eq!(written.parse(), Ok(number));
            let digits = |text: &str| {
                let mantissa = text.split('e').next().unwrap_or_default().replace(['-', '.'], "");
                mantissa.trim_matches('0').len()
            };
            assert_eq!(digits(&written), digits(&format!("{number:e}")), "{written}");
        }
    }
}
