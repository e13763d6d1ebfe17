//! Tells the shell command which data types filters have on servers, and in files of servers.

use std::borrow::Cow;

use oxbloom_filter::internals::codec::Encoding;
use pyo3::prelude::*;

type DataType = (Cow<'static, str>, &'static str, &'static str, bool);

/// Returns all data types: the name, the prefix of the commands, the layout, and whether it is another module's name.
#[pyfunction]
pub(crate) fn data_types() -> Vec<DataType> {
    let mut types = Vec::new();
    for encoding in Encoding::ALL {
        let (commands, layout) = match encoding {
            Encoding::Own => ("BF.", "native"),
            Encoding::OwnCuckoo => ("CF.", "native"),
            Encoding::Cuckoo => ("CF.", "classic"),
            Encoding::Valkey => ("BF.", "valkey"),
            Encoding::Classic => ("BF.", "classic"),
        };
        let name_beside = encoding.name_beside();
        types.push((encoding.type_name().to_string_lossy(), commands, layout, name_beside.is_some()));
        if let Some(name) = name_beside {
            types.push((name.to_string_lossy(), commands, layout, false));
        }
    }
    types
}
