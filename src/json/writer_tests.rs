//! Tests of the JSON writer.

use super::*;

fn written(body: impl FnOnce(&mut JsonWriter<'_>)) -> String {
    let mut out = Vec::new();
    let mut json = JsonWriter::new(&mut out);
    body(&mut json);
    json.finish().expect("a vector never fails");
    String::from_utf8(out).expect("UTF-8")
}

/// A sink that records each write separately.
#[derive(Default)]
struct SinkWrites(Vec<Vec<u8>>);

impl Write for SinkWrites {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.push(bytes.to_vec());
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn objects_and_arrays_are_compact_json() {
    let text = written(|json| {
        json.object(|json| {
            json.key("a").array(|json| {
                json.unsigned(0);
                json.signed(-7);
                json.array(|_| {});
                json.null();
                json.float(-0.0);
                json.time_ms(1_500_000);
            });
            json.key("b").bool(true);
            json.key("c").splice("{}");
        });
    });
    assert_eq!(text, r#"{"a":[0,-7,[],null,0,1.5],"b":true,"c":{}}"#);
}

#[test]
fn row_holds_the_four_longest_numbers() {
    let text = written(|json| {
        json.array(|json| {
            json.row(|_| {});
            json.row(|row| row.null());
            json.row(|row| {
                row.unsigned(u64::MAX);
                row.time_ms(u64::MAX);
                row.signed(i64::MIN);
                row.time_ms(u64::MAX - 1);
            });
            json.unsigned(7);
        });
    });
    let row =
        "[18446744073709551615,18446744073709.551615,-9223372036854775808,18446744073709.551614]";
    assert_eq!(text, format!("[[],[null],{row},7]"));
}

#[test]
fn any_string_reads_back() {
    let hostile = "quote \" slash \\ line \n bell \u{7} nul \0 µ \u{1f600} \u{2028}";
    for text in [hostile.to_owned(), hostile.repeat(10_000)] {
        let json = written(|json| json.string(&text));
        assert_eq!(serde_json::from_str::<String>(&json).expect("JSON"), text);
        assert_eq!(written(|json| json.text_bytes(text.as_bytes())), json);
    }
}

#[test]
fn text_bytes_replaces_each_invalid_part() {
    let lone_surrogate = b"\xed\xa0\x80\xed\xbf\xbf";
    let cut = ["\u{1f600}", "\u{20ac}", "é"].map(|text| &text.as_bytes()[..text.len() - 1]);
    let cases = [
        b"\xff".as_slice(),
        b"a\x80\"b",
        lone_surrogate,
        cut[0],
        cut[1],
        cut[2],
        b"\xc0\xaf",
    ];
    for bad in cases {
        for text in [
            bad.to_vec(),
            [b"before ", bad, b" after"].concat(),
            bad.repeat(5000),
        ] {
            let read: String =
                serde_json::from_str(&written(|json| json.text_bytes(&text))).expect("JSON");
            assert_eq!(read, String::from_utf8_lossy(&text));
        }
    }
    assert_eq!(
        written(|json| json.text_bytes(b"a\xffb\xe2\x82")),
        "\"a\u{fffd}b\u{fffd}\""
    );
}

#[test]
fn nan_and_infinite_floats_are_null() {
    for number in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(written(|json| json.float(number)), "null");
    }
}

#[test]
fn output_is_independent_of_buffer_boundaries() {
    let row = |json: &mut JsonWriter<'_>, number: u64| {
        json.array(|json| {
            json.unsigned(number);
            json.string("a \"b\" c");
            json.float(number as f64 / 7.0);
        });
    };
    let one = |number| written(|json| row(json, number));
    for shift in 0..40 {
        let padding = "x".repeat(shift);
        let text = written(|json| {
            json.array(|json| {
                json.string(&padding);
                (0..3000).for_each(|number| row(json, number));
            });
        });
        let rows: Vec<String> = (0..3000).map(one).collect();
        assert!(
            text == format!("[\"{padding}\",{}]", rows.join(",")),
            "with {shift} bytes before"
        );
        assert!(text.len() > BUFFER_BYTES);
    }
}

#[test]
fn long_values_go_to_the_sink_unbuffered() {
    let long = "y".repeat(LONG_BYTES);
    let mut sink = SinkWrites::default();
    let mut json = JsonWriter::new(&mut sink);
    json.array(|json| {
        json.splice(&long);
        json.string(&long);
        json.unsigned(1);
    });
    json.finish().expect("nothing fails");
    let writes: Vec<&[u8]> = sink.0.iter().map(Vec::as_slice).collect();
    assert_eq!(
        writes,
        [
            b"[".as_slice(),
            long.as_bytes(),
            b",\"",
            long.as_bytes(),
            b"\",1]"
        ]
    );
}

#[test]
fn failed_attempt_of_any_length_leaves_no_output() {
    let long = "w".repeat(3 * BUFFER_BYTES);
    for (shift, length) in
        (0..20).flat_map(|shift| [0, 10, LONG_BYTES, 3 * BUFFER_BYTES].map(|l| (shift, l)))
    {
        let row = |json: &mut JsonWriter<'_>| {
            json.open(true);
            json.string(&long[..length]);
            (0..length / 4).for_each(|number| json.unsigned(number as u64));
            json.close(true);
        };
        let with = |attempts: &[bool]| {
            written(|json| {
                json.array(|json| {
                    json.string(&long[..BUFFER_BYTES - 20 - shift]);
                    for &is_kept in attempts {
                        let result = json.attempt(|json| {
                            row(json);
                            is_kept
                        });
                        assert_eq!(result, is_kept);
                    }
                    json.unsigned(7);
                });
            })
        };
        assert!(with(&[false, false]) == with(&[]), "{shift} {length}");
        assert!(
            with(&[false, true, false, true]) == with(&[true, true]),
            "{shift} {length}"
        );
        assert!(serde_json::from_str::<serde_json::Value>(&with(&[true])).is_ok());
    }
}

