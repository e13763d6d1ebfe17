//! Dispatch at run time to code that is compiled for the processor at hand.

/// Defines methods of the table that are compiled twice: for any processor, and for processors with BMI2, which select a
/// bit in one instruction. The choice is made at run time. With BMI2, look-ups take 35 to 45 ns instead of 55 to 100.
macro_rules! dispatched {
    ($(
        $(#[$doc:meta])*
        $visibility:vis fn $name:ident($table:ident: $type:ty $(, $arg:ident: $arg_type:ty)*) $(-> $result:ty)? = $with:ident;
    )*) => {
        impl Table {$(
            $(#[$doc])*
            #[inline]
            $visibility fn $name(self: $type $(, $arg: $arg_type)*) $(-> $result)? {
                #[multiversion::multiversion(targets("x86_64+bmi1+bmi2+lzcnt+popcnt"))]
                fn dispatch($table: $type $(, $arg: $arg_type)*) $(-> $result)? {
                    multiversion::target::match_target! {
                        "x86_64+bmi1+bmi2+lzcnt+popcnt" => {
                            // SAFETY: this is only called on processors with BMI2.
                            let select = unsafe { $crate::table::bits::with_bmi2() };
                            $table.$with(select $(, $arg)*)
                        },
                        _ => $table.$with($crate::table::bits::Broadword $(, $arg)*),
                    }
                }
                dispatch(self $(, $arg)*)
            }
        )*}
    };
}
