//! The request behind a kernel, for the error that suggests compiling it on another machine. None of this runs before
//! such an error.

use super::Gemm;
use crate::build::{Epilogue, registry};
use crate::emit;
use crate::error::Error;
use crate::ir::Order;
use crate::jit::Asked;
use crate::plan::{KernelPlan, Problem};
use crate::problem::{Operation, Shape};
use crate::source::Source;
use crate::target::{Gpu, Target};

impl Gemm {
    /// Adds the request to an error of compiling or loading, if it helps.
    pub(super) fn tell(&self, error: Error, target: Target, gpu: Gpu, problem: &Problem) -> Error {
        match error {
            Error::Jit(error) => Error::Jit(error.asked_for(|| self.asked(target, gpu, problem))),
            other => other,
        }
    }

    fn asked(&self, target: Target, gpu: Gpu, problem: &Problem) -> Asked {
        let plan = self.kernel_plan(target, gpu, problem.clone()).ok();
        let stated: Vec<_> = problem.stated().chain(self.preferences.stated()).collect();
        let mut request = format!("{}, {}, for {target}:{gpu}", self.operation, problem.shape);
        for what in stated.iter().cloned().chain(plan.as_ref().map(planned)) {
            request += ", ";
            request += &what;
        }
        // The sources that the command would compile for the epilogue's JSON form. The statements beyond the shape may
        // change nothing.
        let read = Epilogue::from_json(&self.epilogue.to_json(), &registry()).ok();
        let by_command = |epilogue: &Epilogue| {
            Gemm::of(self.operation, epilogue).kernel_plan(target, gpu, problem.shape).ok().and_then(|plan| sources(&plan))
        };
        let wanted = plan.as_ref().and_then(sources);
        if wanted.is_some() && read.as_ref().and_then(by_command) == wanted {
            return Asked::new(request, command(self.operation, problem.shape, target, gpu).map_err(Into::into));
        }
        let own = (read.is_none() || stated.is_empty()).then(|| "functions and primitives of the program's own".to_owned());
        Asked::new(request, Err(stated.into_iter().chain(own).collect::<Vec<_>>().join(", ")))
    }
}

fn planned(plan: &KernelPlan) -> String {
    match &plan.split {
        Some(split) => format!("planned as {} for {} parts of K and {}", split.product.tile, split.parts, plan.tile),
        None => format!("planned as {}", plan.tile),
    }
}

/// Every text that is compiled for a plan; `None` if one cannot be printed.
fn sources(plan: &KernelPlan) -> Option<Vec<Source>> {
    let mut sources = vec![plan.source().ok()?];
    if let Some(repack) = &plan.repack {
        sources.push(emit::render_repack(repack).ok()?);
    }
    if let Some(split) = &plan.split {
        sources.extend(self::sources(&split.product)?);
    }
    for plan in &plan.before {
        sources.extend(self::sources(plan)?);
    }
    Some(sources)
}

