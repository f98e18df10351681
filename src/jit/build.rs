//! What a key says of the compiler, and its record beside the kernels.

use super::envelope::Damage;
use super::key::CacheKey;
use super::note;
use serde::{Deserialize, Serialize};

/// The compiler's part of a key. It is stored beside the kernels, so that a machine without a compiler knows which keys
/// to look for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Build {
    /// Version and build.
    pub identity: String,
    /// The options of every compilation.
    pub common: Vec<String>,
}

impl Build {
    /// The numbers in the identity, major version first. The newer of two builds has the larger ones.
    pub fn age(&self) -> Vec<u64> {
        let numbers = self.identity.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
        numbers.map(|digits| digits.parse().unwrap_or(u64::MAX)).collect()
    }
}

/// The compiler that a file describes, and its key.
pub(super) fn compiler_in(bytes: &[u8]) -> Result<(CacheKey, Build), Damage> {
    let (key, text) = note::decode_any(bytes)?;
    let build: Build = serde_json::from_slice(&text).map_err(|_| Damage::Description)?;
    if key == CacheKey::of_note(&["compiler", &build.identity]) { Ok((key, build)) } else { Err(Damage::Key) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_builds_are_larger() {
        let build = |identity: &str| Build { identity: identity.into(), common: Vec::new() };
        let sorted = ["", "NVRTC 9.9", "NVRTC 12.9 V12.9.86 CL-9", "NVRTC 13.0 V13.0.48 CL-8", "NVRTC 13.0 V13.0.88 CL-1"];
        assert!(sorted.windows(2).all(|pair| build(pair[0]).age() < build(pair[1]).age()));
        assert_eq!(build(&"9".repeat(90)).age(), [u64::MAX]);
    }
}
