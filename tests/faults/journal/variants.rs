//! The kinds of filters that a writer has.

use testkit::clock::SECOND;
use testkit::filter_model::EXACT;

/// The parameters of a kind of filter. If a variant has `merges`, a writer can merge its own filters of that kind.
pub(crate) struct Variant {
    pub name: &'static str,
    /// The error rate and the capacity; `None` for the server's defaults.
    pub parameters: Option<(&'static str, &'static str)>,
    pub options: &'static str,
    /// The largest number of different items.
    pub items: u64,
    /// The merge operations that the journal can check. A union that exceeds its capacity has false positives.
    pub merges: &'static [&'static str],
}

impl Variant {
    pub(crate) const fn new(
        name: &'static str,
        error_rate: &'static str,
        capacity: &'static str,
        options: &'static str,
        items: u64,
        merges: &'static [&'static str],
    ) -> Variant {
        Variant { name, parameters: Some((error_rate, capacity)), options, items, merges }
    }

    pub(crate) fn counts(&self) -> bool {
        self.options.contains("COUNTING")
    }

    pub(crate) fn forgets(&self) -> bool {
        self.options.contains("WINDOW")
    }
}

/// The window of filters that forget, in milliseconds. The tests set the clock only to starts of slices, so items are
/// forgotten after exactly this time.
pub(crate) const WINDOW: i64 = 4 * SECOND;

pub(crate) static VARIANTS: [Variant; 13] = [
    Variant::new("plain", EXACT, "5000", "", 1000, &["UNION", "INTERSECT"]),
    Variant::new("grown", "0.05", "10", "EXPANSION 2", 3000, &["UNION"]),
    Variant::new("grown-exact", EXACT, "10", "EXPANSION 2", 2000, &[]),
    Variant::new("counting", EXACT, "5000", "COUNTING", 500, &["UNION"]),
    Variant::new("counting-fixed", EXACT, "5000", "NONSCALING COUNTING", 500, &["UNION", "INTERSECT"]),
    Variant::new("counting-grown", EXACT, "10", "EXPANSION 2 COUNTING", 2000, &["UNION"]),
    Variant::new("counting-careless", "0.1", "10", "EXPANSION 1 COUNTING", 300, &["UNION"]),
    Variant::new("windowed", EXACT, "5000", "WINDOW 4 SLICES 4 NONSCALING", 500, &[]),
    Variant::new("windowed-grown", EXACT, "10", "WINDOW 4 SLICES 4 REFRESH", 1000, &[]),
    Variant::new("rolling", EXACT, "500", "ROLLING", 500, &[]),
    Variant::new("classic", "0.01", "5000", "LAYOUT classic", 1000, &["UNION", "INTERSECT"]),
    Variant::new("classic-grown", "0.05", "10", "EXPANSION 2 LAYOUT classic", 3000, &["UNION"]),
    Variant { name: "default", parameters: None, options: "", items: 2000, merges: &[] },
];
