//! Fused products against candle's own operations.
#![allow(missing_docs, reason = "a test binary")]

use candle_core::{DType as Theirs, Result, Tensor, Var};
use postlude::prelude::*;
use postlude_candle::{Arguments, Fused};

mod support;
use support::{close, draw};

/// `tests/gpu.rs` runs the same tests elsewhere.
#[allow(dead_code, reason = "not used there")]
fn device() -> Result<candle_core::Device> {
    Ok(candle_core::Device::Cpu)
}

fn bias_gelu(dtype: DType) -> Epilogue {
    Epilogue::build(|e| {
        let z = if dtype == F64 { e.acc_f64() } else { e.acc() } + e.load("bias", dtype.over(N));
        e.store("d", z.gelu(), dtype);
    })
    .expect("an epilogue")
}

#[test]
fn products_are_candles_in_every_format() -> Result<()> {
    let formats = [(Theirs::F32, F32, 1e-5), (Theirs::F64, F64, 1e-7), (Theirs::F16, F16, 4e-3), (Theirs::BF16, BF16, 3e-2)];
    for (theirs, ours, bound) in formats {
        let (x, w, bias) = (draw(&[9, 16], 1, theirs)?, draw(&[12, 16], 2, theirs)?, draw(&[12], 3, theirs)?);
        let fused = Fused::new(&bias_gelu(ours));
        let d = fused.apply(&x, &w.t()?, Arguments::new().tensor("bias", &bias))?;
        assert_eq!(d.dtype(), theirs);
        let exact = |t: &Tensor| t.to_dtype(Theirs::F64);
        let want = exact(&x)?.matmul(&exact(&w)?.t()?)?.broadcast_add(&exact(&bias)?)?.gelu_erf()?;
        close(&d, &want, bound)?;
    }
    Ok(())
}

#[test]
fn views_and_batches_count_as_they_lie() -> Result<()> {
    let wide = draw(&[3, 9, 40], 1, Theirs::F32)?;
    let a = wide.narrow(2, 7, 16)?;
    let b = draw(&[12, 16], 2, Theirs::F32)?.t()?;
    let plain = Fused::new(&Epilogue::build(|e| e.store("d", e.acc(), F32)).expect("an epilogue"));
    close(&plain.apply(&a, &b, Arguments::new())?, &a.contiguous()?.broadcast_matmul(&b)?, 1e-5)?;
    let column_major = draw(&[16, 9], 3, Theirs::F32)?.t()?;
    close(&plain.apply(&column_major, &b, Arguments::new())?, &column_major.matmul(&b)?, 1e-5)
}

#[test]
fn several_outputs_and_scalars() -> Result<()> {
    let (a, b) = (draw(&[6, 4], 1, Theirs::F32)?, draw(&[4, 5], 2, Theirs::F32)?);
    let epilogue = Epilogue::build(|e| {
        let z = e.acc() * e.scalar("alpha", F32);
        e.store("d", z.region(e.row().lt(e.scalar("boundary", I32)), |z| z.relu()).otherwise(|z| z), F32);
        e.reduce("sums", z, Monoid::Sum, F32.over(M));
    });
    let fused = Fused::new(&epilogue.expect("an epilogue"));
    let outputs = fused.apply_all(&a, &b, Arguments::new().scalar("alpha", 2.0).scalar("boundary", 3))?;
    let z = (a.matmul(&b)? * 2.0)?;
    close(&outputs[1], &z.sum(1)?, 1e-5)?;
    close(&outputs[0].narrow(0, 3, 3)?, &z.narrow(0, 3, 3)?, 1e-5)?;
    close(&outputs[0].narrow(0, 0, 3)?, &z.narrow(0, 0, 3)?.relu()?, 1e-5)
}

