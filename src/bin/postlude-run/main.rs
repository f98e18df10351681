//! The command `postlude-run`: what would be fused of an ONNX model, and how long it takes.

use postlude::network::fuse::Fused;
use postlude::network::{Network, Operators, Tensor, Type};
use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Instant;

const USAGE: &str = "\
Usage: postlude-run MODEL.onnx [OPTION...]

Reads an ONNX model and prints its inputs, outputs and number of nodes.

  --bind NAME=N   give an extent that is a name a number; may be repeated
  --explain       print the kernels with their nodes, and for each tensor that is left in memory the reason
  --dot           print the network in Graphviz's DOT language, with a box around the nodes of each kernel
  --svg FILE      draw that as an SVG picture, and write it to a file
  --json          print the network as JSON, weights included
  --time          run it on made-up inputs, on the first GPU or else on the CPU, and print how long a run takes
  --tune SECONDS  before that, compare tiles on the GPU for so long, and keep those that make the network faster
  --help          print this
";

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// What is asked for.
#[derive(Debug, Default, PartialEq)]
struct Options {
    model: String,
    bound: Vec<(String, usize)>,
    explain: bool,
    dot: bool,
    svg: Option<String>,
    json: bool,
    time: bool,
    tune: Option<u64>,
}

fn parse(args: impl Iterator<Item = String>) -> Result<Option<Options>> {
    let mut options = Options::default();
    let mut args = args;
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--help" | "-h" => return Ok(None),
            "--explain" => options.explain = true,
            "--dot" => options.dot = true,
            "--svg" => options.svg = Some(args.next().ok_or("`--svg` needs a FILE")?),
            "--json" => options.json = true,
            "--time" => options.time = true,
            "--tune" => {
                let text = args.next().ok_or("`--tune` needs SECONDS")?;
                let seconds = text.parse().map_err(|_| format!("`{text}` is not a number of seconds"))?;
                (options.time, options.tune) = (true, Some(seconds));
            }
            "--bind" => {
                let text = args.next().ok_or("`--bind` needs NAME=N")?;
                let (name, number) = text.split_once('=').ok_or_else(|| format!("`--bind` needs NAME=N, not `{text}`"))?;
                let number = number.parse().map_err(|_| format!("`{number}` is not an extent"))?;
                options.bound.push((name.to_owned(), number));
            }
            other if other.starts_with('-') => return Err(format!("unknown option `{other}`\n\n{USAGE}").into()),
            model if options.model.is_empty() => model.clone_into(&mut options.model),
            other => return Err(format!("one model is read, not `{other}` besides").into()),
        }
    }
    if options.model.is_empty() { Err(format!("no model is given\n\n{USAGE}").into()) } else { Ok(Some(options)) }
}

/// A tensor of a type, full of small numbers.
fn made_up(of: &Type) -> Result<Tensor> {
    let shape = of.shape().ok_or_else(|| format!("an input is {of}: bind its extents with `--bind`"))?;
    let numbers: Vec<f64> = (0..shape.iter().product()).map(|i: usize| (i * 7919 % 13) as f64 / 13.0).collect();
    Ok(Tensor::of_numbers(of.format, &shape, &numbers)?)
}

/// The fastest of some runs on the GPU, in words.
#[cfg(feature = "cuda")]
fn on_gpu(network: &Network, inputs: &[(&str, Tensor)], tune: Option<u64>) -> Result<String> {
    use postlude::tune::Autotune;
    const RUNS: u32 = 20;
    let device = postlude::Device::new(0)?;
    let start = Instant::now();
    let mut plan = network.plan(&device, &[])?;
    let planned = start.elapsed();
    let stream = device.context().default_stream();
    let mut memory = Vec::new();
    for (name, tensor) in inputs {
        memory.push((*name, stream.clone_htod(tensor.bytes())?));
    }
    let inputs: Vec<_> = memory.iter().map(|(name, memory)| (*name, memory)).collect();
    let mut words = String::new();
    if let Some(seconds) = tune {
        let (options, mut done) = (Autotune::new().budget(std::time::Duration::from_secs(seconds)), 0);
        let tuning = plan.autotune(&stream, &inputs, options, |all| {
            done += 1;
            eprint!("\rtuned {done} of {all} kinds of kernels");
        })?;
        eprintln!();
        words = tuning.to_string();
    }
    plan.execute(&stream, &inputs)?;
    stream.synchronize()?;
    let start = Instant::now();
    for _ in 0..RUNS {
        plan.execute(&stream, &inputs)?;
    }
    stream.synchronize()?;
    Ok(format!("{words}{:?} a run on {device}, planned in {planned:?}", start.elapsed() / RUNS))
}

