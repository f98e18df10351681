//! The architecture that a kernel is compiled for.
//!
//! A [`Target`] is a GPU architecture as NVIDIA spells it: `sm_80`, `sm_90a`. Planning, rendering and compiling share
//! this one description of the hardware. It answers which device can run a kernel compiled for it
//! ([`Target::can_run_on`]), and what a kernel may use there ([`Target::has_wgmma`],
//! [`Target::shared_memory_per_block_opt_in`], ...).
//!
//! The facts are data, one row a capability. A capability newer than the table gets the minimum that every device since
//! compute capability 7.0 guarantees. A plan for it may be slow, but it is legal.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// A compute capability, major and minor: `(9, 0)` is a Hopper.
pub type ComputeCapability = (u32, u32);

/// The letter behind an architecture: it says which devices may use its special instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Feature {
    /// `a`: every instruction of this architecture; runs on it and on no other.
    Architecture,
    /// `f`: every instruction of its family; runs on later members of the same family.
    Family,
}

/// A GPU architecture to compile for, as in `sm_90a`.
///
/// ```
/// # use postlude::target::Target;
/// let target: Target = "sm_90a".parse()?;
/// assert_eq!(target, Target::SM_90A);
/// assert_eq!(target.compute_capability(), (9, 0));
/// assert!(target.can_run_on((9, 0)) && !target.can_run_on((10, 0)));
/// # Ok::<(), postlude::target::TargetError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target {
    major: u32,
    minor: u32,
    feature: Option<Feature>,
}

/// A GPU to plan for, beyond its architecture: how many multiprocessors it has, and whose measurements its tiles are
/// estimated by.
///
/// A number of multiprocessors alone stands for one that is like an H200.
///
/// ```
/// # use postlude::target::{Gpu, GpuModel};
/// assert_eq!("132@h100".parse::<Gpu>()?, Gpu { multiprocessors: 132, model: GpuModel::H100 });
/// assert_eq!(Gpu::from(78).to_string(), "78");
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Gpu {
    /// How many multiprocessors it has.
    pub multiprocessors: usize,
    /// Which measured GPU it is like.
    pub model: GpuModel,
}

/// The GPUs whose tiles were measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GpuModel {
    /// 4.8 TB/s of memory.
    #[default]
    H200,
    /// 3.35 TB/s of memory.
    H100,
}

impl GpuModel {
    /// Every model.
    pub const ALL: [GpuModel; 2] = [GpuModel::H200, GpuModel::H100];

    /// The name.
    pub const fn name(self) -> &'static str {
        match self {
            GpuModel::H200 => "h200",
            GpuModel::H100 => "h100",
        }
    }

    /// The model that a device is like, by the bytes a second that its memory moves.
    pub const fn of_bandwidth(bytes_per_second: u64) -> GpuModel {
        // Between the 3.35 TB/s of an H100 and the 4.8 of an H200.
        if bytes_per_second > 0 && bytes_per_second < 4_000_000_000_000 { GpuModel::H100 } else { GpuModel::H200 }
    }
}

impl From<usize> for Gpu {
    fn from(multiprocessors: usize) -> Gpu {
        Gpu { multiprocessors, model: GpuModel::default() }
    }
}

impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.model {
            GpuModel::H200 => write!(f, "{}", self.multiprocessors),
            other => write!(f, "{}@{}", self.multiprocessors, other.name()),
        }
    }
}

impl FromStr for Gpu {
    type Err = String;

    fn from_str(text: &str) -> Result<Gpu, String> {
        let (count, model) = text.split_once('@').unwrap_or((text, GpuModel::default().name()));
        let known = GpuModel::ALL.into_iter().find(|known| known.name() == model);
        let model = known.ok_or_else(|| format!("`{model}` is not a GPU whose tiles were measured: h200 and h100 are"))?;
        let multiprocessors = count.parse().ok().filter(|count| *count > 0);
        let multiprocessors = multiprocessors.ok_or_else(|| format!("`{count}` is not a number of multiprocessors"))?;
        Ok(Gpu { multiprocessors, model })
    }
}

/// Capabilities whose binaries do not run on their neighbours: NVIDIA promises binary compatibility between the minor
/// versions of discrete devices only, not from or to integrated ones.
const INTEGRATED: [ComputeCapability; 6] = [(5, 3), (6, 2), (7, 2), (8, 7), (10, 1), (11, 0)];

