//! The public interface of the crate, for all kinds of filters except those that forget.

use std::time::Duration;

use oxbloom_filter::internals::codec::tags;
use oxbloom_filter::{DecodeError, Error, Filter, FilterBuilder, InvalidWindow, MergeError, Mismatch};
use xxhash_rust::xxh3::xxh3_64;

use crate::model::{create, item};
use crate::recorded;

/// Returns builders for all kinds of filters except those that forget, fixed and growing.
fn builders() -> Vec<FilterBuilder> {
    let base = Filter::builder().error_rate(0.01).capacity(500);
    let kinds = [base.seed(7), base.seed(7).counting(), base.classic()];
    kinds.iter().flat_map(|&kind| [kind.capacity(5000), kind.growing(2)]).collect()
}

fn filled(builder: FilterBuilder) -> Filter {
    let mut filter = builder.build().unwrap();
    filter.insert_batch((0..3000).map(item)).unwrap();
    filter
}

fn assert_same(one: &Filter, other: &Filter) {
    assert_eq!(one.to_bytes(), other.to_bytes());
    assert_eq!(one.contains_batch((0..20_000).map(item)), other.contains_batch((0..20_000).map(item)));
    assert_eq!((one.len(), one.capacity()), (other.len(), other.capacity()));
    // The memory of a filter with several layers is not compared.
    assert!(one.num_layers() > 1 || one.memory_usage() == other.memory_usage());
}

#[test]
fn batches_do_what_single_items_do() {
    for builder in builders() {
        let mut one_by_one = builder.build().unwrap();
        let new: Vec<bool> = (0..3000).map(|number| one_by_one.insert(item(number % 2000)).unwrap()).collect();
        let mut batched = builder.build().unwrap();
        assert_eq!(batched.insert_batch((0..3000).map(|number| item(number % 2000))), Ok(new));
        assert_same(&batched, &one_by_one);
        let found = (0..20_000).map(|number| one_by_one.contains(item(number)));
        assert!(batched.contains_batch((0..20_000).map(item)).into_iter().eq(found));
    }
}

#[test]
fn a_batch_ends_where_the_filter_is_full_and_what_came_before_stays() {
    let mut filter = Filter::builder().capacity(100).seed(7).build().unwrap();
    let interrupted = filter.insert_batch((0..1000).map(item)).unwrap_err();
    assert_eq!((interrupted.handled, interrupted.error), (100, Error::Full));
    assert_eq!(interrupted.to_string(), format!("{} after 100 items", Error::Full));
    assert_eq!(filter.len(), 100);
    assert!((0..100).all(|number| filter.contains(item(number))));
}

#[test]
fn a_copy_and_its_original_go_their_own_ways() {
    for builder in builders() {
        let filter = filled(builder);
        let mut copy = filter.clone();
        copy.insert_batch((10_000..11_000).map(item)).unwrap();
        assert!(copy.len() > filter.len());
        assert_same(&filter, &filled(builder));
    }
}

/// Replaces the checksum at the end with the correct one.
pub(crate) fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let content = bytes.len() - 8;
    let checksum = xxh3_64(&bytes[..content]).to_le_bytes();
    bytes[content..].copy_from_slice(&checksum);
    bytes
}

#[test]
fn a_filter_larger_than_the_limit_is_not_built() {
    let small = Filter::builder().capacity(1000).seed(7).build().unwrap().to_bytes().unwrap();
    assert_eq!(Filter::from_bytes_within(&small, 100).err(), Some(DecodeError::OutOfMemory));
    assert!(Filter::from_bytes_within(&small, 2000).is_ok());
}

/// Returns the places of the chunks in a filter's bytes, the header included.
fn places_of_chunks(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let (mut places, mut start) = (Vec::new(), 8);
    while start < bytes.len() - 8 {
        let length = u64::from_le_bytes(bytes[start + 8..start + 16].try_into().unwrap());
        places.push(start..start + 16 + length as usize);
        start += 16 + length as usize;
    }
    places
}