#[cfg(not(feature = "cuda"))]
fn on_gpu(_: &Network, _: &[(&str, Tensor)], _: Option<u64>) -> Result<String> {
    Err("this program was built without the feature `cuda`".into())
}

/// How long a run takes, and on what.
fn timed(network: &Network, fused: &Fused, tune: Option<u64>) -> Result<String> {
    let inputs: Vec<(&str, Tensor)> = network.inputs().map(|(name, of)| Ok((name, made_up(of)?))).collect::<Result<Vec<_>>>()?;
    match on_gpu(network, &inputs, tune) {
        Ok(words) => Ok(words),
        Err(why) => {
            let start = Instant::now();
            fused.run(&inputs)?;
            Ok(format!("{:?} on the CPU, which defines what kernels mean and is not fast; not on a GPU: {why}", start.elapsed()))
        }
    }
}

fn run(options: &Options) -> Result<String> {
    let network = Network::from_onnx_file(&options.model, &Operators::new())?;
    let bound: Vec<(&str, usize)> = options.bound.iter().map(|(name, number)| (name.as_str(), *number)).collect();
    let network = network.bind(&bound)?;
    let mut out = String::new();
    if let Some(file) = &options.svg {
        std::fs::write(file, network.fuse()?.to_svg()).map_err(|error| format!("cannot write `{file}`: {error}"))?;
    }
    if options.json {
        return Ok(network.to_json());
    }
    if options.dot {
        return Ok(network.fuse()?.to_dot());
    }
    for (name, of) in network.inputs() {
        writeln!(out, "input  {name}: {of}")?;
    }
    for (name, of) in network.outputs() {
        writeln!(out, "output {name}: {of}")?;
    }
    writeln!(out, "{} nodes", network.graph().nodes().count())?;
    if options.explain || options.time {
        let fused = network.fuse()?;
        if options.explain {
            out.push_str(&fused.explain());
        }
        if options.time {
            writeln!(out, "{}", timed(&network, &fused, options.tune)?)?;
        }
    }
    Ok(out)
}

fn main() -> ExitCode {
    let done = parse(std::env::args().skip(1)).and_then(|options| match options {
        Some(options) => run(&options),
        None => Ok(USAGE.to_owned()),
    });
    match done {
        Ok(text) => {
            use std::io::Write as _;
            // A reader that is gone is no error.
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_checked() {
        let words = |text: &str| parse(text.split_whitespace().map(str::to_owned));
        let options = words("m.onnx --bind batch=8 --explain").unwrap().unwrap();
        assert_eq!((options.model.as_str(), options.bound, options.explain), ("m.onnx", vec![("batch".to_owned(), 8)], true));
        let options = words("m.onnx --tune 20").unwrap().unwrap();
        assert_eq!((options.tune, options.time), (Some(20), true));
        assert!(words("--help").unwrap().is_none());
        for wrong in [
            "",
            "--explain",
            "m.onnx --bind",
            "m.onnx --bind x",
            "m.onnx --bind x=y",
            "m.onnx --tune",
            "m.onnx --tune -1",
            "m.onnx n.onnx",
            "m.onnx --fast",
        ] {
            assert!(words(wrong).is_err(), "{wrong}");
        }
    }
}
