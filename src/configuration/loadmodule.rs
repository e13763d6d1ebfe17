//! The settings in the arguments of `loadmodule`.

use super::all;
use crate::names::{Names, names};
use crate::server::{Arg, Args};

/// Parses the `name value` pairs given to loadmodule, except for the module's [names](Names::read). Errors are messages
/// for the log.
pub(crate) fn read_arguments(args: Args) -> Result<(), String> {
    let pairs = args.chunks(2).map(|pair| (pair.at(0).lossy(), pair.at(1)));
    let mut given = pairs.filter(|(name, _)| !Names::are_read_from(name));
    given.try_for_each(|(name, value)| read_argument(&name, value))
}

/// Parses one pair. `ERROR_RATE`, `bf-error-rate`, `bf.error-rate` and `error-rate` are the same setting. `bf` may also
/// be the module's name on this server.
fn read_argument(given: &str, value: Arg) -> Result<(), String> {
    let name = given.to_ascii_lowercase().replace('_', "-");
    let module = names().module.to_string_lossy().replace('_', "-");
    let without = |start: &str| name.strip_prefix(start)?.strip_prefix(['-', '.']);
    let name = without(&module).or(without("bf")).unwrap_or(&name);
    let setting = all().find(|setting| setting.has_name(name));
    let setting = setting.ok_or(format!("'{given}' is not a setting of this module: see docs/configuration.md"))?;
    let parsed = setting.parse(value).map_err(|expected| format!("{given} {expected}, not '{}'", value.lossy()));
    parsed.map(|parsed| setting.set(parsed))
}
