//! The counters of a profile.

use serde_json::Value;

/// Returns the counters with this name.
pub(crate) fn counters_of<'a>(profile: &'a Value, name: &str) -> Vec<&'a Value> {
    let counters = profile["counters"].as_array().into_iter().flatten();
    counters.filter(|counter| counter["name"] == name).collect()
}

/// Returns the only counter with this name.
pub(crate) fn counter<'a>(profile: &'a Value, name: &str) -> &'a Value {
    let found = counters_of(profile, name);
    assert_eq!(found.len(), 1, "{name}");
    found[0]
}

/// Returns the sums of the changes and of the operations of a counter.
pub(crate) fn sums(counter: &Value) -> [i64; 2] {
    let rows = counter["samples"]["data"].as_array().expect("rows");
    let times: Vec<_> = rows
        .iter()
        .map(|row| row[0].as_f64().expect("a time"))
        .collect();
    assert!(times.is_sorted(), "{times:?}");
    let sum = |index: usize| {
        let values = rows.iter().filter_map(|row| row[index].as_i64());
        values.fold(0i64, i64::wrapping_add)
    };
    [sum(1), sum(2)]
}
