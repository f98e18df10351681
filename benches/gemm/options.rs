//! The command line.

use crate::case::{Case, Fused, Group, Slices};
use postlude::prelude::*;
use std::path::PathBuf;

pub const USAGE: &str = "\
Usage: cargo bench --bench gemm -- [OPTION...]

  --group LIST     of large, small, decode, unaligned, layouts, tax, activations, regions, choice, raster, stages, split,
                   parts, f32, tf32, pointwise, training, survey, map (default: all but the last two)
  --dtype LIST     of f16, bf16, f32 (default: the group's)
  --epilogue LIST  of identity, relu, gelu, residual, regions, heavy, relu_mask, gelu_input, mask_sum,
                   gelu_sum, bias_sum; for group activations: of the library's activations that are not among these
                   (default: the group's)
  --shape LIST     as 4096x4096x4096, instead of the group's
  --slices WHICH   long (160 ms), short (2.5 ms) or both (default: the group's)
  --rounds N       how often each contender runs (default: 7 long ones, 31 short ones)
  --kernel LIST    for group choice: only these kernels, and cuBLASLt. Each is a part of a tile's name (its end, if one
                   ends so), then @GROUP for the order of its tiles, +step or -step for blocks in lockstep or not,
                   +turned or -turned for the product transposed or as it is; separated by `;`
  --launch HOW     stream, graph or auto: graphs of at least 20 launches for kernels below 200 us (default: auto)
  --only TEXT      only cases with TEXT in their title
  --csv FILE       append a line for each comparison as soon as it is known
  --list           print the cases, with an estimate of their time, and measure nothing

POSTLUDE_BENCH_CONTEST and POSTLUDE_BENCH_SLICES stand in for --only and --slices.
";

/// How launches get to the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LaunchMode {
    /// As graphs where a launch is so short that the host would be measured.
    #[default]
    Auto,
    Stream,
    Graph,
}

/// A kernel by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// A part of its tile's name; empty for the tile that is chosen.
    pub tile: String,
    /// The order of its tiles; 0 for its own.
    pub raster: i32,
    pub lockstep: Option<bool>,
    pub transposed: Option<bool>,
}

impl Named {
    fn parse(word: &str) -> Option<Named> {
        let (word, transposed) = wish(word, "turned");
        let (word, lockstep) = wish(word, "step");
        let (tile, raster) = word.split_once('@').unwrap_or((word, "0"));
        Some(Named { tile: tile.trim().to_owned(), raster: raster.trim().parse().ok()?, lockstep, transposed })
    }
}

