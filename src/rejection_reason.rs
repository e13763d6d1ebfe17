//! The reasons for which commands are rejected. INFO has a counter for each.

use std::ffi::CStr;

/// Declares the reasons, each with the name of its counter in INFO.
macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident => $figure:literal;)*) => {
        /// The reason for a rejection, as INFO counts it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Reason {
            $($(#[$doc])* $name,)*
        }

        impl Reason {
            pub(crate) const ALL: [Reason; [$($figure),*].len()] = [$(Reason::$name),*];

            pub(crate) const fn name(self) -> &'static CStr {
                match self {
                    $(Reason::$name => $figure,)*
                }
            }
        }
    };
}

// The names in INFO are older than the word "reject", and operators have them in their alerts.
reasons! {
    /// The filter is full, and does not grow or cannot.
    Full => c"refused_full";
    /// There was no memory, or a limit did not allow it.
    Memory => c"refused_memory";
    /// The loaded data are damaged, belong to another filter, or come from a later version.
    Data => c"refused_data";
    /// The filters cannot be merged, or the filter is not of the kind that the command needs.
    Mismatch => c"refused_mismatch";
    /// The key does not exist, already exists, or holds another type.
    Key => c"refused_key";
    /// The command has invalid arguments.
    Syntax => c"refused_syntax";
}
