//! BF.MERGE.
//!
//! The command is replicated as the client sent it: a replica has the same sources, and so computes the same result.
//! The result itself may have gigabytes. A merge that creates its destination is replicated with REPLACE, which also
//! works if the destination exists on a replica.

use crate::admission;
use crate::commands::declaration::numbered_keys;
use crate::family::Verb;
use crate::filter_key::{KeyWithSources, WriteKey};
use crate::reply_error::Error;
use crate::server::{Arg, Args, Context, Keyspace};
use oxbloom_filter::internals::MergeOp;

/// `BF.MERGE destination numkeys source [source …] [UNION | INTERSECT] [REPLACE]`
///
/// An existing destination is an operand, and counts once even if it is also named as a source. With REPLACE, it is an
/// operand only if it is named as a source.
pub(super) fn merge(ctx: &Context, mut keyspace: Keyspace, args: Args) -> Result<(), Error> {
    let request = MergeRequest::parse(args)?;
    // Everything is allocated before anything changes.
    let mut replicated = admission::try_vec(ctx, args.len())?;
    let key = if request.ignores_destination() && ctx.is_replicated_or_loading() {
        WriteKey::open_to_replace(keyspace.reborrow(), ctx, request.destination)
    } else {
        WriteKey::open(keyspace.reborrow(), ctx, request.destination)?
    };
    let is_new = !key.has_filter();
    if is_new && request.destination_is_source {
        return Err(Error::NotFound);
    }
    let others = request.sources.iter().filter(|source| source.bytes() != request.destination.bytes());
    let keys = key.with_sources(ctx, others)?;
    let changed = merge_filters(ctx, keys, &request)?;
    if changed {
        if is_new && !request.replace {
            let replace = ctx.string(b"REPLACE");
            replicated.extend_from_slice(args.from(2).as_slice());
            replicated.push(replace.as_arg());
            ctx.replicate(Verb::Merge, request.destination, &replicated);
        } else {
            ctx.replicate_verbatim();
        }
        keyspace.notify_changed(ctx, request.destination, Verb::Merge);
    }
    ctx.reply_ok();
    Ok(())
}

/// A parsed BF.MERGE.
struct MergeRequest<'a> {
    destination: Arg<'a>,
    sources: Args<'a>,
    /// True if the destination is also named as a source.
    destination_is_source: bool,
    operation: MergeOp,
    /// True if the result replaces the destination.
    replace: bool,
}

impl<'a> MergeRequest<'a> {
    fn parse(args: Args<'a>) -> Result<MergeRequest<'a>, Error> {
        let (destination, sources) = (args.at(1), numbered_keys(args)?);
        let (mut operation, mut replace) = (None, false);
        for option in args.from(3 + sources.len()).iter() {
            let is_wrong = match option {
                _ if option.is("UNION") => operation.replace(MergeOp::Union).is_some(),
                _ if option.is("INTERSECT") => operation.replace(MergeOp::Intersection).is_some(),
                _ if option.is("REPLACE") => std::mem::replace(&mut replace, true),
                _ => true,
            };
            if is_wrong {
                return Err(Error::Syntax);
            }
        }
        let destination_is_source = sources.iter().any(|source| source.bytes() == destination.bytes());
        let operation = operation.unwrap_or(MergeOp::Union);
        Ok(MergeRequest { destination, sources, destination_is_source, operation, replace })
    }

    /// Returns true if the content of the destination is no operand.
    fn ignores_destination(&self) -> bool {
        self.replace && !self.destination_is_source
    }
}

/// Merges the sources into the destination, which is an operand too unless it is ignored. Returns true if it changed.
fn merge_filters(ctx: &Context, mut keys: KeyWithSources, request: &MergeRequest) -> Result<bool, Error> {
    let mut operands = admission::try_vec(ctx, request.sources.len() + 1)?;
    let (destination, sources) = keys.filters();
    operands.extend(sources);
    match destination {
        Some(filter) if !request.replace => admission::merge(ctx, filter, &operands, request.operation),
        destination => {
            operands.extend(destination.map(|filter| &*filter).filter(|_| !request.ignores_destination()));
            let merged = admission::merged(ctx, &operands, request.operation)?;
            keys.close_sources().create(merged)?;
            Ok(true)
        }
    }
}