/// What stands before a word that is added with a sign, and the wish that it states.
fn wish<'w>(word: &'w str, ending: &str) -> (&'w str, Option<bool>) {
    match word.strip_suffix(ending) {
        Some(rest) if rest.ends_with('+') => (&rest[..rest.len() - 1], Some(true)),
        Some(rest) if rest.ends_with('-') => (&rest[..rest.len() - 1], Some(false)),
        _ => (word, None),
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    pub groups: Vec<Group>,
    pub dtypes: Option<Vec<DType>>,
    pub epilogues: Option<Vec<Fused>>,
    pub shapes: Option<Vec<[usize; 3]>>,
    pub slices: Option<Vec<Slices>>,
    pub rounds: Option<usize>,
    /// The peers of the chosen kernel, instead of every candidate.
    pub kernels: Vec<Named>,
    pub launch: LaunchMode,
    pub only: String,
    pub csv: Option<PathBuf>,
    pub list: bool,
    /// Without it, as under `cargo test`, everything runs once on a small shape and nothing is measured.
    pub measured: bool,
}

impl Options {
    /// Reads flags; `environment` answers for variables.
    ///
    /// # Errors
    /// The error, with the usage.
    pub fn parse(args: &[String], environment: impl Fn(&str) -> Option<String>) -> Result<Options, String> {
        // The survey is for fitting the model of tiles, the map for a picture.
        let groups = Group::ALL.into_iter().filter(|group| !matches!(group, Group::Survey | Group::Map)).collect();
        let mut options = Options { groups, ..Options::default() };
        options.only = environment("POSTLUDE_BENCH_CONTEST").unwrap_or_default();
        options.slices =
            environment("POSTLUDE_BENCH_SLICES").filter(|word| !word.is_empty()).map(|word| slices(&word)).transpose()?;
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().map(String::as_str).ok_or_else(|| format!("`{arg}` needs a value\n\n{USAGE}"));
            match arg.as_str() {
                "--bench" => options.measured = true,
                "--group" => options.groups = list(value()?, |word| named(&Group::ALL, Group::word, word))?,
                "--dtype" => {
                    options.dtypes = Some(list(value()?, |word| [F16, BF16, F32].into_iter().find(|d| d.to_string() == word))?)
                }
                "--epilogue" => {
                    options.epilogues = Some(list(value()?, |word| {
                        named(&Fused::ALL, Fused::word, word).or_else(|| named(&Fused::activations(), Fused::word, word))
                    })?)
                }
                "--shape" => options.shapes = Some(list(value()?, shape)?),
                "--slices" => options.slices = Some(slices(value()?)?),
                "--rounds" => options.rounds = Some(one(value()?, |word| word.parse().ok().filter(|n| *n > 0))?),
                "--kernel" => options.kernels = apart(value()?, ';', Named::parse)?,
                "--launch" => {
                    options.launch = one(value()?, |word| match word {
                        "auto" => Some(LaunchMode::Auto),
                        "stream" => Some(LaunchMode::Stream),
                        "graph" => Some(LaunchMode::Graph),
                        _ => None,
                    })?;
                }
                "--only" => options.only = value()?.to_owned(),
                "--csv" => options.csv = Some(value()?.into()),
                "--list" => options.list = true,
                other => return Err(format!("unknown option `{other}`\n\n{USAGE}")),
            }
        }
        Ok(options)
    }

    /// The selected cases, in this order.
    pub fn cases(&self) -> Vec<Case> {
        let of_group = |group: &Group| {
            let shapes =
                self.shapes.clone().unwrap_or_else(|| if self.measured || self.list { group.shapes() } else { vec![SMALL] });
            Case::list(*group, self.dtypes.as_deref(), self.epilogues.as_deref(), &shapes)
        };
        self.groups.iter().flat_map(of_group).filter(|case| case.title().contains(&self.only)).collect()
    }

    /// The slices of a group.
    pub fn slices(&self, group: Group) -> Vec<Slices> {
        self.slices.clone().unwrap_or_else(|| group.slices().to_vec())
    }
}

/// The device of a run that measures nothing.
const SMALL: [usize; 3] = [256, 320, 192];

fn slices(word: &str) -> Result<Vec<Slices>, String> {
    match word {
        "long" => Ok(vec![Slices::Long]),
        "short" => Ok(vec![Slices::Short]),
        "both" => Ok(vec![Slices::Long, Slices::Short]),
        other => Err(format!("slices are long, short or both, not `{other}`\n\n{USAGE}")),
    }
}

fn list<T>(words: &str, read: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, String> {
    apart(words, ',', read)
}

fn one<T>(word: &str, read: impl Fn(&str) -> Option<T>) -> Result<T, String> {
    read(word).ok_or_else(|| format!("`{word}` is unknown here\n\n{USAGE}"))
}

fn apart<T>(words: &str, by: char, read: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, String> {
    words.split(by).map(|word| read(word).ok_or_else(|| format!("`{word}` is unknown here\n\n{USAGE}"))).collect()
}

fn named<T: Copy>(all: &[T], name: impl Fn(T) -> &'static str, word: &str) -> Option<T> {
    all.iter().copied().find(|x| name(*x) == word)
}

fn shape(word: &str) -> Option<[usize; 3]> {
    let extents: Vec<usize> =
        word.split('x').map(|x| x.parse().ok().filter(|x| (1..=Shape::LARGEST).contains(x))).collect::<Option<_>>()?;
    extents.try_into().ok()
}
