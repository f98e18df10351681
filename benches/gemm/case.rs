//! The cases: groups, each an operation on a shape with one or several epilogues.

use crate::sample;
use postlude::build::activation;
use postlude::prelude::*;

/// An epilogue of the contests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fused {
    /// D = acc.
    Identity,
    /// Bias over N, ReLU.
    Relu,
    /// Bias over N, GELU by its tanh formula.
    Gelu,
    /// D = acc + C.
    Residual,
    /// Bias over N; sigmoid in the rows before a run-time boundary, tanh from there on.
    Regions,
    /// Bias over N, SiLU, times a matrix, times a scale of each row.
    Heavy,
    /// Bias over N, ReLU, and its mask, one bit an element.
    ReluMask,
    /// Bias over N, GELU by its tanh formula, and the matrix that it was applied to.
    GeluInput,
    /// Zero where a mask is, and the sum of each column.
    MaskSum,
    /// Times the derivative of GELU at a matrix, and the sum of each column.
    GeluSum,
    /// The gradient of a weight, and of its bias: D = acc, and the sum of B over K.
    BiasSum,
    /// D = an activation of acc, by its place in the table.
    Activation(usize),
}

impl Fused {
    /// Every activation of the table.
    pub fn activations() -> Vec<Fused> {
        (0..activation::ALL.len()).map(Fused::Activation).collect()
    }

    /// Epilogues with a case of their own. Activations are those of the table.
    pub const ALL: [Fused; 11] = [
        Fused::Identity,
        Fused::Relu,
        Fused::Gelu,
        Fused::Residual,
        Fused::Regions,
        Fused::Heavy,
        Fused::ReluMask,
        Fused::GeluInput,
        Fused::MaskSum,
        Fused::GeluSum,
        Fused::BiasSum,
    ];

    /// Epilogues that need only matrices and vectors of the product's format.
    pub const PLAIN: [Fused; 6] = [Fused::Identity, Fused::Relu, Fused::Gelu, Fused::Residual, Fused::Regions, Fused::Heavy];

    /// Those of a step of training.
    pub const TRAINING: [Fused; 5] = [Fused::ReluMask, Fused::GeluInput, Fused::MaskSum, Fused::GeluSum, Fused::BiasSum];

    /// Those that cuBLASLt has in one call.
    pub const PEERED: [Fused; 4] = [Fused::Identity, Fused::Relu, Fused::Gelu, Fused::Residual];

    /// The name in flags.
    pub fn word(self) -> &'static str {
        match self {
            Fused::Activation(place) => activation::ALL[place].name,
            Fused::Identity => "identity",
            Fused::Relu => "relu",
            Fused::Gelu => "gelu",
            Fused::Residual => "residual",
            Fused::Regions => "regions",
            Fused::Heavy => "heavy",
            Fused::ReluMask => "relu_mask",
            Fused::GeluInput => "gelu_input",
            Fused::MaskSum => "mask_sum",
            Fused::GeluSum => "gelu_sum",
            Fused::BiasSum => "bias_sum",
        }
    }

    /// The name in tables.
    pub fn title(self) -> &'static str {
        match self {
            Fused::Activation(_) => self.word(),
            Fused::Identity => "identity",
            Fused::Relu => "bias, relu",
            Fused::Gelu => "bias, gelu (tanh)",
            Fused::Residual => "acc + C",
            Fused::Regions => "bias, sigmoid in rows before a boundary, tanh below",
            Fused::Heavy => "bias, silu, times matrix, times row scale",
            Fused::ReluMask => "bias, relu, mask stored",
            Fused::GeluInput => "bias, gelu (tanh), its input stored",
            Fused::MaskSum => "drelu by mask, bias gradient",
            Fused::GeluSum => "dgelu (tanh), bias gradient",
            Fused::BiasSum => "weight gradient, bias gradient",
        }
    }

    /// Matrices it reads besides A and B, or writes besides D.
    const fn matrices(self) -> usize {
        matches!(self, Fused::Residual | Fused::Heavy | Fused::GeluInput | Fused::GeluSum) as usize
    }

    /// Whether it reads or writes a mask.
    pub const fn has_mask(self) -> bool {
        matches!(self, Fused::ReluMask | Fused::MaskSum)
    }

    /// Whether it adds up columns.
    pub const fn has_sums(self) -> bool {
        matches!(self, Fused::MaskSum | Fused::GeluSum | Fused::BiasSum)
    }

    /// The same without the additions of training.
    pub const fn without_training(self) -> Fused {
        match self {
            Fused::ReluMask => Fused::Relu,
            Fused::GeluInput => Fused::Gelu,
            Fused::MaskSum | Fused::GeluSum | Fused::BiasSum => Fused::Identity,
            other => other,
        }
    }
}

