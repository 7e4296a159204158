//! What becomes of the runs of an arm.

/// Returns the median, or NaN without values. For an even number, it is the mean of the middle two.
pub(crate) fn median(values: &[f64]) -> f64 {
    let sorted = sorted(values);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

/// Returns the smallest value, which is the time with the fewest disturbances, or infinity without
/// values.
pub(crate) fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Returns the value that a share `part` of all values does not exceed, or NaN without values.
#[allow(dead_code, reason = "`cargo bench` needs only the median")]
pub(crate) fn percentile(values: &[f64], part: f64) -> f64 {
    let sorted = sorted(values);
    let place = (sorted.len() as f64 * part).ceil() as usize;
    let found = sorted.get(place.saturating_sub(1));
    found.copied().unwrap_or(f64::NAN)
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}
