//! BF.INFO and BF.DEBUG.

use std::ffi::CStr;
use std::num::NonZeroU64;

use crate::commands::declaration::Argument;
use crate::commands::query::time_for;
use crate::configuration;
use crate::family::Dialect;
use crate::filter_key::ReadKey;
use crate::reply_error::Error;
use crate::server::{Arg, Args, Context, Keyspace};
use oxbloom_filter::Filter;
use oxbloom_filter::internals::LayerInfo;

/// A fact about a filter.
struct Field {
    /// The argument that selects it.
    argument: Argument,
    /// The name of the fact in the reply.
    label: &'static CStr,
    reply: fn(&Context, &Filter),
}

/// Returns a field, given its argument in upper and lower case.
const fn field(token: &'static CStr, name: &'static CStr, label: &'static CStr, reply: fn(&Context, &Filter)) -> Field {
    Field { argument: Argument::token(token, name), label, reply }
}

/// The fields: first those of the default reply, then those that a client gets one by one or with ALL. All come from
/// counters; none reads the bits.
const FIELDS: &[Field] = &[
    field(c"CAPACITY", c"capacity", c"Capacity", |ctx, filter| ctx.reply_integer(filter.capacity())),
    field(c"SIZE", c"size", c"Size", |ctx, filter| ctx.reply_integer(filter.memory_usage() as u64)),
    field(c"FILTERS", c"filters", c"Number of filters", |ctx, filter| ctx.reply_integer(filter.num_layers() as u64)),
    field(c"ITEMS", c"items", c"Number of items inserted", |ctx, filter| {
        ctx.reply_integer(filter.len_at(time_for(ctx, filter)));
    }),
    field(c"EXPANSION", c"expansion", c"Expansion rate", |ctx, filter| {
        reply_number(ctx, filter.expansion().map(u64::from));
    }),
    field(c"ERROR", c"error", c"Error rate", |ctx, filter| ctx.reply_double(filter.error_rate())),
    field(c"TIGHTENING", c"tightening", c"Tightening ratio", |ctx, filter| {
        let spec = filter.valkey_spec().filter(|_| scales(filter));
        spec.map_or_else(|| ctx.reply_null(), |spec| ctx.reply_double(spec.tightening.get()));
    }),
    field(c"MAXSCALEDCAPACITY", c"maxscaledcapacity", c"Max scaled capacity", |ctx, filter| {
        let limit = NonZeroU64::new(configuration::filter_memory_limit()).map_or(u64::MAX, NonZeroU64::get);
        let growing = filter.valkey().filter(|_| scales(filter));
        reply_number(ctx, growing.map(|filter| filter.max_capacity(limit)));
    }),
    field(c"SEED", c"seed", c"Seed", |ctx, filter| match filter.seed() {
        None => ctx.reply_null(),
        Some(seed) => ctx.reply_bulk(seed.to_string().as_bytes()),
    }),
    field(c"LAYOUT", c"layout", c"Layout", |ctx, filter| ctx.reply_simple(filter.kind().name())),
    field(c"FILL", c"fill", c"Fill ratio", |ctx, filter| ctx.reply_estimate(filter.fill())),
    field(c"FPR", c"fpr", c"Estimated false positive rate", |ctx, filter| {
        ctx.reply_estimate(filter.false_positive_rate_at(time_for(ctx, filter)));
    }),
    field(c"ESTIMATED", c"estimated", c"Number of items is an estimate", |ctx, filter| match filter.is_estimate() {
        None => ctx.reply_null(),
        Some(is_estimate) => ctx.reply_bool(is_estimate),
    }),
    field(c"WINDOW", c"window", c"Window", |ctx, filter| {
        let length = filter.parameters().window.and_then(|window| window.length);
        reply_number(ctx, length.map(|length| length.get() / 1000));
    }),
    field(c"SLICES", c"slices", c"Slices", |ctx, filter| {
        reply_number(ctx, filter.parameters().window.map(|window| window.slices.into()));
    }),
    field(c"REFRESH", c"refresh", c"Refresh", |ctx, filter| {
        ctx.reply_bool(filter.parameters().window.is_some_and(|window| window.refresh));
    }),
    field(c"ROLLING", c"rolling", c"Rolling", |ctx, filter| {
        ctx.reply_bool(filter.parameters().window.is_some_and(|window| window.rolling));
    }),
    field(c"OLDEST", c"oldest", c"Age of the oldest slice", |ctx, filter| {
        reply_number(ctx, filter.windowed().and_then(|filter| filter.slices().age_at(ctx.now())).map(|age| age / 1000));
    }),
];

/// Returns true if the filter grows with a tightening ratio.
fn scales(filter: &Filter) -> bool {
    filter.valkey_spec().is_some_and(|spec| spec.expansion > 0)
}

fn reply_number(ctx: &Context, number: Option<u64>) {
    number.map_or_else(|| ctx.reply_null(), |number| ctx.reply_integer(number));
}

