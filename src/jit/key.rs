//! The name under which a kernel is cached.
//!
//! A [`CacheKey`] is a hash of everything that influences a binary, and of nothing else: the build of the compiler, the
//! kind of output, the target, the options in order, the name of the kernel, the whole source. Paths, time, host and
//! the build of this crate do not enter. Two machines that would compile the same kernel agree on its key, so a cache
//! directory can be copied between them.
//!
//! Every field is preceded by its length, so different inputs never hash the same bytes.

use crate::source::Source;
use crate::target::Target;
use std::fmt;

/// The version of the hashed fields and of a cache entry's contents. Raise it when either changes its meaning.
pub(super) const FORMAT: u32 = 1;

/// The only kind of output.
const OUTPUT: &str = "cubin";

/// A hash of everything that influences a kernel. Displayed as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CacheKey([u8; 32]);

impl CacheKey {
    /// Digits of a printed key.
    pub(super) const DIGITS: usize = 64;

    /// The key of the binary that `compiler` makes of `source` with `flags`.
    pub(super) fn new(compiler: &str, target: Target, flags: &[String], source: &Source) -> Self {
        Self::of_fields(FORMAT, compiler, OUTPUT, &target.to_string(), flags, source.entry(), source.text())
    }

    fn of_fields(format: u32, compiler: &str, output: &str, target: &str, flags: &[String], entry: &str, text: &str) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("postlude 2026 jit cache key");
        hasher.update(&format.to_le_bytes());
        let mut field = |text: &str| {
            hasher.update(&(text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        };
        field(compiler);
        field(output);
        field(target);
        field(&flags.len().to_string());
        flags.iter().for_each(|flag| field(flag));
        field(entry);
        field(text);
        Self(*hasher.finalize().as_bytes())
    }

    /// The key of a note, from the fields of its subject.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "only what runs kernels takes notes"))]
    pub(crate) fn of_note(fields: &[&str]) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("postlude 2026 jit note key");
        hasher.update(&FORMAT.to_le_bytes());
        for field in fields {
            hasher.update(&(field.len() as u64).to_le_bytes());
            hasher.update(field.as_bytes());
        }
        Self(*hasher.finalize().as_bytes())
    }

    /// The key of a memo. It never leaves the process.
    pub(crate) fn of_memo(fields: &[&[u8]]) -> Self {
        let mut bytes = Vec::with_capacity(256);
        for field in fields {
            bytes.extend_from_slice(&(field.len() as u64).to_le_bytes());
            bytes.extend_from_slice(field);
        }
        Self(*blake3::hash(&bytes).as_bytes())
    }

    /// A hash that was read.
    pub(super) const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The hash itself.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    #[cfg(test)]
    pub(super) const fn for_test(byte: u8) -> Self {
        Self([byte; 32])
    }
}

impl fmt::Display for CacheKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for CacheKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CacheKey({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn flags(texts: &[&str]) -> Vec<String> {
        texts.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn golden() {
        let source = Source::new("extern \"C\" __global__ void k() {}", "k");
        let key = CacheKey::new("NVRTC 13.0 V13.0.88 CL-36424714", Target::SM_90A, &flags(&["--std=c++17", "-x"]), &source);
        // If this changes, every kernel on every disk is compiled again. Change it knowingly.
        assert_eq!(key.to_string(), "63727fbf45cd5f250ed1b8d67a04ad50be6f202bd8cf62cdbf8c2b2ad5372f49");
        assert_eq!(format!("{key:?}"), format!("CacheKey({key})"));
    }

    #[test]
    fn every_field_counts() {
        let base = flags(&["a", "b"]);
        let keys = [
            CacheKey::of_fields(1, "c", "o", "t", &base, "e", "s"),
            CacheKey::of_fields(2, "c", "o", "t", &base, "e", "s"),
            CacheKey::of_fields(1, "C", "o", "t", &base, "e", "s"),
            CacheKey::of_fields(1, "c", "O", "t", &base, "e", "s"),
            CacheKey::of_fields(1, "c", "o", "T", &base, "e", "s"),
            CacheKey::of_fields(1, "c", "o", "t", &flags(&["b", "a"]), "e", "s"),
            CacheKey::of_fields(1, "c", "o", "t", &flags(&["ab"]), "e", "s"),
            CacheKey::of_fields(1, "c", "o", "t", &flags(&["a"]), "b", "s"),
            CacheKey::of_fields(1, "c", "o", "t", &flags(&["a", "b", "e"]), "", "s"),
            CacheKey::of_fields(1, "c", "o", "t", &[], "e", "s"),
            CacheKey::of_fields(1, "c", "o", "t", &base, "E", "s"),
            CacheKey::of_fields(1, "c", "o", "t", &base, "e", "S"),
            CacheKey::of_fields(1, "c", "o", "t", &base, "es", ""),
            CacheKey::of_fields(1, "co", "", "t", &base, "e", "s"),
        ];
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len());
        assert_eq!(keys[0], CacheKey::of_fields(1, "c", "o", "t", &base, "e", "s"));
    }

    #[test]
    fn every_option_counts() {
        let options: Vec<String> = (0..12).map(|number| format!("--option={number}")).collect();
        let key = |options: &[String]| CacheKey::of_fields(1, "c", "o", "t", options, "e", "s");
        let mut keys = HashSet::from([key(&options), key(&options[1..]), key(&options[..11])]);
        for at in 0..options.len() {
            let mut other = options.clone();
            other[at].push('x');
            keys.insert(key(&other));
        }
        assert_eq!(keys.len(), options.len() + 3);
    }

    #[test]
    fn notes_are_told_apart() {
        let keys = [&["ab", "c"][..], &["a", "bc"], &["abc"], &["abc", ""], &["", "abc"], &[]].map(CacheKey::of_note);
        assert_eq!(keys.iter().collect::<HashSet<_>>().len(), keys.len());
        assert_eq!(keys[0], CacheKey::of_note(&["ab", "c"]));
    }
}
