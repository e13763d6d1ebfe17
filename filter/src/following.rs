//! Copies that follow filters on servers.
//!
//! BF.CHANGES replies with the header of a filter and a cursor. BF.SCANDUMP has the chunks, and BF.CHANGES then has the
//! hashes of the items that became new after the header. A copy gets the same bits by inserting these hashes: a filter
//! uses nothing else of an item. The chunks are read later than the header, so they may have some of the items already.
//! Each of them was new on the server, and is counted there. So a copy counts it, too, and grows at the same item.
//!
//! A server that lacks memory may split a segment of a table before its copy does. The copy then stores a new item in at
//! most as many bits as the server, since fingerprints get shorter by at most one bit a level. So it finds all that the
//! server finds, also the false positives, which are not sent.
//!
//! Only additions may change the filter. What else changes it (a merge, a removal, the time) is not among the changes.

use crate::codec::{self, Header, Origin};
use crate::error::{DecodeError, Error, ensure};
use crate::filter::Filter;
use crate::hash::Hash;
use crate::kind::{KindFilter as _, for_each_kind};
use crate::spec::InsertOptions;

/// The number of bytes of a hash in the reply of BF.CHANGES.
pub const CHANGE_BYTES: usize = 16;

impl Hash {
    /// Returns the hash as BF.CHANGES sends it.
    pub fn to_bytes(self) -> [u8; CHANGE_BYTES] {
        (u128::from(self.second) << 64 | u128::from(self.first)).to_le_bytes()
    }

    fn from_bytes(bytes: [u8; CHANGE_BYTES]) -> Hash {
        u128::from_le_bytes(bytes).into()
    }
}

/// Copies of filters on servers, for clients.
impl Filter {
    /// Starts a copy of a filter on a server, from the header in the reply of BF.CHANGES. The copy is complete when
    /// [`load_chunk`](Filter::load_chunk) has loaded all chunks, and then [`insert_changes`](Filter::insert_changes)
    /// the changes since the header.
    ///
    /// # Errors
    ///
    /// [`Error::Decode`] if the bytes are no header; [`Error::CannotFollow`] if a copy cannot follow such a filter;
    /// [`Error::OutOfMemory`] if there is no memory for it.
    pub fn from_header(header: &[u8]) -> Result<Filter, Error> {
        let filter = Header::decode(header, Origin::Replication)?.build()?;
        if filter.kind().can_be_followed() { Ok(filter) } else { Err(Error::CannotFollow) }
    }

    /// Loads a chunk, which BF.SCANDUMP returned with its cursor.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if the chunk is damaged, or does not fit the filter: if the filter on the server got another
    /// layer or was replaced, copy it again.
    pub fn load_chunk(&mut self, cursor: u64, chunk: &[u8]) -> Result<(), DecodeError> {
        codec::load_chunk(self, cursor, chunk, Origin::Client, &mut |_bytes| true).map(drop)
    }

    /// Inserts the items that became new on the server, given by their hashes in the reply of BF.CHANGES. Pass each
    /// change once, in order. After all of them, the copy equals the filter on the server, bit for bit.
    ///
    /// ```
    /// # use oxbloom_filter::Filter;
    /// let mut copy = Filter::builder().error_rate(0.01).capacity(1000).seed(7).build()?;
    /// let apple = [
    ///     0x75, 0x18, 0x75, 0x82, 0x1A, 0xEF, 0x1D, 0xDB, 0xFB, 0x06, 0x5B, 0x6F, 0xC7, 0x85, 0x11, 0xCC,
    /// ];
    /// copy.insert_changes(&apple)?;
    /// assert!(copy.contains("apple"));
    /// # Ok::<(), oxbloom_filter::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Decode`] if the bytes are no hashes, and [`Error::CannotFollow`] if a copy cannot follow such a filter:
    /// the copy is unchanged. An error as for [`insert`](Filter::insert) if a change does not fit: copy the filter
    /// again.
    pub fn insert_changes(&mut self, changes: &[u8]) -> Result<(), Error> {
        if !self.kind().can_be_followed() {
            return Err(Error::CannotFollow);
        }
        let (changes, rest) = changes.as_chunks();
        ensure(rest.is_empty())?;
        for &change in changes {
            let mut new = [false];
            let hash = [Hash::from_bytes(change)];
            self.insert_hashes(&hash, &mut new, &mut [], &InsertOptions::default(), &mut |_bytes| true)?;
            if new == [false] {
                for_each_kind!(self.by_kind_mut(), filter => filter.count_known());
            }
        }
        Ok(())
    }
}