/// The row at which regions change: in the middle, and in no tile's border.
pub const fn boundary(m: usize) -> usize {
    m * 5 / 11 + 1
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Shapes on which power limits the card.
    Large,
    /// A few waves of tiles, or less than one.
    Small,
    /// Few rows: weights are read once, from HBM.
    Decode,
    /// Layers of models behind 8 to 256 rows, with weights declared constant; and the same with plain launches.
    Few,
    FewPlain,
    /// Extents that no tile divides, and leading dimensions that are not aligned.
    Unaligned,
    /// The other orders of A and B.
    Layouts,
    /// Every epilogue over our identity.
    Tax,
    /// Every activation of the table over our identity.
    Activations,
    /// Epilogues that cuBLASLt does not have in one call, against cuBLASLt and further kernels.
    Regions,
    /// The chosen tile against all others.
    Choice,
    /// The chosen order of tiles against others.
    Raster,
    /// The mainloop's ring against shorter ones, which leave the epilogue more room.
    Stages,
    /// Few tiles and long K, where K is split.
    Split,
    /// One piece of K against parts.
    Parts,
    /// Every tile that might be best, on shapes that nobody picked.
    Survey,
    /// Full precision, without tensor cores.
    F32,
    /// The same format as tf32, on tensor cores.
    Tf32,
    /// An epilogue over a matrix that exists, against a copy.
    Pointwise,
    /// The saved values of a forward step, and backward steps with a bias gradient.
    Training,
    /// Small to large M and N at several K, for a picture.
    Map,
}

/// The contenders of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Ours against cuBLASLt.
    Peer,
    /// Ours against our identity.
    Tax,
    /// Ours against cuBLASLt and kernels of one pass over D.
    Sequence,
    /// Our choice against our other candidates.
    Choice,
    /// Our choice against the same tile in other orders.
    Raster,
    /// Our choice against the same tile with fewer stages.
    Stages,
    /// Our choice against other numbers of parts of K.
    Parts,
    /// Every tile that might be best, each for itself.
    Survey,
    /// Our pointwise operation against a copy.
    Copy,
    /// Ours against cuBLASLt, against several kernels, and against the same without the additions of training.
    Training,
}

impl Group {
    pub const ALL: [Group; 21] = [
        Group::Large,
        Group::Small,
        Group::Decode,
        Group::Few,
        Group::FewPlain,
        Group::Unaligned,
        Group::Layouts,
        Group::Tax,
        Group::Activations,
        Group::Regions,
        Group::Choice,
        Group::Raster,
        Group::Stages,
        Group::Split,
        Group::Parts,
        Group::Survey,
        Group::F32,
        Group::Tf32,
        Group::Pointwise,
        Group::Training,
        Group::Map,
    ];