impl Target {
    /// Turing.
    pub const SM_75: Self = Self::new(7, 5);
    /// Ampere, data centre (A100).
    pub const SM_80: Self = Self::new(8, 0);
    /// Ampere, desktop.
    pub const SM_86: Self = Self::new(8, 6);
    /// Ada.
    pub const SM_89: Self = Self::new(8, 9);
    /// Hopper without its own instructions.
    pub const SM_90: Self = Self::new(9, 0);
    /// Hopper with all its instructions: `wgmma`, `setmaxnreg`.
    pub const SM_90A: Self = Self::new(9, 0).with_feature(Feature::Architecture);

    /// The plain architecture of a compute capability. The minor version is a single digit, as in every name by NVIDIA.
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor, feature: None }
    }

    /// The target that a device of that capability requests. Hopper's own instructions need the letter, and it costs
    /// nothing elsewhere.
    pub const fn of_device((major, minor): ComputeCapability) -> Self {
        let plain = Self::new(major, minor);
        if major == 9 && minor == 0 { plain.with_feature(Feature::Architecture) } else { plain }
    }

    /// The same architecture with the special instructions that `feature` unlocks.
    pub const fn with_feature(self, feature: Feature) -> Self {
        Self { feature: Some(feature), ..self }
    }

    /// Major and minor version.
    pub const fn compute_capability(self) -> ComputeCapability {
        (self.major, self.minor)
    }

    /// The letter behind the number, if there is one.
    pub const fn feature(self) -> Option<Feature> {
        self.feature
    }

    /// The number in the name: 90 for `sm_90a`.
    pub const fn number(self) -> u32 {
        self.major * 10 + self.minor
    }

    /// Whether a device of compute capability `device` can run a binary compiled for this target.
    ///
    /// Plain and family binaries run on the same or a later minor version of the same major version (not across the border
    /// between discrete and integrated devices); architecture-specific ones run on their own capability only.
    pub fn can_run_on(self, device: ComputeCapability) -> bool {
        let own = self.compute_capability();
        let alone = self.feature == Some(Feature::Architecture) || INTEGRATED.contains(&own) || INTEGRATED.contains(&device);
        if alone { device == own } else { device.0 == own.0 && device.1 >= own.1 }
    }

    /// Bytes of shared memory one block can have after opting in to more than the default 48 KiB.
    pub fn shared_memory_per_block_opt_in(self) -> u32 {
        let kib = match self.compute_capability() {
            (7, 0 | 2) => 96,
            (7, 5) => 64,
            (8, 0 | 7) => 163,
            (8, _) | (12, _) => 99,
            (9, 0) | (10, _) | (11, 0) => 227,
            _ => 48,
        };
        kib * 1024
    }

    /// 32-bit registers of a multiprocessor; the same on every device since compute capability 7.0.
    pub const fn registers_per_multiprocessor(self) -> u32 {
        65_536
    }

    const fn at_least(self, major: u32, minor: u32) -> bool {
        self.major > major || (self.major == major && self.minor >= minor)
    }

    /// `cp.async` copies and `mma.sync.m16n8k16`, the instructions of the `sm_80` mainloop.
    pub const fn has_cp_async_and_mma16(self) -> bool {
        self.at_least(8, 0)
    }

    /// Instructions that convert to the two eight-bit floating-point formats and back.
    pub const fn has_float8(self) -> bool {
        self.at_least(8, 9)
    }

    /// Clusters of blocks that read each other's shared memory.
    pub const fn has_clusters(self) -> bool {
        self.at_least(9, 0)
    }

    /// `griddepcontrol`: a kernel begins while the one before it still runs, and waits for it by itself.
    pub const fn has_programmatic_launches(self) -> bool {
        self.at_least(9, 0)
    }

    /// `wgmma` and `setmaxnreg`, the instructions of the `sm_90a` mainloop. Only Hopper has them.
    pub const fn has_wgmma(self) -> bool {
        self.major == 9 && self.minor == 0 && matches!(self.feature, Some(Feature::Architecture))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = match self.feature {
            None => "",
            Some(Feature::Architecture) => "a",
            Some(Feature::Family) => "f",
        };
        // `pad`, so that a width in the format string is honoured.
        f.pad(&format!("sm_{}{}{letter}", self.major, self.minor))
    }
}

