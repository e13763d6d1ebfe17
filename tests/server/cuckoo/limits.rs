//! The limits of memory: of filters, and of the server.

use redis::Connection;

use crate::cuckoo::options::add_one;
use crate::cuckoo::replies::LAYOUTS;
use testkit::filter_model::FilterModel;
use testkit::info::{Sums, add_gauges, assert_figures_add_up};
use testkit::memory::{MIB, create, grow};
use testkit::server::with_debug;
use testkit::{Setup, error, run};

/// Commands that create filters of more than a megabyte.
const LARGE: [&str; 2] =
    ["CF.RESERVE new 2000000 LAYOUT classic", "CF.INSERT new LAYOUT classic CAPACITY 2000000 ITEMS a"];

/// Creates filters, named after their layouts. The second layer of the classic one would take 2 MiB.
fn reserve_small(client: &mut Connection) {
    for (layout, options) in LAYOUTS.into_iter().zip(["64 ERROR 0.0000001 SEED 7", "65536 EXPANSION 32 LAYOUT classic"])
    {
        run(client, &format!("CF.RESERVE {layout} {options}")).unwrap();
    }
}

#[test]
fn the_memory_limit_of_filters_holds_at_creation_and_growth() {
    let server = with_debug(Setup::oxbloom().module_arguments("filter-memory-limit 1mb")).start();
    let mut client = server.connect();
    for line in LARGE {
        assert_eq!(error(&mut client, line), create::FILTER_LIMIT);
    }
    for line in ["CF.RESERVE new 9223372036854775807", "CF.INSERT new CAPACITY 9223372036854775807 ITEMS a"] {
        for layout in LAYOUTS {
            let line = line.replace("9223372036854775807", &format!("9223372036854775807 LAYOUT {layout}"));
            let rejection = error(&mut client, &line);
            assert!([create::ADDRESS, create::FILTER_LIMIT].contains(&rejection.as_str()), "{line}: {rejection}");
        }
    }
    reserve_small(&mut client);
    for layout in LAYOUTS {
        let mut model = FilterModel::cuckoo(layout);
        let rejection = (0..).step_by(1000).find_map(|first| grow_by(&mut client, &mut model, first..first + 1000));
        assert_eq!(rejection.as_deref(), Some(grow::FILTER_LIMIT), "{layout}");
        assert!(model.items.len() > 40_000, "{layout}: {}", model.items.len());
        let mut sums = Sums::default();
        add_gauges(&mut client, layout, &mut sums);
        assert!(sums.iter().map(|gauges| gauges[2]).sum::<u64>() <= MIB, "{layout}");
        model.observe(&mut client);
    }
    assert_figures_add_up(&mut client);
}

/// Adds items one after another. Returns the error of the first that is rejected.
fn grow_by(client: &mut Connection, model: &mut FilterModel, numbers: std::ops::Range<u64>) -> Option<String> {
    for number in numbers {
        match add_one(client, "CF.ADDNX", &model.key, number) {
            Ok(_) => model.items.insert(number),
            Err(error) => return Some(error),
        };
    }
    None
}