    pub const fn word(self) -> &'static str {
        match self {
            Group::Large => "large",
            Group::Small => "small",
            Group::Decode => "decode",
            Group::Few => "few",
            Group::FewPlain => "few_plain",
            Group::Unaligned => "unaligned",
            Group::Layouts => "layouts",
            Group::Tax => "tax",
            Group::Activations => "activations",
            Group::Regions => "regions",
            Group::Choice => "choice",
            Group::Raster => "raster",
            Group::Stages => "stages",
            Group::Split => "split",
            Group::Parts => "parts",
            Group::Survey => "survey",
            Group::F32 => "f32",
            Group::Tf32 => "tf32",
            Group::Pointwise => "pointwise",
            Group::Training => "training",
            Group::Map => "map",
        }
    }

    const fn kind(self) -> Kind {
        match self {
            Group::Tax | Group::Activations => Kind::Tax,
            Group::Regions => Kind::Sequence,
            Group::Choice => Kind::Choice,
            Group::Raster => Kind::Raster,
            Group::Stages => Kind::Stages,
            Group::Parts => Kind::Parts,
            Group::Survey => Kind::Survey,
            Group::Pointwise => Kind::Copy,
            Group::Training => Kind::Training,
            _ => Kind::Peer,
        }
    }

    /// Formats, unless others are asked for.
    pub fn dtypes(self) -> Vec<DType> {
        match self {
            Group::Large | Group::Small | Group::Decode | Group::Training => vec![F16, BF16],
            Group::F32 | Group::Tf32 => vec![F32],
            Group::Few | Group::FewPlain => vec![BF16],
            _ => vec![F16],
        }
    }

    /// Epilogues, unless others are asked for.
    pub fn epilogues(self) -> Vec<Fused> {
        match self {
            Group::Tax => Fused::PLAIN.to_vec(),
            Group::Activations => Fused::activations(),
            // A run has no room for `gelu_input` and `bias_sum`; ask for them.
            Group::Training => vec![Fused::ReluMask, Fused::MaskSum, Fused::GeluSum],
            Group::Regions => vec![Fused::Regions, Fused::Heavy],
            Group::Layouts | Group::Decode | Group::Few | Group::FewPlain | Group::Split | Group::Tf32 => {
                vec![Fused::Identity, Fused::Relu]
            }
            Group::Choice | Group::Raster | Group::Parts => vec![Fused::Relu],
            Group::Stages => vec![Fused::Identity, Fused::Gelu],
            Group::F32 | Group::Map => vec![Fused::Identity],
            Group::Survey => Fused::PLAIN.to_vec(),
            Group::Pointwise => vec![Fused::Relu, Fused::Gelu],
            _ => Fused::PEERED.to_vec(),
        }
    }

    /// The epilogues that `--epilogue` accepts.
    fn has(self, fused: Fused) -> bool {
        match self.kind() {
            Kind::Peer => Fused::PEERED.contains(&fused),
            Kind::Sequence => matches!(fused, Fused::Regions | Fused::Heavy),
            Kind::Copy => matches!(fused, Fused::Relu | Fused::Gelu),
            Kind::Tax if self == Group::Activations => matches!(fused, Fused::Identity | Fused::Activation(_)),
            Kind::Tax | Kind::Survey => Fused::PLAIN.contains(&fused),
            Kind::Choice | Kind::Raster | Kind::Stages | Kind::Parts => {
                Fused::PLAIN.contains(&fused) || Fused::TRAINING.contains(&fused)
            }
            Kind::Training => Fused::TRAINING.contains(&fused),
        }
    }

    /// M x N x K.
    pub fn shapes(self) -> Vec<[usize; 3]> {
        let cube = |x| [x, x, x];
        match self {
            Group::Activations => vec![[8192, 3584, 1024], cube(4096)],
            Group::Large => vec![
                cube(8192),
                cube(4096),
                cube(2048),
                [4096, 14336, 4096],
                [8192, 28672, 8192],
                [65536, 8192, 16384],
                [16384, 16384, 1024],
            ],
            Group::Small => vec![cube(1536), cube(1024), [512, 2048, 2048], [3072, 3072, 1024]],
            Group::Decode => {
                let weights = [[4096, 4096], [14336, 4096], [8192, 8192]];
                weights.into_iter().flat_map(|[n, k]| [1, 8, 16, 64, 128].map(|m| [m, n, k])).collect()
            }
            Group::Few | Group::FewPlain => vec![
                [48, 3584, 18944],
                [96, 4096, 14336],
                [192, 8192, 8192],
                [192, 6144, 4096],
                [16, 8192, 8192],
                [64, 28672, 8192],
                [192, 28672, 8192],
                [192, 32000, 4096],
                [96, 18944, 3584],
                [48, 4608, 3584],
                [8, 4096, 4096],
                [32, 5120, 13824],
                [24, 28672, 4096],
                [128, 3584, 18944],
                [256, 3584, 14336],
                [56, 18432, 7168],
                [80, 2560, 2560],
                [64, 128_256, 4096],
            ],
            Group::Unaligned => vec![cube(5000), [4095, 4097, 4099]],
            Group::Layouts => vec![cube(4096), [8192, 8192, 1024]],
            Group::Tax => vec![cube(8192), cube(4096), cube(2048), [16384, 16384, 1024], [8192, 8192, 1024]],
            Group::Regions => vec![cube(8192), cube(4096), cube(2048), [16384, 16384, 1024], [4096, 14336, 4096]],
            Group::Choice => {
                let skinny = [[16, 4096, 4096], [64, 4096, 4096], [128, 4096, 4096], [128, 14336, 4096], [256, 8192, 8192]];
                let ragged = [[1000, 1000, 1000], [3000, 5000, 1000], [200, 10000, 512], [5000, 5000, 5000]];
                let mut shapes =
                    [cube(512), cube(768), cube(1024), cube(1536), cube(2048), cube(3072), cube(4096), cube(8192)].to_vec();
                shapes.extend([[512, 2048, 2048], [512, 8192, 8192], [1024, 4096, 4096], [2048, 8192, 512], [4096, 1024, 4096]]);
                shapes.extend([[3072, 3072, 1024], [4096, 14336, 4096], [16384, 16384, 1024], [8192, 512, 8192]]);
                shapes.extend(skinny);
                shapes.extend(ragged);
                shapes
            }
            Group::Raster => {
                vec![cube(8192), cube(4096), [4096, 14336, 4096], [16384, 16384, 1024], [8192, 8192, 1024], cube(5000)]
            }
            Group::Stages => vec![cube(8192), cube(4096), cube(2048), [8192, 8192, 1024]],
            Group::Split => {
                vec![[512, 512, 65536], [1024, 1024, 32768], [256, 256, 16384], [2048, 512, 16384], [768, 768, 16384]]
            }
            Group::Parts => {
                let few = [[512, 512, 8192], [1024, 1024, 8192], [2048, 2048, 16384], [128, 128, 16384], [64, 4096, 32768]];
                Group::Split.shapes().into_iter().chain(few).collect()
            }
            Group::Survey => sample::shapes(),
            Group::F32 => vec![cube(2048), cube(4096)],
            Group::Tf32 => {
                vec![
                    cube(8192),
                    cube(4096),
                    cube(2048),
                    [4096, 14336, 4096],
                    [8192, 8192, 1024],
                    [256, 4096, 4096],
                    [64, 4096, 4096],
                ]
            }
            // K does not count.
            Group::Pointwise => vec![[8192, 8192, 8]],
            Group::Training => {
                vec![[8192, 8192, 1024], [8192, 8192, 4096], cube(8192), [4096, 14336, 4096], [65536, 8192, 16384]]
            }
            Group::Map => {
                let extents = [16, 64, 192, 512, 1280, 2560, 5120, 10240, 20480];
                let of = |k| extents.into_iter().flat_map(move |m| extents.map(move |n| [m, n, k]));
                [512, 2048, 8192].into_iter().flat_map(of).collect()
            }
        }
    }

    fn layouts(self) -> Vec<Layout> {
        match self {
            Group::Layouts | Group::Tf32 => vec![TN, NN, NT, TT],
            Group::F32 => vec![TN, TT],
            _ => vec![TN],
        }
    }

    /// The default slices.
    pub const fn slices(self) -> &'static [Slices] {
        match self {
            Group::Activations
            | Group::Decode
            | Group::Few
            | Group::FewPlain
            | Group::Choice
            | Group::Parts
            | Group::Pointwise
            | Group::F32
            | Group::Tf32 => &[Slices::Short],
            Group::Survey | Group::Map => &[Slices::Brief],
            _ => &[Slices::Long, Slices::Short],
        }
    }
}