#[test]
fn chunks_of_a_filter_that_grew_after_its_header_do_not_exceed_the_limit() {
    let mut filter = Filter::builder().capacity(100).growing(2).seed(7).build().unwrap();
    filter.insert_batch((0..200).map(item)).unwrap();
    let small = filter.to_bytes().unwrap();
    filter.insert_batch((200..200_000).map(item)).unwrap();
    let large = filter.to_bytes().unwrap();
    let header = &small[..places_of_chunks(&small)[0].end];
    let forged = sealed([header, &large[places_of_chunks(&large)[0].end..]].concat());
    assert_eq!(Filter::from_bytes_within(&forged, 100_000).err(), Some(DecodeError::OutOfMemory));
    assert_eq!(Filter::from_bytes(&forged).err(), Some(DecodeError::Incomplete));
}

#[test]
fn options_out_of_range_are_errors() {
    for rate in [0.0, 1.0, -0.5, f64::NAN, f64::INFINITY] {
        assert_eq!(Filter::new(rate, 100).err(), Some(Error::InvalidErrorRate), "{rate}");
    }
    assert_eq!(Filter::new(0.01, 0).err(), Some(Error::InvalidCapacity));
    assert_eq!(Filter::builder().growing(0).build().err(), Some(Error::InvalidExpansion));
    assert_eq!(Filter::new(0.01, u64::MAX).err(), Some(Error::OutOfMemory));
}

#[test]
fn the_fill_is_the_share_that_is_in_use() {
    for (name, filter) in recorded::filters() {
        let few = if name.ends_with("-small") { 0.2 } else { 1.0 };
        assert!((0.0..=few).contains(&filter.fill()), "{name}: {}", filter.fill());
        assert_eq!(filter.fill() == 0.0, filter.is_empty(), "{name}");
    }
}

#[test]
fn only_counting_filters_remove_and_count() {
    let mut plain = Filter::new(0.01, 100).unwrap();
    assert_eq!((plain.remove("a"), plain.count("a")), (Err(Error::NotCounting), Err(Error::NotCounting)));
    let mut windowed = Filter::builder().window(Duration::from_secs(60)).build().unwrap();
    assert_eq!((windowed.remove("a"), windowed.count("a")), (Err(Error::NotCounting), Err(Error::NotCounting)));
    let mut counting = Filter::builder().counting().build().unwrap();
    assert_eq!((counting.remove("a"), counting.insert("a"), counting.count("a")), (Ok(false), Ok(true), Ok(1)));
}

#[test]
fn seeds_are_random_and_stay_out_of_logs() {
    let seeds: Vec<_> = (0..100).map(|_| Filter::builder().build().unwrap().seed().unwrap()).collect();
    assert!((0..100).all(|index| !seeds[..index].contains(&seeds[index])));
    let builder = Filter::builder().seed(0x1234_5678_9ABC_DEF0);
    let filter = builder.build().unwrap();
    for shown in [format!("{filter:?}"), format!("{builder:?}")] {
        assert!(shown.contains("capacity: 100") && !shown.contains("1311768467463790320"), "{shown}");
    }
    assert!(format!("{builder:?}").contains("seed: ..,"), "{builder:?}");
}

#[test]
fn filters_and_errors_have_the_usual_traits() {
    fn is_usual<T: Send + Sync + Clone + std::fmt::Debug + 'static>() {}
    fn is_error<T: std::error::Error + Send + Sync + Copy + PartialEq + 'static>() {}
    is_usual::<Filter>();
    is_usual::<FilterBuilder>();
    is_error::<Error>();
    is_error::<DecodeError>();
    is_error::<MergeError>();
}

