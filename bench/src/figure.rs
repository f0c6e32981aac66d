//! Figures as JSON lines, the last thing a benchmark prints.
//!
//! Owns their form: `{"figure": NAME, "value": NUMBER, "unit": UNIT}`.

/// Prints a figure.
#[expect(clippy::print_stdout, reason = "figures are a benchmark's output")]
pub fn print(figure: &str, value: f64, unit: &str) {
    let value = (value * 1000.0).round() / 1000.0;
    println!("{}", serde_json::json!({"figure": figure, "value": value, "unit": unit}));
}

/// The median; 0 of none.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        count if count % 2 == 1 => sorted[count / 2],
        count => f64::midpoint(sorted[count / 2 - 1], sorted[count / 2]),
    }
}