/// The command line with which `postlude-cache` compiles it, or what of the operation it cannot say.
fn command(operation: Operation, Shape { m, n, k, batch }: Shape, target: Target, gpu: Gpu) -> Result<String, &'static str> {
    let batch = if batch == 1 { String::new() } else { format!(",{batch}") };
    let operation = match operation {
        _ if operation.is_scaled() => return Err("scales along K"),
        Operation::Product { a, b, layout, .. } if operation.is_mixed() => format!("--product {a},{b},{layout}"),
        Operation::Product { a, layout, .. } => format!("--product {a},{layout}"),
        Operation::Attention { .. } => return Err("an attention"),
        Operation::Convolution { .. } | Operation::ConvolutionGradient { .. } | Operation::Pool { .. } => {
            return Err("what reads images");
        }
        Operation::Pointwise { dtype, order: Order::RowMajor } => format!("--pointwise {dtype},row"),
        Operation::Pointwise { dtype, order: Order::ColumnMajor } => format!("--pointwise {dtype},column"),
    };
    Ok(format!("postlude-cache precompile --target {target}:{gpu} --shape {m},{n},{k}{batch} {operation} EPILOGUE.json"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::recipes;
    use crate::dtype::DType::{F16, F32};
    use crate::ir::CustomOp;
    use crate::jit::{Cache, Config, JitError, Mode, NotFound};
    use crate::problem::Layout::TN;
    use std::sync::Arc;

    const SHAPE: Shape = Shape::new(512, 256, 128);

    fn relu() -> Epilogue {
        recipes::bias_activation(F16, F16, |z| z.relu()).unwrap()
    }

    /// The error of a cache that must not compile, and is empty, for a request.
    fn asked(gemm: &Gemm, target: Target, gpu: usize, problem: impl Into<Problem>) -> (Asked, String) {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(directory.path().join("cache"), Config::new().mode(Mode::Deny));
        let error = gemm.compile(&cache, target, gpu, problem).unwrap_err();
        let Error::Jit(JitError::Denied(denied)) = &error else { panic!("{error}") };
        ((**denied.asked.as_ref().expect("the request")).clone(), error.to_string())
    }

    #[test]
    fn a_refusal_names_the_request_and_the_command() {
        let gemm = Gemm::new(F16, TN, &relu());
        let (told, text) = asked(&gemm, Target::SM_90A, 114, SHAPE);
        let command =
            "postlude-cache precompile --target sm_90a:114 --shape 512,256,128 --product f16,TN EPILOGUE.json".to_owned();
        assert!(text.contains(&format!("\n  {command}\n")) && text.contains(&format!("asked for: {}\n", told.request)), "{text}");
        assert_eq!(told.command, Ok(command));
        assert!(told.request.starts_with("product of f16, TN, 512 x 256 x 128, for sm_90a:114, planned as sm90a"), "{told:?}");
        for (gemm, problem, words) in [
            (Gemm::pointwise(F32, Order::ColumnMajor, &relu()), SHAPE.into(), "--shape 512,256,128 --pointwise f32,column "),
            (gemm.clone(), SHAPE.batched(3).into(), "--shape 512,256,128,3 --product f16,TN "),
            // What is said and changes no kernel.
            (gemm.clone().raster_group(4).math(crate::plan::Math::Fast), Problem::from(SHAPE).ld("a", 136), "--product f16,TN "),
        ] {
            let (told, text) = asked(&gemm, Target::SM_80, 108, problem);
            assert!(told.command.is_ok_and(|command| command.contains(words)), "{text}");
        }
    }

    #[test]
    fn what_the_command_cannot_say_is_named_instead() {
        let gemm = Gemm::new(F16, TN, &relu());
        let op = Arc::new(CustomOp::new("mine", 1, "$0 + 1.0f", |x| x[0] + 1.0).unwrap());
        let custom = Epilogue::build(|e| e.store("d", e.custom(&op, [e.acc()]), F16)).unwrap();
        let tile = gemm.kernel_plan(Target::SM_80, 108, SHAPE).unwrap().choice.candidates().nth(1).unwrap().0;
        for (gemm, problem, beyond) in [
            (gemm.clone(), Problem::from(SHAPE).ld("a", 129), "`a` with leading dimension 129"),
            (gemm.clone(), Problem::from(SHAPE).align("b", 2), "`b` with an address aligned to 2 bytes"),
            (Gemm::new(F32, TN, &relu()).tf32(true), SHAPE.into(), "`Gemm::tf32(true)`"),
            (gemm.clone().tile(tile), SHAPE.into(), "`Gemm::tile("),
            (gemm.clone().split_k(2), SHAPE.into(), "`Gemm::split_k(2)`"),
            (Gemm::new(F16, TN, &custom), SHAPE.into(), "functions and primitives of the program's own"),
        ] {
            let (told, text) = asked(&gemm, Target::SM_80, 108, problem);
            assert!(told.command.is_err_and(|what| what.starts_with(beyond)), "{text}");
            assert!(text.contains("cannot say") && text.contains("`gemm::precompile`") && !text.contains("--target"), "{text}");
        }
    }

    #[test]
    fn a_missing_compiler_is_told_with_the_request() {
        let gemm = Gemm::new(F16, TN, &relu());
        let missing: JitError = NotFound::new(Vec::new()).into();
        assert!(!missing.to_string().contains("--target"), "nothing was asked for");
        let text = gemm.tell(missing.into(), Target::SM_80, 108.into(), &SHAPE.into()).to_string();
        assert!(text.contains("pip install") && text.contains("--target sm_80:108 --shape 512,256,128"), "{text}");
    }
}
