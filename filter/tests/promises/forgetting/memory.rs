//! Tables grow, shrink and are freed, and allocations may fail.

use oxbloom_filter::Error;
use oxbloom_filter::internals::{Growth, InsertOptions, Interrupted, OnDuplicate, Window};

use crate::forgetting::filters::{insert, window};
use crate::forgetting::modelled::Modelled;
use crate::model::{by, item, through_a_file, whole};

#[test]
fn a_filter_that_forgets_grows_and_shrinks_through_many_doublings() {
    // At 0.4, fingerprints are so short that many entries become void, and match every item of their quotients.
    for (rate, refresh) in [(0.4, true), (0.01, false)] {
        let length = 64_000;
        let mut model = Modelled::new(rate, 10, by(2), Window { refresh, ..window(length, 8) });
        for step in 0..40 {
            model.now += length / 40;
            model.add(&(step * 5_000..step * 5_000 + 6_000).collect::<Vec<_>>(), None);
        }
        model.check();
        let grown = model.filter.memory_usage();
        assert!(grown > 100_000, "{grown}");
        let copy = through_a_file(&model.filter);
        assert_eq!((whole(&copy), copy.memory_usage()), (whole(&model.filter), grown));
        // After all items are forgotten, additions free the memory step by step.
        model.now += 2 * length;
        let mut left = grown;
        for number in 0..20_000 {
            model.now += length / 8;
            model.add(&[1_000_000 + number], None);
            left = left.min(model.filter.memory_usage());
        }
        model.check();
        assert!(left < 2000 && model.filter.num_layers() == 1, "{left} of {grown}, {}", model.filter.num_layers());
    }
}

/// A failed addition changes no answer. The next addition has the same effect on a replica, and a saved file is valid.
#[test]
fn a_failed_allocation_changes_no_answer() {
    for (growth, rolling, refresh) in
        [(Growth::Fixed, false, true), (by(2), false, false), (by(2), false, true), (Growth::Fixed, true, false)]
    {
        let mut model = Modelled::new(0.05, 300, growth, Window { rolling, refresh, ..window(1000, 4) });
        let mut failures = 0;
        for number in 0..2400 {
            // Now and then, most items are forgotten at once.
            model.now += if number % 400 == 0 { 800 } else { 50 * u64::from(number % 20 == 0) };
            for refused in 0.. {
                let before = model.filter.try_clone().unwrap();
                let options = InsertOptions { now: model.now, ..OnDuplicate::Count.into() };
                let hashes = [before.hash(&item(number))];
                let mut requests = 0..=refused;
                let mut admit = |_bytes| requests.next() != Some(refused);
                match model.filter.insert_hashes(&hashes, &mut [false], &mut [], &options, &mut admit) {
                    Err(Interrupted { error: Error::OutOfMemory, .. }) => {}
                    others => {
                        assert!(others.is_ok() || growth == Growth::Fixed && !rolling);
                        model.filter = before;
                        break;
                    }
                }
                failures += 1;
                model.check();
                assert!(whole(&through_a_file(&model.filter)) == whole(&model.filter));
                let mut replica = before.try_clone().unwrap();
                let failed = whole(&model.filter);
                insert(&mut model.filter, &[number + 1], model.now, None);
                if whole(&model.filter) != failed {
                    insert(&mut replica, &[number + 1], model.now, None);
                    assert!(whole(&replica) == whole(&model.filter), "{growth:?} {rolling} {refused}: {number}");
                }
                model.filter = before;
            }
            model.add(&[number], None);
        }
        assert!(failures > 20, "{failures} failures, {growth:?}, {rolling}");
    }
}

#[test]
fn a_second_table_is_freed_when_its_items_are_forgotten() {
    let mut model = Modelled::new(0.01, 100, by(2), window(1000, 8));
    model.add(&(0..150).collect::<Vec<_>>(), None);
    assert_eq!(model.filter.num_layers(), 2);
    for number in 1000..1300 {
        model.now += 100;
        model.add(&[number], None);
    }
    model.check();
    assert_eq!(model.filter.num_layers(), 1);
}