/// How long a contender runs at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slices {
    /// Long enough for each contender to reach the clock at which it draws the power that the card may.
    Long,
    /// So short that the clock does not change between contenders.
    Short,
    /// As long as a survey of hundreds of shapes can afford.
    Brief,
}

impl Slices {
    pub const fn word(self) -> &'static str {
        match self {
            Slices::Long => "long",
            Slices::Short => "short",
            Slices::Brief => "brief",
        }
    }

    pub const fn seconds(self) -> f64 {
        match self {
            Slices::Long => 0.16,
            Slices::Short => 0.0025,
            Slices::Brief => 0.001,
        }
    }

    /// How often, unless something else is asked for. Odd, so that the median is one of them.
    pub const fn rounds(self) -> usize {
        match self {
            Slices::Long => 7,
            Slices::Short => 31,
            Slices::Brief => 5,
        }
    }

    /// Seconds before a contest: the clock falls while the chip warms up.
    pub const fn warm_up(self) -> f64 {
        match self {
            Slices::Long | Slices::Short => 0.25,
            Slices::Brief => 0.03,
        }
    }
}

/// Group heights of the order of tiles, in rows or, negative, in columns.
pub const RASTERS: [i32; 9] = [4, 8, 16, 32, 64, -4, -8, -16, -32];

/// Numbers of parts of K.
pub const PARTS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

/// One contest's worth: for a tax several epilogues, else one.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    pub group: Group,
    pub kind: Kind,
    pub dtype: DType,
    pub layout: Layout,
    pub shape: Shape,
    pub epilogues: Vec<Fused>,
}

