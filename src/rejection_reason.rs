//! Why commands are rejected: the counters of rejected commands in INFO.

use std::ffi::CStr;

/// Declares why commands are rejected, with the name that INFO counts each reason under.
macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident => $figure:literal;)*) => {
        /// Why something was rejected, as INFO counts it.
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
    /// There was no memory, or it was not granted.
    Memory => c"refused_memory";
    /// What was loaded is damaged, or not for this filter, or of a later version.
    Data => c"refused_data";
    /// The filters do not fit together, or the filter is of another kind than the command needs.
    Mismatch => c"refused_mismatch";
    /// The key is not there, or is there already, or holds something else.
    Key => c"refused_key";
    /// The command is not one that can be understood.
    Syntax => c"refused_syntax";
}