#[test]
fn options_that_exclude_each_other_are_rejected() {
    type Option = (&'static str, fn(FilterBuilder) -> FilterBuilder);
    const OPTIONS: [Option; 6] = [
        ("counting", FilterBuilder::counting),
        ("classic", FilterBuilder::classic),
        ("window", |builder| builder.window(Duration::from_secs(60))),
        ("rolling", FilterBuilder::rolling),
        ("seed", |builder| builder.seed(7)),
        ("growing", |builder| builder.growing(2)),
    ];
    const ALLOWED: [(&str, &str); 8] = [
        ("counting", "seed"),
        ("counting", "growing"),
        ("classic", "growing"),
        ("window", "rolling"),
        ("window", "seed"),
        ("window", "growing"),
        ("rolling", "seed"),
        ("seed", "growing"),
    ];
    for (index, (one, set_one)) in OPTIONS.into_iter().enumerate() {
        for (other, set_other) in OPTIONS.into_iter().skip(index + 1) {
            for builder in [set_one(set_other(Filter::builder())), set_other(set_one(Filter::builder()))] {
                let expected = (!ALLOWED.contains(&(one, other))).then_some(Error::Contradiction(one, other));
                assert_eq!(builder.build().err(), expected, "{one} and {other}");
            }
        }
    }
}

#[test]
fn a_wrong_window_is_rejected_with_its_reason() {
    const YEARS: u64 = 100 * 36_525 * 864;
    let (base, second) = (Filter::builder(), Duration::from_secs(1));
    for (builder, expected) in [
        (base.window(Duration::from_nanos(999_999)), Some(InvalidWindow::TooShort)),
        (base.window(Duration::from_millis(1)), None),
        (base.window(Duration::from_secs(YEARS)), None),
        (base.window(Duration::from_secs(YEARS) + Duration::from_nanos(1)), Some(InvalidWindow::TooLong)),
        (base.window(Duration::MAX), Some(InvalidWindow::TooLong)),
        (base.window(second).slices(1), Some(InvalidWindow::Slices)),
        (base.window(second).slices(65), Some(InvalidWindow::Slices)),
        (base.window(second).slices(64), None),
        (base.rolling().slices(2), None),
        (base.slices(3), Some(InvalidWindow::SlicesAlone)),
        (base.refresh(), Some(InvalidWindow::RefreshAlone)),
        (base.rolling().refresh(), Some(InvalidWindow::RefreshAlone)),
        (base.counting().slices(3), Some(InvalidWindow::SlicesAlone)),
    ] {
        assert_eq!(builder.build().err(), expected.map(Error::InvalidWindow), "{builder:?}");
    }
}

#[test]
fn a_question_mark_converts_between_all_errors() {
    fn use_in_every_way() -> Result<bool, Error> {
        let builder = Filter::builder().capacity(100).seed(7);
        let (mut one, other) = (builder.build()?, builder.build()?);
        one.insert_batch(["apple", "pear"])?;
        one.union_with(&other)?;
        Ok(Filter::from_bytes(&one.to_bytes()?)?.contains("apple"))
    }
    fn merge(other: &Filter) -> Result<bool, Error> {
        Ok(Filter::builder().capacity(100).seed(8).build()?.union_with(other)?)
    }
    assert_eq!(use_in_every_way(), Ok(true));
    let mismatch = merge(&Filter::builder().capacity(100).seed(7).build().unwrap());
    assert!(matches!(mismatch, Err(Error::Merge(MergeError::SourcesDiffer(_)))));
    let decode = |bytes: &[u8]| -> Result<Filter, Error> { Ok(Filter::from_bytes(bytes)?) };
    assert_eq!(decode(b"no filter").err(), Some(Error::Decode(DecodeError::Corrupt)));
    // Memory is one error for all operations, and a conversion back loses nothing.
    assert_eq!([Error::from(DecodeError::OutOfMemory), MergeError::OutOfMemory.into()], [Error::OutOfMemory; 2]);
    for error in [DecodeError::NewerVersion, DecodeError::Foreign, DecodeError::OutOfMemory] {
        assert_eq!(DecodeError::from(Error::from(error)), error);
    }
    for error in [MergeError::SourcesDiffer(Mismatch::Seed), MergeError::CannotGrow, MergeError::OutOfMemory] {
        assert_eq!(MergeError::from(Error::from(error)), error);
    }
    assert_eq!(MergeError::from(Error::CannotGrow), MergeError::CannotGrow);
}

#[test]
fn equal_filters_have_the_same_options_and_items_and_a_cleared_one_equals_a_new_one() {
    for builder in builders() {
        let (new, mut filter) = (builder.build().unwrap(), filled(builder));
        let is_classic = new.seed().is_none();
        assert!(filter == filled(builder) && filter == filter.clone() && filter != new);
        assert!(filter != filled(builder.capacity(6000)) && (is_classic || filter != filled(builder.seed(8))));
        let before = filter.clone();
        filter.insert("one more").unwrap();
        assert!(filter != before);
        filter.clear().unwrap();
        assert!(filter == new && filter.is_empty() && !filter.contains(item(0)));
        filter.insert_batch((0..3000).map(item)).unwrap();
        assert!(filter == filled(builder));
    }
}

#[test]
fn a_filter_like_another_equals_a_new_one() {
    for (name, params, items) in recorded::recorded() {
        let (used, new) = (recorded::filled(params, items), create(params));
        assert!(used.empty_like(&mut |_| true).unwrap() == new, "{name}");
        assert_eq!(used.empty_like(&mut |_| false).err(), Some(Error::OutOfMemory), "{name}");
    }
}

#[cfg(unix)]
#[test]
fn a_forked_process_gets_other_seeds() {
    let seed = || Filter::builder().build().unwrap().seed().unwrap();
    // From here on, a generator of random numbers in the process would have a state, which the fork would copy.
    seed();
    let mut pipe = [0; 2];
    // SAFETY: the array has room for both ends.
    assert_eq!(unsafe { libc::pipe(pipe.as_mut_ptr()) }, 0);
    let [reader, writer] = pipe;
    // SAFETY: the child only creates a filter, writes to the pipe and exits; glibc's allocator works after a fork.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let bytes = seed().to_ne_bytes();
        // SAFETY: the bytes are alive, and nothing of this process has to be dropped.
        unsafe {
            libc::write(writer, bytes.as_ptr().cast(), bytes.len());
            libc::_exit(0);
        }
    }
    assert!(child > 0);
    let (of_parent, mut of_child) = (seed(), [0; 8]);
    // SAFETY: the array has room for what is read, and the ends are closed once.
    unsafe {
        libc::close(writer);
        assert_eq!(libc::read(reader, of_child.as_mut_ptr().cast(), of_child.len()), 8);
        libc::close(reader);
        assert_eq!(libc::waitpid(child, std::ptr::null_mut(), 0), child);
    }
    assert_ne!(u64::from_ne_bytes(of_child), of_parent);
}

