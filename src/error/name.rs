//! Names of executors and policies, interned so that errors and events carry them for free.

use std::collections::HashMap;
use std::fmt;
use std::sync::{LazyLock, Mutex, PoisonError};

use super::config::ConfigError;

/// The name of an executor or a policy.
///
/// `Copy`: an error or an event names its origin without counting references. The
/// text is kept for the life of the program, which is why the number of different names is bounded by [`MAX_NAMES`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Name(&'static &'static str);

impl Name {
    /// Interns `text`: the same text gives the same name.
    ///
    /// # Errors
    /// If `text` is empty, or if the program has used more than [`MAX_NAMES`] different names already, which is a sign
    /// that something unbounded (a host, a user id) is used as a name.
    pub fn new(text: &str) -> Result<Name, ConfigError> {
        if text.is_empty() {
            return Err(ConfigError::new("name", "\"\"", "must not be empty"));
        }
        let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = names.get(text) {
            return Ok(Name(known));
        }
        if names.len() >= MAX_NAMES {
            return Err(ConfigError::new("name", text, "a program may use at most 4096 different names"));
        }
        let text: &'static str = Box::leak(text.into());
        // One word for a name, where handles are many.
        let kept: &'static &'static str = Box::leak(Box::new(text));
        names.insert(text, kept);
        Ok(Name(kept))
    }

    /// The text of the name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.0
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// How many different names one program may use: names are dependencies, of which even a large service has dozens.
pub const MAX_NAMES: usize = 4096;

static NAMES: LazyLock<Mutex<HashMap<&'static str, &'static &'static str>>> = LazyLock::new(Mutex::default);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_text_gives_the_same_name() {
        let first = Name::new("billing").unwrap();
        let again = Name::new(&String::from("billing")).unwrap();
        assert_eq!(first, again);
        assert!(std::ptr::eq(first.as_str(), again.as_str()));
        assert_eq!(first.to_string(), "billing");
    }

    #[test]
    fn an_empty_name_is_refused() {
        assert_eq!(Name::new("").unwrap_err().field(), "name");
    }
}