/// A text that does not name a [`Target`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a target: write `sm_` and the compute capability without its point, as in `sm_80` or `sm_90a`")]
pub struct TargetError {
    /// The given text.
    pub text: String,
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let parse = || {
            let name = text.strip_prefix("sm_")?;
            let (digits, feature) = match name.as_bytes().last()? {
                b'a' => (&name[..name.len() - 1], Some(Feature::Architecture)),
                b'f' => (&name[..name.len() - 1], Some(Feature::Family)),
                _ => (name, None),
            };
            let plausible =
                matches!(digits.len(), 2..=3) && digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0');
            let number: u32 = plausible.then(|| digits.parse().ok())??;
            Some(Self { major: number / 10, minor: number % 10, feature })
        };
        parse().ok_or_else(|| TargetError { text: text.to_owned() })
    }
}

impl Serialize for Target {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Target {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for name in ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100f", "sm_120a", "sm_121"] {
            let target: Target = name.parse().expect(name);
            assert_eq!(target.to_string(), name);
            assert_eq!(target.number().to_string(), name.trim_start_matches("sm_").trim_end_matches(['a', 'f']));
            assert_eq!(serde_json::to_string(&target).unwrap(), format!("\"{name}\""));
            assert_eq!(serde_json::from_str::<Target>(&format!("\"{name}\"")).unwrap(), target);
        }
        assert_eq!("sm_90a".parse(), Ok(Target::SM_90A));
        assert_eq!("sm_103".parse(), Ok(Target::new(10, 3)));
        assert_eq!(format!("[{:>8}]", Target::SM_90A), "[  sm_90a]");
    }

    #[test]
    fn other_texts_are_refused_with_a_cure() {
        for text in
            ["", "sm_", "sm_a", "sm_9", "sm_90b", "sm_090", "sm_9000", "sm90", "SM_90", "compute_90", "90", "sm_é", "sm_+80"]
        {
            let error = text.parse::<Target>().expect_err(text);
            assert!(error.to_string().contains("as in `sm_80`"), "{error}");
        }
        let error = serde_json::from_str::<Target>("\"sm90\"").unwrap_err().to_string();
        assert!(error.starts_with("`sm90` is not a target"), "{error}");
    }

    #[test]
    fn binaries_run_where_nvidia_says() {
        assert!(Target::SM_80.can_run_on((8, 0)) && Target::SM_80.can_run_on((8, 6)) && Target::SM_80.can_run_on((8, 9)));
        assert!(!Target::SM_86.can_run_on((8, 0)) && !Target::SM_80.can_run_on((9, 0)) && !Target::SM_80.can_run_on((7, 5)));
        assert!(
            !Target::SM_80.can_run_on((8, 7)) && Target::new(8, 7).can_run_on((8, 7)) && !Target::new(8, 7).can_run_on((8, 9))
        );
        assert!(Target::SM_90.can_run_on((9, 0)) && Target::SM_90A.can_run_on((9, 0)) && !Target::SM_90A.can_run_on((9, 1)));
        assert_eq!([(8, 0), (9, 0), (10, 0)].map(Target::of_device), [Target::SM_80, Target::SM_90A, Target::new(10, 0)]);
        let family = Target::new(10, 0).with_feature(Feature::Family);
        assert!(family.can_run_on((10, 3)) && !family.can_run_on((12, 0)));
    }

    #[test]
    fn facts_follow_the_capability() {
        let kib = |major, minor| Target::new(major, minor).shared_memory_per_block_opt_in() / 1024;
        assert_eq!([kib(7, 5), kib(8, 0), kib(8, 6), kib(8, 7), kib(8, 9)], [64, 163, 99, 163, 99]);
        assert_eq!([kib(9, 0), kib(10, 0), kib(10, 3), kib(12, 0), kib(12, 1)], [227, 227, 227, 99, 99]);
        assert_eq!([kib(13, 0), kib(9, 9), kib(99, 9)], [48, 48, 48], "unknown capabilities promise the minimum");
        assert!(!Target::SM_75.has_cp_async_and_mma16() && Target::SM_80.has_cp_async_and_mma16());
        assert!(Target::SM_90.has_clusters() && !Target::SM_89.has_clusters());
        assert!(Target::SM_90A.has_wgmma() && !Target::SM_90.has_wgmma());
        assert!(!Target::new(10, 0).with_feature(Feature::Architecture).has_wgmma());
    }
}
