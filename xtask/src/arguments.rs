//! Command-line arguments. An argument that nobody asked for is an error.

use crate::Failure;

/// The arguments that are not used yet.
pub(crate) struct Arguments(Vec<String>);

impl Arguments {
    pub(crate) fn new(arguments: impl Iterator<Item = String>) -> Self {
        Self(arguments.collect())
    }

    /// Takes the first argument: the name of a command.
    pub(crate) fn command(&mut self) -> Option<String> {
        (!self.0.is_empty()).then(|| self.0.remove(0))
    }

    /// Takes a switch such as `--no-lint`.
    pub(crate) fn switch(&mut self, name: &str) -> bool {
        let before = self.0.len();
        self.0.retain(|argument| argument != name);
        self.0.len() < before
    }

    /// Takes an option with a value, `--name value` or `--name=value`.
    pub(crate) fn value(&mut self, name: &str) -> Result<Option<String>, Failure> {
        let inline = format!("{name}=");
        let Some(at) = self.0.iter().position(|a| a == name || a.starts_with(&inline)) else {
            return Ok(None);
        };
        let argument = self.0.remove(at);
        if let Some(value) = argument.strip_prefix(&inline) {
            return Ok(Some(value.to_owned()));
        }
        if at == self.0.len() {
            return Err(Failure::Usage(format!("{name} needs a value")));
        }
        Ok(Some(self.0.remove(at)))
    }

    /// Takes an option with a value that can be parsed.
    pub(crate) fn parsed<T: std::str::FromStr>(&mut self, name: &str) -> Result<Option<T>, Failure> {
        let parse = |text: String| {
            text.parse().map_err(|_| Failure::Usage(format!("{text:?} is no value for {name}")))
        };
        self.value(name)?.map(parse).transpose()
    }

    /// The arguments that are left, none of which may look like an option.
    pub(crate) fn rest(self) -> Result<Vec<String>, Failure> {
        match self.0.iter().find(|argument| argument.starts_with('-')) {
            Some(unknown) => Err(Failure::Usage(format!("there is no option {unknown:?} here"))),
            None => Ok(self.0),
        }
    }

    /// Nothing may be left.
    pub(crate) fn nothing_left(self) -> Result<(), Failure> {
        match self.0.first() {
            Some(unknown) => Err(Failure::Usage(format!("did not expect {unknown:?} here"))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(words: &[&str]) -> Arguments {
        Arguments::new(words.iter().map(|word| (*word).to_owned()))
    }

    #[test]
    fn options_are_taken_in_both_spellings_and_the_rest_stays() {
        let mut given = arguments(&["start", "--nodes", "3", "--version=3.9.1", "--no-lint", "name"]);
        assert_eq!(given.command().as_deref(), Some("start"));
        assert_eq!(given.parsed::<u32>("--nodes").ok().flatten(), Some(3));
        assert_eq!(given.value("--version").ok().flatten().as_deref(), Some("3.9.1"));
        assert!(given.switch("--no-lint"));
        assert!(!given.switch("--no-lint"));
        assert_eq!(given.rest().ok(), Some(vec!["name".to_owned()]));
    }

    #[test]
    fn what_nobody_asked_for_is_an_error() {
        assert!(arguments(&["--unknown"]).rest().is_err());
        assert!(arguments(&["name"]).nothing_left().is_err());
        assert!(arguments(&["--nodes"]).value("--nodes").is_err());
        assert!(arguments(&["--nodes", "many"]).parsed::<u32>("--nodes").is_err());
    }
}
