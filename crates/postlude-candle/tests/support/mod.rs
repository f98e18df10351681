//! Numbers to compute with, and how near results have to be.

use candle_core::{DType, Device, Result, Tensor};

/// The device of the tests, which the test binary chooses.
pub fn device() -> Result<Device> {
    crate::device()
}

/// Numbers that look random and are the same each time.
pub fn draw(extents: &[usize], seed: u32, dtype: DType) -> Result<Tensor> {
    let count: usize = extents.iter().product();
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (f64::from(state >> 8) / f64::from(1u32 << 24) - 0.5) * 2.0
    };
    let drawn = Tensor::from_vec((0..count).map(|_| next()).collect::<Vec<f64>>(), extents, &Device::Cpu)?;
    drawn.to_dtype(dtype)?.to_device(&device()?)
}

/// Compares each element, wherever the tensors are.
pub fn close(got: &Tensor, want: &Tensor, bound: f64) -> Result<()> {
    assert_eq!(got.dims(), want.dims());
    let doubles = |t: &Tensor| t.to_device(&Device::Cpu)?.to_dtype(DType::F64)?.flatten_all()?.to_vec1::<f64>();
    for (x, y) in doubles(got)?.iter().zip(&doubles(want)?) {
        assert!((x - y).abs() <= bound * (1.0 + y.abs()), "{x} is not {y}");
    }
    Ok(())
}