/// The number of fields in the default reply. Strict clients reject a sixth.
const IN_DEFAULT_REPLY: usize = 5;

/// The fields of the default reply in valkey-bloom's dialect, in its order.
const IN_VALKEY_REPLY: [&str; 6] = ["CAPACITY", "SIZE", "FILTERS", "ITEMS", "ERROR", "EXPANSION"];

/// The fields that follow for a filter that grows with a tightening ratio. Others do not have them in this dialect.
const ONLY_OF_SCALING: [&str; 2] = ["TIGHTENING", "MAXSCALEDCAPACITY"];

/// The argument that selects all fields.
const ALL: Argument = Argument::token(c"ALL", c"all");

/// The arguments that select fields, for COMMAND DOCS. The last is [`ALL`].
pub(super) const FIELD_ARGUMENTS: [Argument; FIELDS.len() + 1] = {
    let mut arguments = [ALL; FIELDS.len() + 1];
    let mut index = 0;
    while index < FIELDS.len() {
        arguments[index] = FIELDS[index].argument;
        index += 1;
    }
    arguments
};

/// `BF.INFO key [field | ALL]`
pub(super) fn info(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    let key = ReadKey::open(keyspace, ctx, args.at(1));
    let filter = key.filter()?.ok_or(Error::NotFound)?;
    let is_valkey = ctx.dialect() == Dialect::ValkeyBloom;
    let token = args.from(2).iter().next().map(Arg::bytes);
    let Some(token) = token.filter(|token| !ALL.starts_with(token)) else {
        let fields: Vec<&Field> = match token {
            Some(_) => FIELDS.iter().collect(),
            None if is_valkey => {
                let others: &[&str] = if scales(filter) { &ONLY_OF_SCALING } else { &[] };
                IN_VALKEY_REPLY.iter().chain(others).filter_map(|token| find(token.as_bytes())).collect()
            }
            None => FIELDS[..IN_DEFAULT_REPLY].iter().collect(),
        };
        if token.is_none() && is_valkey {
            ctx.reply_array(2 * fields.len())
        } else {
            ctx.reply_map(fields.len())
        }
        for field in fields {
            ctx.reply_simple(field.label);
            (field.reply)(ctx, filter);
        }
        return Ok(());
    };
    let field = find(token).ok_or(Error::UnknownInformation)?;
    // valkey-bloom replies with the bare fact, and does not know the last two of a filter that does not grow.
    if is_valkey {
        if !scales(filter) && ONLY_OF_SCALING.iter().any(|name| token.eq_ignore_ascii_case(name.as_bytes())) {
            return Err(Error::UnknownInformation);
        }
        (field.reply)(ctx, filter);
        return Ok(());
    }
    if ctx.has_maps() {
        ctx.reply_map(1);
        ctx.reply_simple(field.label);
    } else {
        ctx.reply_array(1);
    }
    (field.reply)(ctx, filter);
    Ok(())
}

fn find(token: &[u8]) -> Option<&'static Field> {
    FIELDS.iter().find(|field| field.argument.starts_with(token))
}

/// `BF.DEBUG key`
pub(super) fn debug(ctx: &Context, keyspace: Keyspace, args: Args) -> Result<(), Error> {
    let key = ReadKey::open(keyspace, ctx, args.at(1));
    let filter = key.filter()?.ok_or(Error::NotFound)?;
    ctx.reply_array(1 + filter.num_layers());
    ctx.reply_bulk(format!("size:{}", filter.len_at(time_for(ctx, filter))).as_bytes());
    filter.layers().for_each(|layer| ctx.reply_bulk(describe(layer).as_bytes()));
    Ok(())
}

/// Describes a layer in RedisBloom's format, followed by the fields that only our layers have.
fn describe(layer: LayerInfo) -> String {
    let LayerInfo { bytes, bits, hash_bits, probes, blocks_per_item, capacity, items, error_rate } = layer;
    // RedisBloom shows 1 for a layer without bits.
    let bits = bits.max(1);
    let ratio = six_digits(error_rate);
    let blocks = blocks_per_item.map_or(String::new(), |blocks| format!(" blocks:{blocks}"));
    format!(
        "bytes:{bytes} bits:{bits} hashes:{probes} hashwidth:{hash_bits} capacity:{capacity} size:{items} ratio:{ratio}{blocks}"
    )
}

/// Formats a number as C's `%g` does: six significant digits.
fn six_digits(number: f64) -> String {
    let mut text = [0; 16];
    // SAFETY: the format is that of a double, and the buffer has room for it and a NUL, as in "-1.23457e-300".
    unsafe { libc::snprintf(text.as_mut_ptr().cast(), text.len(), c"%g".as_ptr(), number) };
    CStr::from_bytes_until_nul(&text).unwrap_or_default().to_string_lossy().into_owned()
}
