//! Decodes a header.

use oxbloom_filter::internals::AnyFilter;
use oxbloom_filter::internals::codec::{self, Header, Origin};

use crate::decoding::copies::{built, through_a_dump};
use crate::decoding::figures::check_same;
use crate::decoding::parts::sealed;
use crate::decoding::uses::use_in_every_way;

/// Decodes a header.
pub fn header(bytes: &[u8]) {
    let bytes = &sealed(bytes);
    let Some(mut filter) = Header::decode(bytes, Origin::Client).ok().and_then(|header| built(&header)) else { return };
    // Our own headers contain the number of set bits or filled slots, which is still 0 in the new filter. A number of
    // items in a classic cuckoo filter that is too large is read as 0.
    let start = match filter.by_kind() {
        AnyFilter::Classic(_) => 0,
        AnyFilter::Cuckoo(_) => 8,
        _ => bytes.len(),
    };
    assert!(codec::encode_header(&filter).unwrap()[start..] == bytes[start..]);
    use_in_every_way(&mut filter);
    check_same(&filter, &through_a_dump(&filter));
}
