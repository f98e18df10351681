//! `cargo xtask fit-tiles`: fits the cost model of Hopper's tiles to the measured ones in `tests/choices`.

use crate::error::{Error, Result};
use crate::project::{Project, call};

/// The models: of a GPU, and of operands whose rows do not begin at lines of the level-2 cache, or of a short K.
const MODELS: [&str; 5] = ["h200", "h200+across", "h200+short", "h100", "h100+across"];

pub fn run(project: &Project, args: &[String]) -> Result {
    let (model, steps) = match args {
        [model] => (model, "8000"),
        [model, flag, steps] if flag == "--steps" => (model, steps.as_str()),
        _ => return Err(Error::new(format!("`fit-tiles` takes one of {}, and `--steps N`", MODELS.join(", ")))),
    };
    if !MODELS.contains(&model.as_str()) {
        return Err(Error::new(format!("there is no model `{model}`: there are {}", MODELS.join(", "))));
    }
    let file = format!("tests/choices/tiles_{}.csv", model.split('+').next().unwrap_or(model));
    if !project.root.join(&file).is_file() {
        return Err(Error::new(format!(
            "there is no {file}: run `cargo bench --bench gemm -- --group survey --csv {file}` on such a GPU first"
        )));
    }
    let mut cargo = project.cargo();
    cargo.args(["test", "--package", "postlude", "--test", "choices", "--", "--ignored", "--nocapture", "fit::fit"]);
    call(cargo.env("POSTLUDE_FIT_TILES", model).env("POSTLUDE_FIT_STEPS", steps))
}
