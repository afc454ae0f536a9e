//! The names of enums in events, on the wire, in docs and metrics.

use crate::config_error::{ConfigError, ConfigErrors};

/// Gives an enum its names: `as_str`, `Display`, `FromStr`, and `ALL` in the given order. `what` names the enum in faults.
macro_rules! names {
    ($type:ident, $what:literal, { $($variant:ident = $name:literal),+ $(,)? }) => {
        impl $type {
            pub(crate) const ALL: [$type; [$($name),+].len()] = [$($type::$variant),+];

            #[doc = concat!("The name of the ", $what, ": ", $("`", $name, "`, ",)+ "in the order of the variants.")]
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $($type::$variant => $name,)+
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $type {
            type Err = crate::config_error::ConfigErrors;

            #[doc = concat!("Reads the name that [`", stringify!($type), "::as_str`] gives.")]
            ///
            /// # Errors
            /// [`ConfigErrors`](crate::ConfigErrors) for any other text.
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let found = $type::ALL.into_iter().find(|known| known.as_str() == text);
                found.ok_or_else(|| crate::enum_str::unknown($what, text, &[$($name),+]))
            }
        }
    };
}

pub(crate) use names;

/// The fault of a text that is not one of the names.
pub(crate) fn unknown(what: &str, text: &str, names: &[&str]) -> ConfigErrors {
    let rule = format!("must be a known {what}");
    let fix = format!("use one of {}", names.join(", "));
    ConfigErrors::from(ConfigError::new(what, format!("{text:?}"), rule, fix))
}
