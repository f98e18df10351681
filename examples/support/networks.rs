//! Well-known networks with random weights, for examples, tests and the benchmark.

use postlude::network::fuse::Fused;
use postlude::network::{Attributes, Network, NetworkBuilder, NetworkDiagnostics, Tensor, Value};
use postlude::prelude::*;
use std::error::Error;
use std::path::PathBuf;

/// Images of a network, and how much narrower than in the paper it is.
#[derive(Clone, Copy, Debug)]
pub struct Images {
    pub format: DType,
    pub batch: usize,
    /// Height and width.
    pub size: usize,
    /// What every number of channels is divided by.
    pub narrow: usize,
    /// Whether a caller passes NHWC images, which need no copy.
    pub channels_last: bool,
}

/// Numbers from -1 to 1 that look random, the same for a seed every time.
pub fn noise(count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f64 / (1u64 << 23) as f64 - 1.0
    };
    (0..8).for_each(|_| {
        next();
    });
    (0..count).map(|_| next()).collect()
}

/// A network under construction: its builder, and what its weights are made from.
pub struct Maker<'g> {
    g: &'g NetworkBuilder,
    format: DType,
    narrow: usize,
    made: std::cell::Cell<u64>,
}

impl<'g> Maker<'g> {
    fn new(g: &'g NetworkBuilder, format: DType, narrow: usize) -> Maker<'g> {
        Maker { g, format, narrow, made: std::cell::Cell::new(0) }
    }

    fn channels(&self, wide: usize) -> usize {
        (wide / self.narrow).max(2)
    }

    /// A weight from `middle - spread` to `middle + spread`.
    fn weight(&self, shape: &[usize], middle: f64, spread: f64) -> Value<'g> {
        let seed = self.made.replace(self.made.get() + 1) + 1;
        let numbers: Vec<f64> = noise(shape.iter().product(), seed).iter().map(|x| middle + spread * x).collect();
        let tensor = Tensor::of_numbers(self.format, shape, &numbers).expect("as many numbers as the shape has");
        self.g.constant(&format!("w{seed}"), tensor)
    }

