//! How options are declared.

/// Declares options that are all unset at first. Each `fn` becomes a builder method that sets the option of its name.
macro_rules! options {
    (
        $(#[$about:meta])* pub struct $Options:ident;
        $($(#[$doc:meta])* pub fn $option:ident(mut $this:ident, $value:ident: $type:ty);)+
    ) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq)]
        #[must_use]
        pub struct $Options {
            $(pub(super) $option: Option<$type>,)+
        }

        impl $Options {
            /// Options with nothing set.
            pub const fn new() -> $Options {
                $Options { $($option: None),+ }
            }

            $(
                $(#[$doc])*
                pub const fn $option(mut $this, $value: $type) -> Self {
                    $this.$option = Some($value);
                    $this
                }
            )+

            /// These options, and those of `fallback` that are not set here.
            pub(super) fn or(&self, fallback: &$Options) -> $Options {
                $Options { $($option: self.$option.as_ref().or(fallback.$option.as_ref()).cloned()),+ }
            }
        }
    };
}

pub(super) use options;