#[test]
fn gradients_are_candles() -> Result<()> {
    // Two variables beside the operands: they share the third operand of candle's operation.
    let epilogue = Epilogue::build(|e| {
        let z = e.acc_f64() + e.load("bias", F64.over(N));
        e.store("d", z.tanh() * e.load("scale", F64.over(M)) + e.load("c", F64), F64);
    });
    let fused = Fused::new(&epilogue.expect("an epilogue"));
    let of = |extents: &[usize], seed| Var::from_tensor(&draw(extents, seed, Theirs::F64)?);
    let (a, w, bias, scale, c) = (of(&[7, 5], 1)?, of(&[6, 5], 2)?, of(&[6], 3)?, of(&[7], 4)?, of(&[7, 6], 5)?);
    let upstream = draw(&[7, 6], 6, Theirs::F64)?;
    let arguments = Arguments::new().tensor("bias", &bias).tensor("scale", &scale).tensor("c", &c);
    let ours = fused.apply(&a, &w.t()?, arguments)?;
    let z = a.matmul(&w.t()?)?.broadcast_add(&bias)?;
    let theirs = z.tanh()?.broadcast_mul(&scale.unsqueeze(1)?)?.add(&c)?;
    close(&ours, &theirs, 1e-12)?;
    let (mine, candles) = ((ours * &upstream)?.sum_all()?.backward()?, (theirs * &upstream)?.sum_all()?.backward()?);
    for (name, variable) in [("a", &a), ("w", &w), ("bias", &bias), ("scale", &scale), ("c", &c)] {
        let (mine, theirs) = (mine.get(variable).expect(name), candles.get(variable).expect(name));
        close(mine, theirs, 1e-10)?;
    }
    Ok(())
}

#[test]
fn errors_say_what_does_not_fit() -> Result<()> {
    let fused = Fused::new(&bias_gelu(F32));
    let (a, b) = (draw(&[3, 4], 1, Theirs::F32)?, draw(&[4, 5], 2, Theirs::F32)?);
    let error = |arguments| fused.apply(&a, &b, arguments).expect_err("it does not fit").to_string();
    let short = error(Arguments::new().tensor("bias", &draw(&[4], 3, Theirs::F32)?));
    assert!(short.contains("argument `bias`: has extents [4]"), "{short}");
    assert!(error(Arguments::new()).contains("argument `bias`: missing"));
    let long = fused.apply(&a, &draw(&[5, 5], 2, Theirs::F32)?, Arguments::new()).expect_err("K differs").to_string();
    assert!(long.contains("the same axis K"), "{long}");
    let other = Tensor::zeros((3, 4), Theirs::I64, a.device())?;
    assert!(fused.apply(&other, &b, Arguments::new()).expect_err("no format").to_string().contains("has no format"));
    Ok(())
}

#[test]
fn variables_of_several_formats_have_gradients_of_their_own() -> Result<()> {
    let epilogue = Epilogue::build(|e| {
        let z = e.acc() + e.load("bias", F32.over(N));
        e.store("d", z.silu() * e.load("scale", F16.over(M)), F32);
    });
    let fused = Fused::new(&epilogue.expect("an epilogue"));
    let (a, w) = (draw(&[7, 5], 1, Theirs::F32)?, draw(&[6, 5], 2, Theirs::F32)?);
    let of = |extents: &[usize], seed, format| Var::from_tensor(&draw(extents, seed, format)?);
    let (bias, scale) = (of(&[6], 3, Theirs::F32)?, of(&[7], 4, Theirs::F16)?);
    let ours = fused.apply(&a, &w.t()?, Arguments::new().tensor("bias", &bias).tensor("scale", &scale))?;
    let wide = scale.to_dtype(Theirs::F32)?.unsqueeze(1)?;
    let theirs = a.matmul(&w.t()?)?.broadcast_add(&bias)?.silu()?.broadcast_mul(&wide)?;
    let (mine, candles) = (ours.sum_all()?.backward()?, theirs.sum_all()?.backward()?);
    for (name, variable, bound) in [("bias", &bias, 1e-5), ("scale", &scale, 1e-3)] {
        let (mine, theirs) = (mine.get(variable).expect(name), candles.get(variable).expect(name));
        assert_eq!(mine.dtype(), variable.dtype());
        close(mine, theirs, bound)?;
    }
    Ok(())
}