#[test]
fn long_attempt_releases_its_memory() {
    let mut sink = SinkWrites::default();
    let mut json = JsonWriter::new(&mut sink);
    json.array(|json| {
        json.unsigned(1);
        json.attempt(|json| {
            json.string(&"v".repeat(5 * BUFFER_BYTES));
            false
        });
        assert_eq!(
            (json.buffer.len(), json.buffer.capacity() < 2 * BUFFER_BYTES),
            (BUFFER_BYTES, true)
        );
        json.unsigned(2);
    });
    json.finish().expect("nothing fails");
    assert_eq!(sink.0.concat(), b"[1,2]");
}

#[test]
fn sink_failure_is_returned_and_ends_output() {
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            self.0 += 1;
            Err(std::io::Error::other(format!("full, attempt {}", self.0)))
        }
        fn flush(&mut self) -> std::io::Result<()> {
            self.0 += 1;
            Ok(())
        }
    }
    let mut sink = Full(0);
    let latch = FailureLatch::fallible();
    let mut json = JsonWriter::for_job(&mut sink, latch.clone());
    json.array(|json| (0..50_000).for_each(|number| json.unsigned(number)));
    json.string(&"z".repeat(2 * BUFFER_BYTES));
    assert!(json.failed() && latch.failed());
    assert_eq!(json.finish().unwrap_err().to_string(), "full, attempt 1");
    assert_eq!(sink.0, 1);
}

#[test]
fn failure_elsewhere_in_the_job_ends_output() {
    let mut sink = SinkWrites::default();
    let latch = FailureLatch::fallible();
    let mut json = JsonWriter::for_job(&mut sink, latch.clone());
    json.unsigned(1);
    latch.set_failure(std::io::Error::other("elsewhere"));
    assert_eq!(json.finish().unwrap_err().to_string(), "elsewhere");
    assert!(sink.0.is_empty());
}

fn escaped(text: &str) -> String {
    let mut out = Vec::new();
    escape(text.as_bytes(), |part| out.extend_from_slice(part));
    String::from_utf8(out).expect("UTF-8")
}

#[test]
fn each_byte_at_each_position_reads_back() {
    for length in [0, 1, 7, 15, 16, 17, 31, 32, 40] {
        for at in 0..length {
            for byte in 0..128u8 {
                let mut text = "é".repeat(length / 2) + &"x".repeat(length % 2);
                text.insert(text.char_boundary_before(at), char::from(byte));
                let json = format!("\"{}\"", escaped(&text));
                assert_eq!(serde_json::from_str::<String>(&json).expect("JSON"), text);
            }
        }
    }
}

trait CharBoundary {
    fn char_boundary_before(&self, at: usize) -> usize;
}

impl CharBoundary for String {
    fn char_boundary_before(&self, at: usize) -> usize {
        (0..=at)
            .rev()
            .find(|&at| self.is_char_boundary(at))
            .unwrap_or(0)
    }
}

#[test]
fn text_is_plain_if_it_has_no_byte_to_escape() {
    for length in 0..70 {
        let plain = vec![b'x'; length];
        assert!(is_plain(&plain), "{length}");
        for at in 0..length {
            for byte in [0, 0x1f, b'"', b'\\'] {
                let mut text = plain.clone();
                text[at] = byte;
                assert!(!is_plain(&text), "{byte} at {at} of {length}");
            }
        }
    }
}

#[test]
fn text_without_escapes_is_passed_in_one_part() {
    let text = "no escape in this: µ \u{7f} \u{2028} \u{1f600}";
    let mut parts = Vec::new();
    escape(text.as_bytes(), |part| parts.push(part.to_vec()));
    assert_eq!(parts, [text.as_bytes()]);
    assert_eq!(escaped("\0\u{1f}\"\\\n\r\t"), r#"\u0000\u001f\"\\\n\r\t"#);
}
