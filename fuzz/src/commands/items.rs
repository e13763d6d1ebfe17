//! The items of a command, and the replies about them.

use std::borrow::Cow;

use testkit::packing::{bits, unpack};

use crate::server::{Reply, Words};

/// Returns the items of a command, and the options before them. Invalid packed items are none.
pub(crate) fn items_of<'a>(name: &[u8], words: &'a Words) -> (Cow<'a, [Vec<u8>]>, &'a [Vec<u8>]) {
    let arguments = words.get(2..).unwrap_or(&[]);
    if name.ends_with(b"packed") {
        let (items, length) = unpack(arguments).unwrap_or_default();
        return (Cow::Owned(items), &arguments[..arguments.len() - length]);
    }
    if ![&b"bf.insert"[..], b"cf.insert", b"cf.insertnx"].contains(&name) {
        return (Cow::Borrowed(arguments), &[]);
    }
    // A master may abbreviate ITEMS. No other accepted argument starts with an I.
    let options = arguments.iter().take_while(|word| !word.first().is_some_and(|first| b"iI".contains(first))).count();
    (Cow::Borrowed(arguments.get(options + 1..).unwrap_or(&[])), &arguments[..options])
}

/// Returns the answers in the reply to a packed command, or none if the reply only counts them.
pub(crate) fn unpacked(reply: &Reply, count: usize) -> Vec<i64> {
    let answers = match reply {
        Reply::Bulk(bytes) => bits(bytes, count),
        reply => match reply.elements() {
            [Reply::Integer(handled), Reply::Bulk(bytes), _] => bits(bytes, *handled as usize),
            _ => Vec::new(),
        },
    };
    answers.into_iter().map(i64::from).collect()
}