impl Case {
    /// The cases of a group. Those over the same operands follow each other.
    pub fn list(group: Group, dtypes: Option<&[DType]>, epilogues: Option<&[Fused]>, shapes: &[[usize; 3]]) -> Vec<Case> {
        let dtypes = dtypes.map_or(group.dtypes(), <[DType]>::to_vec);
        let wanted: Vec<Fused> =
            epilogues.map_or(group.epilogues(), |list| list.iter().copied().filter(|e| group.has(*e)).collect());
        let kind = group.kind();
        // The base of a tax has to be present.
        let sets: Vec<Vec<Fused>> = if kind == Kind::Tax {
            let rest: Vec<Fused> = wanted.iter().copied().filter(|e| *e != Fused::Identity).collect();
            let all = || std::iter::once(Fused::Identity).chain(rest.iter().copied()).collect();
            if rest.is_empty() { Vec::new() } else { vec![all()] }
        } else {
            wanted.iter().map(|e| vec![*e]).collect()
        };
        if kind == Kind::Survey {
            return Case::surveyed(&dtypes, &wanted, shapes);
        }
        let mut cases = Vec::new();
        for dtype in dtypes {
            for &[m, n, k] in shapes {
                for layout in group.layouts() {
                    let case = |epilogues: &Vec<Fused>| Case {
                        group,
                        kind,
                        dtype,
                        // A weight's gradient is X^T dZ, of matrices that lie row by row.
                        layout: if epilogues[..] == [Fused::BiasSum] { NT } else { layout },
                        shape: Shape::new(m, n, k),
                        epilogues: epilogues.clone(),
                    };
                    cases.extend(sets.iter().map(case));
                }
            }
        }
        cases
    }

    /// Each shape once, with the epilogue and the layout of its place.
    fn surveyed(dtypes: &[DType], wanted: &[Fused], shapes: &[[usize; 3]]) -> Vec<Case> {
        let (group, kind) = (Group::Survey, Kind::Survey);
        let of = |(place, &[m, n, k]): (usize, &[usize; 3])| {
            let (fused, layout) = sample::form(place);
            let case = |dtype| Case { group, kind, dtype, layout, shape: Shape::new(m, n, k), epilogues: vec![fused] };
            dtypes.iter().filter(move |_| wanted.contains(&fused)).map(move |dtype| case(*dtype)).collect::<Vec<_>>()
        };
        shapes.iter().enumerate().flat_map(of).collect()
    }

    /// The text that `--only` searches.
    pub fn title(&self) -> String {
        let Shape { m, n, k, .. } = self.shape;
        let epilogues: Vec<&str> = self.epilogues.iter().map(|e| e.word()).collect();
        format!("{} {} {} {m}x{n}x{k} {}", self.group.word(), self.dtype, self.layout, epilogues.join("+"))
    }

    /// Bytes that one launch has to move: operands once, and the matrices of the epilogue.
    pub fn bytes(&self, fused: Fused) -> u64 {
        let Shape { m, n, k, .. } = self.shape;
        let operands = if self.kind == Kind::Copy { m * n } else { m * k + k * n };
        let mask = if fused.has_mask() { m * n / 8 } else { 0 };
        ((operands + (1 + fused.matrices()) * m * n) * self.dtype.size() + mask) as u64
    }

    /// A guess at the seconds it takes, for planning a run. Generous to the kernels.
    pub fn seconds(&self, slices: &[Slices], rounds: Option<usize>) -> f64 {
        let Shape { m, n, k, .. } = self.shape;
        let flops = 2.0 * m as f64 * n as f64 * k as f64;
        let rate = match (self.dtype, self.group) {
            (F32, Group::Tf32) => 2e14,
            (F32, _) => 4e13,
            _ => 4.5e14,
        };
        let launch = (flops / rate).max(self.bytes(Fused::Identity) as f64 / 3e12).max(4e-6);
        let turn = |slices: Slices| launch.max(slices.seconds());
        let (contenders, selected) = match self.kind {
            // Eight algorithms, of which two stay.
            Kind::Peer => (3, 8),
            Kind::Tax => (self.epilogues.len(), 0),
            Kind::Sequence => (5, 24),
            Kind::Choice => (6, 14),
            Kind::Raster => (RASTERS.len(), 0),
            Kind::Stages => (3, 0),
            Kind::Parts => (PARTS.len(), 0),
            Kind::Survey => (20, 8),
            Kind::Copy => (3, 0),
            // Eight algorithms of the epilogue, and eight of the product alone.
            Kind::Training => (6, 16),
        };
        let selection = (selected * SELECTION_ROUNDS) as f64 * turn(Slices::Short);
        let contest =
            |slices: &Slices| slices.warm_up() + (contenders * rounds.unwrap_or(slices.rounds())) as f64 * turn(*slices);
        let operands = 0.4 + 0.3 * self.bytes(Fused::Residual) as f64 / 1e9;
        operands + selection + slices.iter().map(contest).sum::<f64>()
    }
}

/// How often contenders for a place in a contest are timed.
pub const SELECTION_ROUNDS: usize = 5;
