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

reasons! {
    /// The filter is full, and does not grow or cannot.
    Full => c"rejected_full";
    /// There was no memory, or a limit did not allow it.
    Memory => c"rejected_memory";
    /// The loaded data are damaged, belong to another filter, or come from a later version.
    Data => c"rejected_data";
    /// The filters cannot be merged, or the filter is not of the kind that the command needs.
    Mismatch => c"rejected_mismatch";
    /// The key does not exist, already exists, or holds another type.
    Key => c"rejected_key";
    /// The command has invalid arguments.
    Syntax => c"rejected_syntax";
}
