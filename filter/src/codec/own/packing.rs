//! Packs bytes of which many are zero, as Cap'n Proto does: see <https://capnproto.org/encoding.html#packing>. Unlike
//! there, words without zero bytes have no form of their own.
//!
//! Each word of eight bytes becomes a tag and the bytes that are not zero. Bit `i` of the tag is set if byte `i` is not
//! zero. After a tag of 0, which is a zero word, a byte has the number of zero words that follow.

use crate::array::WORD;
use crate::error::{DecodeError, Error, ensure};
use crate::memory::try_vec;

/// Returns the packed bytes. Their number must be a multiple of 8.
pub fn pack(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let (words, rest) = bytes.as_chunks::<WORD>();
    debug_assert!(rest.is_empty());
    let mut packed = try_vec(words.len().saturating_mul(1 + WORD))?;
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        let nonzero = word.iter().enumerate().filter(|(_, byte)| **byte != 0);
        packed.push(nonzero.clone().fold(0, |tag, (index, _)| tag | 1 << index));
        packed.extend(nonzero.map(|(_, byte)| byte));
        if *word == [0; WORD] {
            let further = std::iter::from_fn(|| words.next_if(|next| **next == [0; WORD])).take(u8::MAX.into());
            packed.push(further.count() as u8);
        }
    }
    Ok(packed)
}

/// Returns the bytes that were packed.
///
/// # Errors
///
/// [`DecodeError::Corrupt`] if the packed bytes end within a word, or there are more than `max` bytes.
pub fn unpack(mut packed: &[u8], max: usize) -> Result<Vec<u8>, DecodeError> {
    // A tag that exceeds the limit is followed by at most 256 words.
    let mut bytes = try_vec(max.saturating_add(256 * WORD))?;
    while let Some(&tag) = packed.split_off_first() {
        let mut word = [0; WORD];
        let nonzero = packed.split_off(..tag.count_ones() as usize).ok_or(DecodeError::Corrupt)?;
        let places = (0..WORD).filter(|index| tag >> index & 1 == 1);
        places.zip(nonzero).for_each(|(index, &byte)| word[index] = byte);
        let further = if tag == 0 { *packed.split_off_first().ok_or(DecodeError::Corrupt)? } else { 0 };
        for _ in 0..=further {
            bytes.extend_from_slice(&word);
        }
        ensure(bytes.len() <= max)?;
    }
    Ok(bytes)
}
