//! Medians and percentiles.

/// The value that `fraction` (0 to 1) of the values do not exceed (nearest rank); 0 for no values.
pub(super) fn percentile(values: &[f64], fraction: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank within the length"
    )]
    let rank = (fraction * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

/// The middle value, or the mean of the two in the middle; 0 for no values.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match (sorted.get(middle), sorted.len() % 2) {
        (Some(upper), 0) => f64::midpoint(*upper, sorted[middle - 1]),
        (Some(only), _) => *only,
        (None, _) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::{median, percentile};

    #[test]
    fn ranks() {
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert!((percentile(&hundred, 0.5) - 50.0).abs() < 1e-9);
        assert!((percentile(&hundred, 0.99) - 99.0).abs() < 1e-9);
        assert!((percentile(&[7.0], 0.99) - 7.0).abs() < 1e-9);
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
        assert!(median(&[]).abs() < 1e-9);
    }
}
