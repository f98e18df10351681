//! Layers in candle's place: values and gradients against candle's own autograd, in every format of floats.
#![allow(missing_docs, reason = "a test binary")]

use candle_core::{DType, Module, Result, Tensor, Var};
use postlude::build::activation;
use postlude_candle::{Activation, Gated, Linear, identity};

mod support;
use support::{close, draw};

/// `tests/gpu.rs` runs the same tests elsewhere.
#[allow(dead_code, reason = "not used there")]
fn device() -> Result<candle_core::Device> {
    Ok(candle_core::Device::Cpu)
}

/// Each format with the bound of a value, in parts of 1 and the value. Gradients add up more rounded numbers.
const FORMATS: [(DType, f64); 4] = [(DType::F32, 1e-5), (DType::F64, 1e-12), (DType::F16, 4e-3), (DType::BF16, 3e-2)];

/// An activation by candle.
type Theirs = fn(&Tensor) -> Result<Tensor>;

/// A value as a variable of a format, and the same numbers as a variable of doubles.
fn variables(extents: &[usize], seed: u32, format: DType) -> Result<(Var, Var)> {
    let value = draw(extents, seed, format)?;
    Ok((Var::from_tensor(&value)?, Var::from_tensor(&value.to_dtype(DType::F64)?)?))
}

/// `x @ w.T + b` by candle.
fn candles(x: &Tensor, w: &Tensor, b: Option<&Tensor>) -> Result<Tensor> {
    let z = x.broadcast_matmul(&w.t()?)?;
    b.map_or(Ok(z.clone()), |b| z.broadcast_add(b))
}

/// Compares two results, and the gradients of both with respect to variables that correspond.
fn same_with_gradients(ours: &Tensor, theirs: &Tensor, variables: &[(&str, &(Var, Var))], bound: f64) -> Result<()> {
    close(ours, theirs, bound)?;
    let upstream = draw(ours.dims(), 99, DType::F64)?;
    // Each side hands back what its own format holds of the upstream gradient.
    let rounded = upstream.to_dtype(ours.dtype())?;
    let mine = (ours * &rounded)?.sum_all()?.backward()?;
    let candles = (theirs * rounded.to_dtype(DType::F64)?)?.sum_all()?.backward()?;
    for (name, (our, their)) in variables {
        let (mine, candles) = (mine.get(our).expect(name), candles.get(their).expect(name));
        assert_eq!(mine.dtype(), our.dtype(), "{name}");
        close(mine, candles, 2.0 * bound)?;
    }
    Ok(())
}

#[test]
fn linear_layers_in_every_format_with_gradients() -> Result<()> {
    // Candle's derivative of gelu has a constant of six digits.
    let activations: [(Activation, Theirs, f64); 3] =
        [(identity, |z| Ok(z.clone()), 0.0), (activation::gelu, Tensor::gelu_erf, 1e-6), (activation::silu, Tensor::silu, 0.0)];
    for (format, bound) in FORMATS {
        for (activation, theirs, digits) in activations {
            for has_bias in [false, true] {
                for extents in [&[5, 16][..], &[2, 5, 16], &[2, 1, 3, 16]] {
                    let (x, w, b) =
                        (variables(extents, 1, format)?, variables(&[8, 16], 2, format)?, variables(&[8], 3, format)?);
                    let bias = has_bias.then(|| b.0.as_tensor().clone());
                    let ours = Linear::new(w.0.as_tensor().clone(), bias, activation)?.forward(&x.0)?;
                    let theirs = theirs(&candles(&x.1, &w.1, has_bias.then_some(b.1.as_tensor()))?)?;
                    let mut variables = vec![("x", &x), ("w", &w)];
                    variables.extend(has_bias.then_some(("b", &b)));
                    same_with_gradients(&ours, &theirs, &variables, bound.max(digits))?;
                }
            }
        }
    }
    Ok(())
}

#[test]
fn gated_layers_in_every_format_with_gradients() -> Result<()> {
    for (format, bound) in FORMATS {
        for has_bias in [false, true] {
            let (x, g, w) =
                (variables(&[2, 5, 16], 1, format)?, variables(&[8, 16], 2, format)?, variables(&[8, 16], 3, format)?);
            let (c, b) = (variables(&[8], 4, format)?, variables(&[8], 5, format)?);
            let ours = |of: &(Var, Var)| has_bias.then(|| of.0.as_tensor().clone());
            let gate = Linear::new(g.0.as_tensor().clone(), ours(&c), activation::silu)?;
            let ours = Gated::new(gate, w.0.as_tensor().clone(), ours(&b))?.forward(&x.0)?;
            let theirs = |of| has_bias.then_some(of);
            let gate = candles(&x.1, &g.1, theirs(c.1.as_tensor()))?.silu()?;
            let theirs = (gate * candles(&x.1, &w.1, theirs(b.1.as_tensor()))?)?;
            let mut variables = vec![("x", &x), ("gate", &g), ("up", &w)];
            if has_bias {
                variables.extend([("gate's bias", &c), ("up's bias", &b)]);
            }
            same_with_gradients(&ours, &theirs, &variables, 2.0 * bound)?;
        }
    }
    Ok(())
}

#[test]
fn layers_take_what_candles_take() -> Result<()> {
    let (w, b) = (draw(&[8, 16], 1, DType::F32)?, draw(&[8], 2, DType::F32)?);
    let layer = Linear::new(w.clone(), Some(b.clone()), identity)?;
    let theirs = candle_nn::Linear::new(w.clone(), Some(b.clone()));
    for x in [draw(&[2, 5, 16], 3, DType::F32)?, draw(&[5, 2, 16], 4, DType::F32)?.transpose(0, 1)?] {
        // Candle's own layer takes no such views on a GPU.
        close(&layer.forward(&x)?, &theirs.forward(&x.contiguous()?)?, 1e-5)?;
    }
    // A part of weights that lie together, as those of a gate often do.
    let both = draw(&[16, 16], 5, DType::F32)?;
    let x = draw(&[3, 16], 6, DType::F32)?;
    let part = Linear::new(both.narrow(0, 8, 8)?, None, identity)?;
    close(&part.forward(&x)?, &x.matmul(&both.narrow(0, 8, 8)?.t()?)?, 1e-5)?;
    // An empty batch has an empty result. It is a part of memory: a driver allocates no zero bytes.
    assert_eq!(layer.forward(&draw(&[1, 4, 16], 7, DType::F32)?.narrow(0, 0, 0)?)?.dims(), [0, 4, 8]);
    let scalar = layer.forward(&Tensor::new(1f32, w.device())?).expect_err("a scalar has no columns").to_string();
    assert!(scalar.contains("at least one axis"), "{scalar}");
    Ok(())
}
