//! Gradients through stores and casts of eight bits: they pass inside the range, and are 0 outside.

use postlude::float8::{F8E4M3, F8E5M2};
use postlude::grad::Wrt;
use postlude::prelude::*;

const Z: [f32; 8] = [1.0, -300.0, 448.0, 449.0, -1e9, 57344.0, 57345.0, f32::NAN];

/// dZ of an epilogue over [`Z`], and the bits that it saves for an element.
fn gradient(epilogue: &Epilogue, dtype: DType) -> ([f32; 8], usize) {
    let pair = epilogue.backward(Wrt::accumulator().format("acc", F32)).unwrap();
    let shape = Shape::matrix(1, 8);
    let mut reserve = pair.reserve().allocate(shape);
    let mut d = [0u8; 8];
    let args = HostArgs::new().input("a", &Z).output("d", Tensor::of_bytes_mut(dtype, &mut d));
    Gemm::pointwise(F32, Order::RowMajor, pair.forward()).reference(shape, args.saving(&mut reserve)).unwrap();
    let expected: Vec<u8> = match dtype {
        E4M3 => Z.iter().map(|z| F8E4M3::from_f32(z.clamp(-448.0, 448.0)).to_bits()).collect(),
        _ => Z.iter().map(|z| F8E5M2::from_f32(z.clamp(-57344.0, 57344.0)).to_bits()).collect(),
    };
    assert_eq!(d[..7], expected[..7]);
    let (upstream, mut dz) = ([2.0f32; 8], [f32::NAN; 8]);
    let args = HostArgs::new().input("a", &upstream).output("grad_acc", &mut dz);
    Gemm::pointwise(F32, Order::RowMajor, pair.backward()).reference(shape, args.saved(&reserve)).unwrap();
    (dz, pair.reserve().values().iter().map(|value| value.operand.dtype.bits()).sum())
}

#[test]
fn what_saturates_has_no_gradient() {
    for (dtype, inside) in [(E4M3, [2.0, 2.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0]), (E5M2, [2.0, 2.0, 2.0, 2.0, 0.0, 2.0, 0.0, 0.0])] {
        let stored = Epilogue::build(|e| e.store("d", e.acc(), dtype)).unwrap();
        let cast = Epilogue::build(|e| e.store("d", e.acc().cast(dtype), dtype)).unwrap();
        // One bit an element, and a cast before the store takes no second one.
        assert_eq!(gradient(&stored, dtype), (inside, 1), "{dtype}");
        assert_eq!(gradient(&cast, dtype), (inside, 1), "{dtype}");
    }
}

/// Rounding to 16 bits does not saturate at numbers of this size, and nothing is saved for it.
#[test]
fn sixteen_bits_pass_everything() {
    let epilogue = Epilogue::build(|e| e.store("d", e.acc(), BF16)).unwrap();
    assert!(epilogue.backward(Wrt::accumulator()).unwrap().reserve().values().is_empty());
}
