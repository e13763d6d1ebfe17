//! Functions that are compiled for the processor that they run on.

/// Runs a function of the table, compiled twice: for any processor, and for one that finds bits in a word by one
/// instruction. Which one is chosen when the program runs. Look-ups took 55 to 100 ns without it, and 35 to 45 with it.
macro_rules! dispatched {
    ($(#[$doc:meta])* $visibility:vis fn $name:ident($table:ident: $type:ty $(, $arg:ident: $arg_type:ty)*) $(-> $result:ty)? = $with:ident) => {
        impl Table {
            $(#[$doc])*
            #[inline]
            $visibility fn $name(self: $type $(, $arg: $arg_type)*) $(-> $result)? {
                #[multiversion::multiversion(targets("x86_64+bmi1+bmi2+lzcnt+popcnt"))]
                fn dispatch($table: $type $(, $arg: $arg_type)*) $(-> $result)? {
                    multiversion::target::match_target! {
                        "x86_64+bmi1+bmi2+lzcnt+popcnt" => $table.$with::<$crate::table::bits::Bmi2>($($arg),*),
                        _ => $table.$with::<$crate::table::bits::Broadword>($($arg),*),
                    }
                }
                dispatch(self $(, $arg)*)
            }
        }
    };
}
