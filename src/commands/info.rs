//! BF.INFO and BF.DEBUG.

use std::ffi::CStr;

use super::super::args::Args;
use super::super::command::{Argument, Kind};
use super::super::config::LayoutName;
use super::super::context::Context;
use super::super::error::Error;
use super::super::key::ReadKey;
use oxbloom_filter::{Filter, LayerFacts};

/// A fact about a filter.
struct Field {
    /// How it is asked for.
    token: &'static str,
    /// How it is called in the reply.
    label: &'static CStr,
    reply: fn(&Context, &Filter),
}

/// The five facts of the whole reply. Strict clients refuse a sixth.
const FIELDS: [Field; 5] = [
    Field { token: "CAPACITY", label: c"Capacity", reply: |ctx, filter| ctx.reply_integer(filter.capacity()) },
    Field { token: "SIZE", label: c"Size", reply: |ctx, filter| ctx.reply_integer(filter.memory_usage() as u64) },
    Field {
        token: "FILTERS",
        label: c"Number of filters",
        reply: |ctx, filter| ctx.reply_integer(filter.depth() as u64),
    },
    Field {
        token: "ITEMS",
        label: c"Number of items inserted",
        reply: |ctx, filter| ctx.reply_integer(filter.items()),
    },
    Field {
        token: "EXPANSION",
        label: c"Expansion rate",
        reply: |ctx, filter| match filter.expansion() {
            None => ctx.reply_null(),
            Some(expansion) => ctx.reply_integer(expansion.into()),
        },
    },
];

/// Facts that are only told one by one. All come from counters; none looks at the bits.
const FURTHER_FIELDS: [Field; 7] = [
    Field { token: "ERROR", label: c"Error rate", reply: |ctx, filter| ctx.reply_double(filter.error_rate()) },
    Field {
        token: "SEED",
        label: c"Seed",
        reply: |ctx, filter| match filter.seed() {
            None => ctx.reply_null(),
            Some(seed) => ctx.reply_bulk(seed.to_string().as_bytes()),
        },
    },
    Field {
        token: "LAYOUT",
        label: c"Layout",
        reply: |ctx, filter| match filter {
            Filter::Native(_) => ctx.reply_simple(LayoutName::Native.name()),
            Filter::Counting(_) => ctx.reply_simple(c"counting"),
            Filter::Classic(_) => ctx.reply_simple(LayoutName::Classic.name()),
        },
    },
    Field { token: "FILL", label: c"Fill ratio", reply: |ctx, filter| ctx.reply_estimate(filter.fill()) },
    Field {
        token: "FPR",
        label: c"Estimated false positive rate",
        reply: |ctx, filter| ctx.reply_estimate(filter.false_positive_rate()),
    },
    Field {
        token: "ESTIMATED",
        label: c"Number of items is an estimate",
        reply: |ctx, filter| match filter.is_estimate() {
            None => ctx.reply_null(),
            Some(is_estimate) => ctx.reply_bool(is_estimate),
        },
    },
    Field {
        token: "STUCK",
        label: c"Number of counters that stick",
        reply: |ctx, filter| match filter.counting() {
            None => ctx.reply_null(),
            Some(filter) => ctx.reply_integer(filter.stuck()),
        },
    },
];

/// The fields, for COMMAND DOCS.
pub const FIELD_ARGUMENTS: &[Argument] = &[
    Argument { token: Some(c"CAPACITY"), ..Argument::required(c"capacity", Kind::Token) },
    Argument { token: Some(c"SIZE"), ..Argument::required(c"size", Kind::Token) },
    Argument { token: Some(c"FILTERS"), ..Argument::required(c"filters", Kind::Token) },
    Argument { token: Some(c"ITEMS"), ..Argument::required(c"items", Kind::Token) },
    Argument { token: Some(c"EXPANSION"), ..Argument::required(c"expansion", Kind::Token) },
    Argument { token: Some(c"ERROR"), ..Argument::required(c"error", Kind::Token) },
    Argument { token: Some(c"SEED"), ..Argument::required(c"seed", Kind::Token) },
    Argument { token: Some(c"LAYOUT"), ..Argument::required(c"layout", Kind::Token) },
    Argument { token: Some(c"FILL"), ..Argument::required(c"fill", Kind::Token) },
    Argument { token: Some(c"FPR"), ..Argument::required(c"fpr", Kind::Token) },
    Argument { token: Some(c"ESTIMATED"), ..Argument::required(c"estimated", Kind::Token) },
    Argument { token: Some(c"STUCK"), ..Argument::required(c"stuck", Kind::Token) },
];

/// `BF.INFO key [field]`
pub fn info(ctx: &Context, args: Args) -> Result<(), Error> {
    let key = ReadKey::open(ctx, args.at(1));
    let filter = key.filter()?.ok_or(Error::NotFound)?;
    if args.len() == 2 {
        ctx.reply_map(FIELDS.len());
        for field in &FIELDS {
            ctx.reply_simple(field.label);
            (field.reply)(ctx, filter);
        }
        return Ok(());
    }
    let asked = args.at(2);
    let field = FIELDS.iter().chain(&FURTHER_FIELDS).find(|field| asked.is(field.token));
    let field = field.ok_or(Error::UnknownInformation)?;
    if ctx.has_maps() {
        ctx.reply_map(1);
        ctx.reply_simple(field.label);
    } else {
        ctx.reply_array(1);
    }
    (field.reply)(ctx, filter);
    Ok(())
}

/// `BF.DEBUG key`
pub fn debug(ctx: &Context, args: Args) -> Result<(), Error> {
    let key = ReadKey::open(ctx, args.at(1));
    let filter = key.filter()?.ok_or(Error::NotFound)?;
    ctx.reply_array(1 + filter.depth());
    ctx.reply_bulk(format!("size:{}", filter.items()).as_bytes());
    filter.layers().for_each(|layer| ctx.reply_bulk(describe(layer).as_bytes()));
    Ok(())
}

/// RedisBloom's line about a layer, with what is new in ours at its end.
fn describe(layer: LayerFacts) -> String {
    let LayerFacts { bytes, bits, hash_bits, probes, lines, capacity, items, error_rate } = layer;
    // Where RedisBloom has no bits, it says 1.
    let bits = bits.max(1);
    let ratio = six_digits(error_rate);
    let lines = lines.map_or(String::new(), |lines| format!(" lines:{lines}"));
    format!(
        "bytes:{bytes} bits:{bits} hashes:{probes} hashwidth:{hash_bits} capacity:{capacity} size:{items} ratio:{ratio}{lines}"
    )
}

/// A number as C's `%g` prints it: six significant digits.
fn six_digits(number: f64) -> String {
    let rounded = format!("{number:.5e}");
    let (mantissa, exponent) = rounded.split_once('e').unwrap_or((&rounded, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |digits: &str| digits.trim_end_matches('0').trim_end_matches('.').to_owned();
    match exponent {
        -4..6 => trim(&format!("{number:.*}", (5 - exponent) as usize)),
        _ => format!("{}e{}{:02}", trim(mantissa), if exponent < 0 { '-' } else { '+' }, exponent.abs()),
    }
}

#[cfg(test)]
mod tests {
    use super::six_digits;

    #[test]
    fn ratios_read_as_the_incumbent_prints_them() {
        let printed = [(0.005, "0.005"), (5e-6, "5e-06"), (0.00015625, "0.00015625"), (0.000123456789, "0.000123457")];
        for (number, text) in printed.into_iter().chain([(0.5, "0.5"), (1.0 / 3.0, "0.333333"), (1e-300, "1e-300")]) {
            assert_eq!(six_digits(number), text);
        }
    }
}
