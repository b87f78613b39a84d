//! Named options: `Display`, `FromStr`, and errors that list the allowed names and suggest the nearest.

use crate::error::InvalidParam;

/// An option whose values have names.
pub trait Named: Copy + PartialEq + Sized + 'static {
    /// Name of the option in messages.
    const OPTION: &'static str;
    /// Every value with its name.
    const NAMED: &'static [(Self, &'static str)];

    /// The value called `name`, for the parameter `option`.
    fn of_name(option: &'static str, name: &str) -> Result<Self, InvalidParam> {
        if let Some(&(value, _)) = Self::NAMED.iter().find(|(_, known)| *known == name) {
            return Ok(value);
        }
        let names: Vec<&str> = Self::NAMED.iter().map(|&(_, known)| known).collect();
        Err(unknown_name(option, name, &names))
    }
}

/// Gives an option its names: `names! { Option("option") { Value = "value", ... } }`.
///
/// The option gets `Display`, and a `FromStr` whose error lists the names and suggests the nearest one.
macro_rules! names {
    ($option:ident($called:literal) { $($value:ident = $name:literal),+ $(,)? }) => {
        impl $option {
            /// The name of this value.
            pub(crate) const fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $name,)+
                }
            }
        }

        impl $crate::names::Named for $option {
            const OPTION: &'static str = $called;
            const NAMED: &'static [(Self, &'static str)] = &[$((Self::$value, $name)),+];
        }

        impl std::fmt::Display for $option {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $option {
            type Err = $crate::error::Error;

            fn from_str(name: &str) -> Result<Self, Self::Err> {
                use $crate::names::Named;
                Ok(Self::of_name(Self::OPTION, name)?)
            }
        }
    };
}
pub(crate) use names;

/// The error for a name that is not in `names`. Suggests the nearest name.
pub(crate) fn unknown_name(option: &'static str, name: &str, names: &[&str]) -> InvalidParam {
    let listed: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
    let refused = InvalidParam::new(option, format!("one of {}", listed.join(", ")), format!("{name:?}"));
    match nearest(name, names) {
        Some(meant) => refused.with_remedy(format!("did you mean {meant:?}?")),
        None => refused,
    }
}

/// The most likely intended name: one that `word` abbreviates, or the one with the fewest letters to change.
fn nearest<'a>(word: &str, names: &[&'a str]) -> Option<&'a str> {
    let plain = |text: &str| text.to_lowercase().replace(['-', ' '], "_");
    let word = plain(word);
    let most = 1 + word.chars().count() / 4;
    let score = |name: &str| {
        let name = plain(name);
        if word.len() >= 3 && (name.starts_with(&word) || word.starts_with(&name)) {
            return 1;
        }
        edits(&word, &name)
    };
    let scored = names.iter().map(|&name| (score(name), name));
    scored.min_by_key(|&(score, _)| score).filter(|&(score, _)| score <= most).map(|(_, name)| name)
}

/// The Levenshtein distance of two words.
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, &y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_suggested() {
        let names = ["tolerance", "n_init", "max_iter", "bounds_memory", "rho"];
        for (word, meant) in [
            ("tol", Some("tolerance")),
            ("tollerance", Some("tolerance")),
            ("n-init", Some("n_init")),
            ("MAX_ITER", Some("max_iter")),
            ("bounds_memry", Some("bounds_memory")),
            ("color", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, &names), meant, "{word}");
        }
    }

    #[test]
    fn edits_are_counted() {
        for (a, b, n) in [("", "", 0), ("", "abc", 3), ("kitten", "sitting", 3), ("flaw", "lawn", 2)] {
            assert_eq!((edits(a, b), edits(b, a)), (n, n), "{a} {b}");
        }
    }
}