#[test]
fn the_layers_add_up_to_the_filter() {
    for (name, filter) in recorded::filters() {
        let layers: Vec<_> = filter.layers().collect();
        assert_eq!(layers.len(), filter.num_layers(), "{name}");
        // The layers of a classic cuckoo filter do not store their items.
        let items: u64 = layers.iter().map(|layer| layer.items).sum();
        assert_eq!(items, if name.starts_with("cuckoo") { 0 } else { filter.len() }, "{name}");
        // Other projects' filters have hashes of 64 bits, and no tags.
        let hash_bits = if tags(&filter).is_none() { 64 } else { 128 };
        for layer in layers {
            assert_eq!((layer.bits, layer.hash_bits), (8 * layer.bytes, hash_bits), "{name}");
        }
    }
}

#[test]
fn only_filters_of_our_own_know_whether_their_items_are_estimated() {
    for (name, filter) in recorded::filters() {
        assert_eq!(filter.is_estimate(), tags(&filter).map(|_| false), "{name}");
    }
}

/// If a layer cannot be addressed, the filter fails without asking for memory. A replica then goes on, since its master
/// cannot have the layer either. All other filters ask for memory first.
#[test]
fn only_filters_that_grow_by_layers_fail_without_asking_for_memory() {
    for (name, filter) in recorded::filters() {
        let others = ["classic", "cuckoo", "valkey"];
        assert_eq!(filter.grows_by_layers(), others.iter().any(|other| name.starts_with(other)), "{name}");
        assert!(!filter.grows_by_layers() || filter.table_bytes() == 0, "{name}");
    }
}