    /// A convolution of a square window with padding that keeps the size, or halves it where the stride is 2.
    fn conv(&self, x: Value<'g>, [from, to, window, stride, groups]: [usize; 5], bias: bool) -> Value<'g> {
        let fan = from / groups * window * window;
        // A uniform number from -1 to 1 has a variance of a third.
        let w = self.weight(&[to, from / groups, window, window], 0.0, (6.0 / fan as f64).sqrt());
        let pad = (window as i64 - 1) / 2;
        let attributes = Attributes::new().with("strides", vec![stride as i64; 2]).with("pads", vec![pad; 4]);
        let attributes = attributes.with("group", groups as i64);
        let inputs = if bias { vec![x, w, self.weight(&[to], 0.0, 0.1)] } else { vec![x, w] };
        self.g.apply("Conv", &inputs, attributes)
    }

    fn norm(&self, x: Value<'g>, channels: usize) -> Value<'g> {
        let of = |middle, spread| self.weight(&[channels], middle, spread);
        self.g.apply("BatchNormalization", &[x, of(1.0, 0.2), of(0.0, 0.1), of(0.0, 0.1), of(1.0, 0.3)], Attributes::new())
    }

    fn conv_norm(&self, x: Value<'g>, measures: [usize; 5]) -> Value<'g> {
        self.norm(self.conv(x, measures, false), measures[1])
    }

    fn max_pool(&self, x: Value<'g>, window: i64, pad: i64) -> Value<'g> {
        let attributes = Attributes::new().with("kernel_shape", vec![window; 2]).with("strides", vec![2; 2]);
        self.g.apply("MaxPool", &[x], attributes.with("pads", vec![pad; 4]))
    }

    fn linear(&self, x: Value<'g>, [from, to]: [usize; 2]) -> Value<'g> {
        let w = self.weight(&[from, to], 0.0, (3.0 / from as f64).sqrt());
        x.matmul(w) + self.weight(&[to], 0.0, 0.1)
    }

    fn layer_norm(&self, x: Value<'g>, wide: usize) -> Value<'g> {
        x.layer_norm(self.weight(&[wide], 1.0, 0.2), self.weight(&[wide], 0.0, 0.1), 1e-5)
    }

    fn mlp(&self, x: Value<'g>, wide: usize, hidden: usize) -> Value<'g> {
        self.linear(self.linear(x, [wide, hidden]).gelu(), [hidden, wide])
    }

    /// The mean of each channel, and a linear layer over those.
    fn classes(&self, x: Value<'g>, channels: usize, classes: usize) -> Value<'g> {
        let means = self.g.apply("GlobalAveragePool", &[x], Attributes::new());
        let flat = self.g.apply("Flatten", &[means], Attributes::new());
        let w = self.weight(&[classes, channels], 0.0, (3.0 / channels as f64).sqrt());
        self.g.apply("Gemm", &[flat, w, self.weight(&[classes], 0.0, 0.1)], Attributes::new().with("transB", 1))
    }
}

fn of_images(
    images: Images,
    build: impl for<'g> FnOnce(&Maker<'g>, Value<'g>) -> Value<'g>,
) -> Result<Network, NetworkDiagnostics> {
    let Images { format, batch, size, narrow, channels_last } = images;
    Network::build(|g| {
        let x = if channels_last {
            g.input("x", format, (batch, size, size, 3)).transpose(&[0, 3, 1, 2])
        } else {
            g.input("x", format, (batch, 3, size, size))
        };
        g.output("y", build(&Maker::new(g, format, narrow), x));
    })
}

/// ResNet-18 (`[2, 2, 2, 2]`, plain) or ResNet-50 (`[3, 4, 6, 3]`, with bottlenecks), for so many classes.
pub fn resnet(images: Images, blocks: [usize; 4], bottleneck: bool, classes: usize) -> Result<Network, NetworkDiagnostics> {
    of_images(images, |m, x| {
        let mut from = m.channels(64);
        let mut x = m.max_pool(m.conv_norm(x, [3, from, 7, 2, 1]).relu(), 3, 1);
        for (stage, count) in blocks.into_iter().enumerate() {
            let inner = m.channels(64) << stage;
            let to = if bottleneck { 4 * inner } else { inner };
            for block in 0..count {
                let stride = if block == 0 && stage > 0 { 2 } else { 1 };
                let straight = if stride > 1 || from != to { m.conv_norm(x, [from, to, 1, stride, 1]) } else { x };
                let y = if bottleneck {
                    let y = m.conv_norm(x, [from, inner, 1, 1, 1]).relu();
                    let y = m.conv_norm(y, [inner, inner, 3, stride, 1]).relu();
                    m.conv_norm(y, [inner, to, 1, 1, 1])
                } else {
                    let y = m.conv_norm(x, [from, inner, 3, stride, 1]).relu();
                    m.conv_norm(y, [inner, inner, 3, 1, 1])
                };
                x = (y + straight).relu();
                from = to;
            }
        }
        m.classes(x, from, classes)
    })
}

/// VGG-16.
pub fn vgg16(images: Images, classes: usize) -> Result<Network, NetworkDiagnostics> {
    of_images(images, |m, mut x| {
        let mut from = 3;
        for (count, wide) in [(2, 64), (2, 128), (3, 256), (3, 512), (3, 512)] {
            for _ in 0..count {
                let to = m.channels(wide);
                x = m.conv(x, [from, to, 3, 1, 1], true).relu();
                from = to;
            }
            x = m.max_pool(x, 2, 0);
        }
        let flat = m.g.apply("Flatten", &[x], Attributes::new());
        let (spatial, wide) = (images.size / 32, m.channels(4096));
        let hidden = m.linear(flat, [from * spatial * spatial, wide]).relu();
        m.linear(m.linear(hidden, [wide, wide]).relu(), [wide, classes])
    })
}

/// MobileNetV2.
pub fn mobilenet_v2(images: Images, classes: usize) -> Result<Network, NetworkDiagnostics> {
    of_images(images, |m, x| {
        let six = |x| m.g.apply("Clip", &[x, m.g.number(m.format, 0.0), m.g.number(m.format, 6.0)], Attributes::new());
        let mut from = m.channels(32);
        let mut x = six(m.conv_norm(x, [3, from, 3, 2, 1]));
        let stages = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)];
        for (expand, wide, count, first) in stages {
            for block in 0..count {
                let (to, inner, stride) = (m.channels(wide), from * expand, if block == 0 { first } else { 1 });
                let y = if expand > 1 { six(m.conv_norm(x, [from, inner, 1, 1, 1])) } else { x };
                let y = six(m.conv_norm(y, [inner, inner, 3, stride, inner]));
                let y = m.conv_norm(y, [inner, to, 1, 1, 1]);
                x = if stride == 1 && from == to { x + y } else { y };
                from = to;
            }
        }
        let last = m.channels(1280);
        m.classes(six(m.conv_norm(x, [from, last, 1, 1, 1])), last, classes)
    })
}

/// A U-Net of so many levels, whose result is an image of two channels.
pub fn unet(images: Images, levels: u32) -> Result<Network, NetworkDiagnostics> {
    of_images(images, |m, mut x| {
        let mut from = 3;
        let double = |x, from, to| {
            let x = m.conv_norm(x, [from, to, 3, 1, 1]).relu();
            m.conv_norm(x, [to, to, 3, 1, 1]).relu()
        };
        let mut skips = Vec::new();
        for level in 0..levels {
            let to = m.channels(64) << level;
            x = double(x, from, to);
            skips.push((x, to));
            x = m.max_pool(x, 2, 0);
            from = to;
        }
        x = double(x, from, 2 * from);
        from *= 2;
        for (skip, to) in skips.into_iter().rev() {
            // Each pixel as four, and a convolution that halves the channels.
            let deep = m.conv(x, [from, 4 * to, 1, 1, 1], true);
            let up = m.g.apply("DepthToSpace", &[deep], Attributes::new().with("blocksize", 2));
            x = double(m.g.apply("Concat", &[skip, up], Attributes::new().with("axis", 1)), 2 * to, to);
            from = to;
        }
        m.conv(x, [from, 2, 1, 1, 1], true)
    })
}

/// Layers of so many outputs as inputs, with ReLU between them.
pub fn mlp(format: DType, rows: usize, wide: usize, layers: usize) -> Result<Network, NetworkDiagnostics> {
    Network::build(|g| {
        let m = Maker::new(g, format, 1);
        let mut x = g.input("x", format, (rows, wide));
        for layer in 0..layers {
            x = m.linear(x, [wide, wide]);
            x = if layer + 1 < layers { x.relu() } else { x };
        }
        g.output("y", x);
    })
}

/// What a transformer's encoder measures.
#[derive(Clone, Copy, Debug)]
pub struct Encoder {
    pub format: DType,
    pub batch: usize,
    pub length: usize,
    pub heads: usize,
    pub head: usize,
    pub layers: usize,
}

/// Layers of a transformer's encoder: attention and a GELU MLP, each with a residual and a layer norm behind it.
pub fn encoder(of: Encoder) -> Result<Network, NetworkDiagnostics> {
    let Encoder { format, batch, length, heads, head, layers } = of;
    let wide = heads * head;
    let sizes = [batch, length, heads, head].map(|x| x as i64);
    Network::build(|g| {
        let m = Maker::new(g, format, 1);
        let mut x = g.input("x", format, (batch, length, wide));
        for _ in 0..layers {
            let [q, k, v] = [0; 3].map(|_| m.linear(x, [wide, wide]).reshape(&sizes));
            let (q, k, v) = (q.transpose(&[0, 2, 1, 3]), k.transpose(&[0, 2, 3, 1]), v.transpose(&[0, 2, 1, 3]));
            let shares = (q.matmul(k) * g.number(format, 1.0 / (head as f64).sqrt())).softmax(-1);
            let mixed = shares.matmul(v).transpose(&[0, 2, 1, 3]).reshape(&[sizes[0], sizes[1], wide as i64]);
            let attended = x + m.linear(mixed, [wide, wide]);
            let attended = m.layer_norm(attended, wide);
            x = m.layer_norm(attended + m.mlp(attended, wide, 4 * wide), wide);
        }
        g.output("y", x);
    })
}

/// An MLP-Mixer: patches of images become tokens, and MLPs mix tokens and channels in turns, each behind a layer norm and with a
/// residual. `patch` divides the size of the images.
pub fn mixer(of: Images, patch: usize, layers: usize, classes: usize) -> Result<Network, NetworkDiagnostics> {
    let Images { format, batch, size, narrow, .. } = of;
    let tokens = (size / patch).pow(2);
    Network::build(|g| {
        let m = Maker::new(g, format, narrow);
        let wide = m.channels(512);
        let x = g.input("x", format, (batch, 3, size, size));
        let w = m.weight(&[wide, 3, patch, patch], 0.0, (1.0 / (patch * patch) as f64).sqrt());
        let patches = g.apply("Conv", &[x, w], Attributes::new().with("strides", vec![patch as i64; 2]));
        let mut x = patches.reshape(&[batch as i64, wide as i64, tokens as i64]).transpose(&[0, 2, 1]);
        for _ in 0..layers {
            let mixed = m.mlp(m.layer_norm(x, wide).transpose(&[0, 2, 1]), tokens, m.channels(256));
            x = x + mixed.transpose(&[0, 2, 1]);
            x = x + m.mlp(m.layer_norm(x, wide), wide, m.channels(2048));
        }
        let axes = g.indices(&[1]);
        let means = g.apply("ReduceMean", &[m.layer_norm(x, wide), axes], Attributes::new().with("keepdims", 0));
        g.output("y", m.linear(means, [wide, classes]));
    })
}

/// Runs the fused network on the GPU if there is one, else kernel by kernel on the CPU. Says which it was.
pub fn compute(network: &Network, x: &Tensor) -> Result<(Tensor, String), Box<dyn Error>> {
    let inputs = [("x", x.clone())];
    #[cfg(feature = "cuda")]
    let why = match Device::new(0) {
        Ok(device) if postlude::jit::compiler().is_ok() => {
            let stream = device.context().default_stream();
            let outputs = network.plan(&device, &[])?.run(&stream, &inputs)?;
            return Ok((outputs[0].1.clone(), format!("the GPU: {device}")));
        }
        Ok(_) => "no compiler".to_owned(),
        Err(why) => why.to_string(),
    };
    #[cfg(not(feature = "cuda"))]
    let why = "built without the feature `cuda`".to_owned();
    let outputs = network.fuse()?.run(&inputs)?;
    Ok((outputs[0].1.clone(), format!("the CPU: {why}")))
}

/// The folder that examples write to.
pub fn folder() -> std::io::Result<PathBuf> {
    let folder = PathBuf::from(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()));
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Draws a network and what fusion makes of it, as DOT files and a picture of that name.
pub fn draw(name: &str, network: &Network, fused: &Fused) -> std::io::Result<()> {
    let folder = folder()?;
    std::fs::write(folder.join(format!("{name}.dot")), network.to_dot())?;
    std::fs::write(folder.join(format!("{name}_fused.dot")), fused.to_dot())?;
    std::fs::write(folder.join(format!("{name}.svg")), fused.to_svg())
}
