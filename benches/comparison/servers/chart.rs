//! Draws the chart: bars for the processor time per item.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::format::describe;
use crate::peers::{MAIN, Peer};
use crate::workloads::{Delivery, GROWN, LARGE, Operation, Results, Subject, Workload};

/// A group of bars, each with its peer and time.
type Bars = Vec<(Peer, f64)>;

/// The length of the items that are shown.
const LENGTH: usize = 28;

const WIDTH: u32 = 900;
const BAR: i32 = 13;
const GAP: i32 = 14;
const LABELS: i32 = 290;
const VALUES: i32 = 60;
const TOP: i32 = 64;

fn color(peer: Peer) -> RGBColor {
    match peer {
        Peer::Oxbloom => RGBColor(200, 80, 30),
        Peer::Classic => RGBColor(235, 160, 110),
        Peer::RedisBloom => RGBColor(120, 130, 150),
        Peer::Floor => RGBColor(205, 210, 220),
    }
}

/// The comparisons that are shown: a command with many items and one with a single item, on a filter that is larger
/// than the cache; and a command with many items on a filter that has grown.
const SHOWN: [(Subject, Delivery, Operation); 8] = [
    (LARGE, Delivery::Batch(100), Operation::AddNew),
    (LARGE, Delivery::Batch(100), Operation::ExistsHit),
    (LARGE, Delivery::Batch(100), Operation::ExistsMiss),
    (LARGE, Delivery::Pipelined, Operation::AddNew),
    (LARGE, Delivery::Pipelined, Operation::ExistsHit),
    (LARGE, Delivery::Pipelined, Operation::ExistsMiss),
    (GROWN, Delivery::Batch(100), Operation::AddNew),
    (GROWN, Delivery::Batch(100), Operation::ExistsHit),
];

/// Draws the processor time of the commands that matter most to a reader.
pub(crate) fn speeds(results: &Results) -> String {
    let groups = SHOWN.map(|(subject, delivery, operation)| {
        let workload = Workload { subject: subject.name, delivery, operation, length: LENGTH };
        let bars = MAIN.map(|peer| (peer, results[&(workload, peer)].cpu.median()));
        (format!("{}: {}", subject.name, describe(workload)), bars.into())
    });
    svg(&MAIN.map(|peer| (peer, peer.name())), &groups).expect("a picture")
}

/// Draws labelled groups of bars.
pub(crate) fn svg(legend: &[(Peer, &str)], groups: &[(String, Bars)]) -> Result<String, Box<dyn std::error::Error>> {
    let bars = || groups.iter().flat_map(|(_, bars)| bars);
    let longest = bars().map(|&(_, time)| time).fold(1.0, f64::max);
    let scale = f64::from(WIDTH as i32 - LABELS - VALUES) / longest;
    let height = TOP + bars().count() as i32 * BAR + groups.len() as i32 * GAP;

    let mut image = String::new();
    {
        let area = SVGBackend::with_string(&mut image, (WIDTH, height as u32)).into_drawing_area();
        area.fill(&WHITE)?;
        let font = |size: i32| ("sans-serif", size).into_font().color(&BLACK);
        let title =
            format!("Processor time of the whole server, in nanoseconds an item of {LENGTH} bytes (shorter is better)");
        area.draw(&Text::new(title, (10, 12), font(16)))?;
        for (index, &(peer, name)) in legend.iter().enumerate() {
            let left = LABELS + (WIDTH as i32 - LABELS) / legend.len() as i32 * index as i32;
            area.draw(&Rectangle::new([(left, 40), (left + 12, 52)], color(peer).filled()))?;
            area.draw(&Text::new(name, (left + 18, 40), font(13)))?;
        }
        let mut top = TOP;
        for (label, bars) in groups {
            let middle = top + bars.len() as i32 * BAR / 2;
            let right = font(13).pos(Pos::new(HPos::Right, VPos::Center));
            area.draw(&Text::new(label.as_str(), (LABELS - 10, middle), right))?;
            for &(peer, time) in bars {
                let end = LABELS + (time * scale) as i32;
                area.draw(&Rectangle::new([(LABELS, top), (end, top + BAR - 2)], color(peer).filled()))?;
                area.draw(&Text::new(format!("{time:.0}"), (end + 5, top), font(11)))?;
                top += BAR;
            }
            top += GAP;
        }
        area.present()?;
    }
    Ok(image)
}
