//! Draws the charts: bars for the processor time per item.

use plotters::prelude::*;

use crate::format::{describe, described};
use crate::packed::PackedResults;
use crate::peers::{MAIN, Peer};
use crate::workloads::{Delivery, GROWN, LARGE, Operation, Results, Subject, Workload};

/// A group of bars, each with its peer and time.
type Bars = Vec<(Peer, f64)>;

/// The length of the items that are shown.
const LENGTH: usize = 28;

/// Lengths in pixels. The picture is narrow, so that its text can be read on a phone.
const WIDTH: i32 = 440;
const MARGIN: i32 = 10;
const TOP: i32 = 82;
const LABEL: i32 = 18;
const BAR: i32 = 15;
const GAP: i32 = 10;
const VALUES: i32 = 48;

fn color(peer: Peer) -> RGBColor {
    match peer {
        Peer::Oxbloom => RGBColor(200, 80, 30),
        Peer::Classic => RGBColor(235, 160, 110),
        Peer::RedisBloom => RGBColor(120, 130, 150),
        Peer::Floor => RGBColor(205, 210, 220),
    }
}

/// Returns a style sheet with the colours for dark backgrounds. Its rules take precedence over the attributes that
/// plotters writes.
fn dark_style() -> String {
    let replaced = [(WHITE, "#0d1117"), (color(Peer::Oxbloom), "#e8703c"), (color(Peer::Floor), "#4d5560")];
    let rules = replaced
        .map(|(RGBColor(red, green, blue), dark)| {
            format!("    rect[fill=\"#{red:02X}{green:02X}{blue:02X}\"] {{ fill: {dark} }}\n")
        })
        .concat();
    format!("\n<style>\n  @media (prefers-color-scheme: dark) {{\n    text {{ fill: #f0f6fc }}\n{rules}  }}\n</style>")
}

/// The comparisons that are shown after packed items: a command with many items and one with a single item, on a filter
/// that is larger than the cache; and a command with many items on a filter that has grown.
const SHOWN: [(Subject, Delivery, Operation); 6] = [
    (LARGE, Delivery::Batch(100), Operation::AddNew),
    (LARGE, Delivery::Batch(100), Operation::ExistsHit),
    (LARGE, Delivery::Batch(100), Operation::ExistsMiss),
    (LARGE, Delivery::Pipelined, Operation::AddNew),
    (LARGE, Delivery::Pipelined, Operation::ExistsHit),
    (GROWN, Delivery::Batch(100), Operation::ExistsHit),
];

/// Draws the processor time of the commands that matter most to a reader.
pub(crate) fn speeds(results: &Results, packed: &PackedResults) -> String {
    let packed = packed.times_on(LARGE.name).map(|(operation, bars)| {
        let label = format!("{}: packed × 10,000, {} (RedisBloom × 1,000)", LARGE.name, described(operation));
        (label, bars.into())
    });
    let groups = SHOWN.map(|(subject, delivery, operation)| {
        let workload = Workload { subject: subject.name, delivery, operation, length: LENGTH };
        let bars = MAIN.map(|peer| (peer, results[&(workload, peer)].cpu.median()));
        (format!("{}: {}", subject.name, describe(workload)), bars.into())
    });
    let groups: Vec<_> = packed.into_iter().chain(groups).collect();
    let items = format!("{LENGTH} bytes (packed: 20)");
    svg(&items, &MAIN.map(|peer| (peer, peer.name())), &groups).expect("a picture")
}

/// Draws the processor time of a look-up in packed commands, batches and commands of their own, for the README.
pub(crate) fn summary(results: &Results, packed: &PackedResults) -> String {
    let peers = [Peer::Oxbloom, Peer::RedisBloom];
    let of_delivery = |delivery| {
        let workload = Workload { subject: LARGE.name, delivery, operation: Operation::ExistsHit, length: LENGTH };
        peers.map(|peer| (peer, results[&(workload, peer)].cpu.median())).into()
    };
    let [_, (_, [own, redisbloom, _])] = packed.times_on(LARGE.name);
    let groups = [
        ("10,000 packed items in a command (RedisBloom: 1,000)".to_owned(), vec![own, redisbloom]),
        ("100 items in a command".to_owned(), of_delivery(Delivery::Batch(100))),
        ("one item in a command".to_owned(), of_delivery(Delivery::Pipelined)),
    ];
    svg("20 or 28 bytes", &peers.map(|peer| (peer, peer.name())), &groups).expect("a picture")
}

/// Draws labelled groups of bars, given the size of the items.
pub(crate) fn svg(
    items: &str,
    legend: &[(Peer, &str)],
    groups: &[(String, Bars)],
) -> Result<String, Box<dyn std::error::Error>> {
    let bars = || groups.iter().flat_map(|(_, bars)| bars);
    let longest = bars().map(|&(_, time)| time).fold(1.0, f64::max);
    let scale = f64::from(WIDTH - MARGIN - VALUES) / longest;
    let height = TOP + bars().count() as i32 * BAR + groups.len() as i32 * (LABEL + GAP);

    let mut image = String::new();
    {
        let area = SVGBackend::with_string(&mut image, (WIDTH as u32, height as u32)).into_drawing_area();
        area.fill(&WHITE)?;
        let font = |size: i32| ("sans-serif", size).into_font().color(&BLACK);
        area.draw(&Text::new("Processor time of the whole server", (MARGIN, 10), font(18)))?;
        let unit = format!("in nanoseconds for an item of {items}; shorter is better");
        area.draw(&Text::new(unit, (MARGIN, 29), font(15)))?;
        for (index, &(peer, name)) in legend.iter().enumerate() {
            let left = MARGIN + (WIDTH - MARGIN) / legend.len() as i32 * index as i32;
            area.draw(&Rectangle::new([(left, 55), (left + 12, 67)], color(peer).filled()))?;
            area.draw(&Text::new(name, (left + 18, 55), font(15)))?;
        }
        let mut top = TOP;
        for (label, bars) in groups {
            area.draw(&Text::new(label.as_str(), (MARGIN, top), font(15)))?;
            top += LABEL;
            for &(peer, time) in bars {
                let end = MARGIN + (time * scale) as i32;
                area.draw(&Rectangle::new([(MARGIN, top), (end, top + BAR - 2)], color(peer).filled()))?;
                area.draw(&Text::new(format!("{time:.0}"), (end + 5, top), font(14)))?;
                top += BAR;
            }
            top += GAP;
        }
        area.present()?;
    }
    let start = image.find('>').map_or(0, |end| end + 1);
    image.insert_str(start, &dark_style());
    Ok(image)
}
