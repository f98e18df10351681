//! The arguments of the command.

use crate::Result;
use std::collections::VecDeque;

pub struct Args(VecDeque<String>);

impl Args {
    pub fn new(words: Vec<String>) -> Args {
        Args(words.into())
    }

    /// The next word, whatever it is.
    pub fn next(&mut self) -> Option<String> {
        self.0.pop_front()
    }

    /// Removes a flag, if present.
    pub fn flag(&mut self, name: &str) -> bool {
        let at = self.0.iter().position(|word| word == name);
        at.and_then(|at| self.0.remove(at)).is_some()
    }

    /// Removes an option and its value, if present.
    pub fn value(&mut self, name: &str) -> Result<Option<String>> {
        let Some(at) = self.0.iter().position(|word| word == name) else { return Ok(None) };
        self.0.remove(at);
        let value = self.0.remove(at).filter(|value| !value.starts_with("--"));
        Ok(Some(value.ok_or_else(|| format!("`{name}` needs a value"))?))
    }

    /// Every value of a repeatable option.
    pub fn values(&mut self, name: &str) -> Result<Vec<String>> {
        let mut values = Vec::new();
        while let Some(value) = self.value(name)? {
            values.push(value);
        }
        Ok(values)
    }

    /// The only remaining word.
    pub fn one(mut self, what: &str) -> Result<String> {
        let word = self.0.pop_front().ok_or_else(|| format!("{what} is missing"))?;
        self.end()?;
        Ok(word)
    }

    /// All remaining words, none of which is an option.
    pub fn rest(self) -> Result<Vec<String>> {
        match self.0.iter().find(|word| word.starts_with("--")) {
            Some(unknown) => Err(format!("unknown option `{unknown}`; `postlude-cache help` names them").into()),
            None => Ok(self.0.into()),
        }
    }

    /// Checks that no word remains.
    pub fn end(&self) -> Result {
        match self.0.front() {
            Some(word) => Err(format!("`{word}` is one word too many; see `postlude-cache help`").into()),
            None => Ok(()),
        }
    }
}

/// A number, with an optional K, M or G for powers of 1024.
pub fn size(text: &str) -> Result<u64> {
    let (digits, shift) = match text.strip_suffix(['K', 'M', 'G']) {
        Some(digits) => (digits, 10 * (1 + "KMG".find(&text[digits.len()..]).unwrap_or(0) as u32)),
        None => (text, 0),
    };
    let number: Option<u64> = digits.parse().ok();
    let size = number.and_then(|number| number.checked_mul(1 << shift));
    Ok(size.ok_or_else(|| format!("`{text}` is not a size; write a number, as in 65536, 64K, 512M or 2G"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        assert_eq!(["0", "7", "64K", "512M", "2G"].map(|text| size(text).unwrap()), [0, 7, 65_536, 512 << 20, 2 << 30]);
        for wrong in ["", "K", "-1", "1.5G", "99999999999G", "1T", "1 M"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn options_are_taken_out() {
        let mut args = Args::new(["a", "--x", "1", "b", "--flag", "--x", "2"].map(String::from).to_vec());
        assert_eq!((args.values("--x").unwrap(), args.flag("--flag")), (vec!["1".into(), "2".into()], true));
        assert_eq!(args.rest().unwrap(), ["a", "b"]);
        assert!(Args::new(vec!["--x".into()]).value("--x").is_err());
        assert!(Args::new(vec!["--x".into(), "--y".into()]).value("--x").is_err());
        assert!(Args::new(vec!["--x".into()]).rest().is_err());
    }
}
