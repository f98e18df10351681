//! Numbers to compute with, and how near results have to be.

use candle_core::{DType, Device, Result, Tensor};

pub fn device() -> Result<Device> {
    if std::env::var_os("POSTLUDE_CANDLE_GPU").is_some() { Device::new_cuda(0) } else { Ok(Device::Cpu) }
}

/// Numbers that look random and are the same each time.
pub fn draw(extents: &[usize], seed: u32, dtype: DType) -> Result<Tensor> {
    let count: usize = extents.iter().product();
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (f64::from(state >> 8) / f64::from(1u32 << 24) - 0.5) * 2.0
    };
    Tensor::from_vec((0..count).map(|_| next()).collect::<Vec<f64>>(), extents, &device()?)?.to_dtype(dtype)
}

pub fn close(got: &Tensor, want: &Tensor, bound: f64) -> Result<()> {
    assert_eq!(got.dims(), want.dims());
    let got = got.to_dtype(DType::F64)?.flatten_all()?.to_vec1::<f64>()?;
    let want = want.to_dtype(DType::F64)?.flatten_all()?.to_vec1::<f64>()?;
    for (x, y) in got.iter().zip(&want) {
        assert!((x - y).abs() <= bound * (1.0 + y.abs()), "{x} is not {y}");
    }
    Ok(())
}
