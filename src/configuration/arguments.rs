//! The settings in the arguments of `loadmodule`.

use super::setting::Fraction;
use super::{choices, fractions, numbers};
use crate::names::{Names, names};
use crate::server::{Arg, Args};
use oxbloom_filter::internals::ErrorRate;

/// Parses the `name value` pairs given to loadmodule, except for the module's [names](Names::read). Errors are messages
/// for the log.
pub(crate) fn read_arguments(args: Args) -> Result<(), String> {
    let pairs = args.chunks(2).map(|pair| (pair.at(0).lossy(), pair.at(1)));
    let mut settings = pairs.filter(|(name, _)| !Names::are_read_from(name));
    settings.try_for_each(|(name, value)| read_argument(&name, value))
}

/// Parses one pair. `ERROR_RATE`, `bf-error-rate`, `bf.error-rate` and `error-rate` are the same setting. `bf` may also
/// be the module's name on this server.
fn read_argument(given: &str, value: Arg) -> Result<(), String> {
    let name = given.to_ascii_lowercase().replace('_', "-");
    let module = names().module.to_string_lossy().replace('_', "-");
    let without = |start: &str| name.strip_prefix(start)?.strip_prefix(['-', '.']);
    let name = without(&module).or(without("bf")).unwrap_or(&name);
    let shown = value.lossy();
    if let Some(fraction) = fractions().find(|fraction| fraction.naming.has(name)) {
        let rate = value.float().and_then(ErrorRate::new);
        fraction.set(rate.ok_or(format!("{given} {}, not '{shown}'", Fraction::RANGE))?);
        return Ok(());
    }
    if let Some(choice) = choices().find(|choice| choice.name.to_bytes() == name.as_bytes()) {
        let words: Vec<_> = choice.words.iter().map(|word| word.to_string_lossy()).collect();
        let wrong = || format!("{given} must be {}, not '{shown}'", words.join(" or "));
        return choice.set_word(value.bytes()).ok_or_else(wrong);
    }
    if let Some(number) = numbers().find(|number| number.naming.has(name)) {
        let range = number.min..=number.max;
        let accepted = if number.is_size { size(&shown) } else { value.integer() };
        let accepted = accepted.filter(|value| range.contains(value));
        let unit = if number.is_size { ", or a size such as 512mb or 4gb" } else { "" };
        let accepted = accepted.ok_or(format!(
            "{given} must be a whole number from {} to {}{unit}, not '{shown}'",
            number.min, number.max
        ))?;
        number.set(accepted);
        return Ok(());
    }
    Err(format!("'{given}' is not a setting of this module: see docs/configuration.md"))
}

/// Parses a number of bytes as the server's own settings do: `100`, `100mb`, `1gb`; `1m` is a million, `1mb` is 2^20.
fn size(text: &str) -> Option<i64> {
    const UNITS: [(&str, i64); 8] = [
        ("", 1),
        ("b", 1),
        ("k", 1000),
        ("kb", 1 << 10),
        ("m", 1_000_000),
        ("mb", 1 << 20),
        ("g", 1_000_000_000),
        ("gb", 1 << 30),
    ];
    let digits = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let (_, factor) = UNITS.iter().find(|(name, _)| unit.eq_ignore_ascii_case(name))?;
    number.parse::<i64>().ok()?.checked_mul(*factor)
}
