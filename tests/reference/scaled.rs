//! Products of operands with fewer bits and with scales along K, against plain loops over the numbers they stand for.

use postlude::half::f16;
use postlude::prelude::*;
use postlude::weights::{QuantizedWeights, WeightsError, quantize_weights};
use postlude::{Blocks, DType, Operation, Tensor};

/// Numbers that repeat late.
fn numbers(count: usize, seed: usize) -> Vec<f64> {
    (0..count).map(|i| ((i * 7919 + seed * 104_729) % 1009) as f64 / 504.5 - 1.0).collect()
}

fn stored(dtype: DType, values: &[f64]) -> Vec<u8> {
    let mut bytes = vec![0; dtype.bytes(values.len())];
    values.iter().enumerate().for_each(|(i, x)| dtype.write(&mut bytes, i, *x));
    bytes
}

/// What an operand of these lines stands for, line by line, with the bytes of its scales and zero points.
fn operand(dtype: DType, [lines, k]: [usize; 2], blocks: Option<Blocks>, seed: usize) -> (Vec<u8>, [Vec<u8>; 2], Vec<f64>) {
    let span = if dtype.value_type().is_float() { 1.0 } else { 120.0 };
    let span = if dtype.is_four_bits() { 7.0 } else { span };
    let ld = k.next_multiple_of(dtype.run());
    let mut bytes = vec![0; dtype.bytes(lines * ld)];
    let given = numbers(lines * k, seed);
    let mut values = vec![0.0; lines * k];
    for (i, x) in given.iter().enumerate() {
        dtype.write(&mut bytes, i / k * ld + i % k, x * span);
        values[i] = dtype.round(x * span);
    }
    let Some(blocks) = blocks else { return (bytes, Default::default(), values) };
    let [across, along] = blocks.counts(lines, k);
    let zero_format = Blocks::zero_format(dtype);
    let scales: Vec<f64> = numbers(across * along, seed + 1).iter().map(|x| blocks.dtype.round(x + 1.5)).collect();
    let zeros: Vec<f64> = numbers(across * along, seed + 2).iter().map(|x| zero_format.round(x * 9.0)).collect();
    for (i, x) in values.iter_mut().enumerate() {
        let [line, block] = [i / k / blocks.lines, i % k / blocks.terms];
        let at = if blocks.lines == 1 { block * across + line } else { line * along + block };
        *x = (*x - if blocks.zero_points { zeros[at] } else { 0.0 }) * scales[at];
    }
    (bytes, [stored(blocks.dtype, &scales), stored(zero_format, &zeros)], values)
}

fn check([a, b]: [DType; 2], scales: [Option<Blocks>; 2], shape: Shape) {
    let (bytes_a, of_a, values_a) = operand(a, [shape.m, shape.k], scales[0], 3);
    let (bytes_b, of_b, values_b) = operand(b, [shape.n, shape.k], scales[1], 11);
    let epilogue = Epilogue::build(|e| e.store("d", e.acc() * 2.0, F32)).unwrap();
    let mut d = vec![f32::NAN; shape.m * shape.n];
    let mut args = HostArgs::new().input("a", Tensor::of_bytes(a, &bytes_a)).input("b", Tensor::of_bytes(b, &bytes_b));
    for (side, blocks, [scale, zero], dtype) in [("a", scales[0], &of_a, a), ("b", scales[1], &of_b, b)] {
        if let Some(blocks) = blocks {
            args = args.input(&format!("{side}_scale"), Tensor::of_bytes(blocks.dtype, scale));
            if blocks.zero_points {
                args = args.input(&format!("{side}_zero"), Tensor::of_bytes(Blocks::zero_format(dtype), zero));
            }
        }
    }
    let gemm = Gemm::of(Operation::Product { a, b, layout: TN, scales }, &epilogue);
    gemm.reference(shape, args.output("d", &mut d[..])).unwrap();
    for (i, d) in d.iter().enumerate() {
        let (row, column) = (i / shape.n, i % shape.n);
        let terms = (0..shape.k).map(|k| values_a[row * shape.k + k] * values_b[column * shape.k + k]);
        let (sum, size) = terms.fold((0.0, 0.0), |(sum, size), x: f64| (sum + x, size + x.abs()));
        let error = (f64::from(*d) - 2.0 * sum).abs();
        assert!(error <= 4e-6 * (2.0 * size).max(1e-9), "{a} {b} {scales:?}: {d} for {} at {row}, {column}", 2.0 * sum);
    }
}

#[test]
fn an_element_is_what_its_block_makes_of_it() {
    let groups = Blocks::groups;
    for shape in [Shape::new(3, 5, 64), Shape::new(35, 70, 131), Shape::new(1, 130, 300)] {
        for a in [F16, BF16] {
            check([a, I4], [None, Some(groups(32))], shape);
            check([a, U4], [None, Some(groups(64).with_zero_points().scales_as(F16))], shape);
            check([a, I8], [None, Some(groups(96).with_zero_points().scales_as(BF16))], shape);
            check([a, U8], [None, None], shape);
            check([E4M3, a], [Some(Blocks::squares(32)), None], shape);
            check([I4, a], [None, None], shape);
        }
        check([E4M3, E4M3], [Some(groups(128)), Some(Blocks::squares(128))], shape);
        check([E5M2, E4M3], [Some(groups(64)), Some(groups(32))], shape);
        check([E5M2, E5M2], [None, Some(groups(64))], shape);
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let epilogue = Epilogue::build(|e| e.store("d", e.acc() + e.load("b_scale", F32.over(N)), F32)).unwrap();
    let plain = Epilogue::build(|e| e.store("d", e.acc(), F32)).unwrap();
    let summed = Epilogue::build(|e| {
        e.store("d", e.acc(), F32);
        e.reduce("s", e.a(), Monoid::Sum, F32.over(M));
    });
    let summed = summed.unwrap();
    let of = |a, b, layout, scales, epilogue: &Epilogue| {
        let gemm = Gemm::of(Operation::Product { a, b, layout, scales }, epilogue);
        let error = gemm.reference(Shape::new(2, 2, 64), HostArgs::new()).unwrap_err().to_string();
        let planned = gemm.kernel_plan(postlude::target::Target::SM_90A, 132, Shape::new(2, 2, 64)).unwrap_err().to_string();
        (error, planned)
    };
    let groups = Some(Blocks::groups(64));
    for (words, a, b, layout, scales, epilogue) in [
        ("only e4m3 and e5m2 may be mixed", F32, I4, TN, [None; 2], &plain),
        ("only e4m3 and e5m2 may be mixed", F16, BF16, TN, [None; 2], &plain),
        ("operands of i4 cannot be multiplied", I4, I4, TN, [None; 2], &plain),
        ("two elements of K in a byte, and K is not contiguous in TT", F16, I4, TT, [None; 2], &plain),
        ("`a` of f16 beside i4 has no blocks", F16, I4, TN, [groups, None], &plain),
        ("`b` of i8 beside i8 has no blocks", I8, I8, TN, [None, groups], &plain),
        ("a multiple of 32 elements of K", F16, I4, TN, [None, Some(Blocks::groups(48))], &plain),
        ("zero points belong to integers", F16, E4M3, TN, [None, Some(Blocks::groups(64).with_zero_points())], &plain),
        ("scales are f32, f16 or bf16", F16, I4, TN, [None, Some(Blocks::groups(64).scales_as(I8))], &plain),
        ("the operation itself has an argument `b_scale`", F16, I4, TN, [None, groups], &epilogue),
        ("one operand is scaled or widened", F16, I4, TN, [None, groups], &summed),
    ] {
        let (error, planned) = of(a, b, layout, scales, epilogue);
        assert!(error.contains(words) && planned.contains(words), "{words}:\n{error}\n{planned}");
    }
    let (x, w) = ([postlude::half::f16::ONE; 64], [0u8; 32]);
    let args = HostArgs::new().input("a", &x).input("b", Tensor::of_bytes(I4, &w));
    let gemm = Gemm::grouped_weights(F16, I4, TN, Blocks::groups(32), &plain);
    let error = gemm.reference(Shape::new(1, 1, 64), args.output("d", &mut [0.0f32][..])).unwrap_err().to_string();
    assert!(error.contains("`b_scale`") && error.contains("K/32 x N"), "{error}");
}

/// A product that is computed part by part finds the scales of every part.
#[test]
fn scales_of_many_columns_and_terms() {
    let (m, n, k) = (2, 700, 1100);
    let weights: Vec<f32> = numbers(n * k, 8).iter().map(|x| *x as f32).collect();
    let blocks = Blocks::groups(32).with_zero_points();
    let QuantizedWeights { b, b_scale, b_zero } = quantize_weights(&weights, [n, k], U4, blocks).unwrap();
    let a: Vec<f16> = (0..m * k).map(|i| f16::from_f32((i * 7 % 11) as f32 - 5.0)).collect();
    let mut d = vec![0.0f32; m * n];
    let epilogue = Epilogue::build(|e| e.store("d", e.acc(), F32)).unwrap();
    let args = HostArgs::new()
        .input("a", &a)
        .input("b", Tensor::of_bytes(U4, &b))
        .input("b_scale", Tensor::of_bytes(blocks.dtype, &b_scale))
        .input("b_zero", Tensor::of_bytes(Blocks::zero_format(U4), &b_zero))
        .output("d", &mut d);
    Gemm::grouped_weights(F16, U4, TN, blocks, &epilogue).reference(Shape::new(m, n, k), args).unwrap();
    let [across, _] = blocks.counts(n, k);
    for column in (0..n).step_by(23).chain([511, 512, 513, n - 1]) {
        let weight = |term: usize| {
            let block = term / blocks.terms * across + column;
            let zero = Blocks::zero_format(U4).read(&b_zero, block);
            (U4.read(&b, column * k.next_multiple_of(U4.run()) + term) - zero) * blocks.dtype.read(&b_scale, block)
        };
        for row in 0..m {
            let expected: f64 = (0..k).map(|term| f64::from(a[row * k + term].to_f32()) * weight(term)).sum();
            let got = f64::from(d[row * n + column]);
            assert!((got - expected).abs() <= 1e-2 * (1.0 + expected.abs()), "{row} {column}: {got} for {expected}");
        }
    }
}

/// Weights come back to within half a step of their block, and zeros exactly.
#[test]
fn quantised_weights_come_back() {
    let (n, k) = (37, 205);
    let mut weights: Vec<f32> = numbers(n * k, 5).iter().map(|x| (x * x * x + 0.2) as f32).collect();
    weights[17] = 0.0;
    weights[64..96].fill(0.0);
    for (dtype, blocks) in [
        (I4, Blocks::groups(32)),
        (U4, Blocks::groups(64).with_zero_points()),
        (I8, Blocks::groups(128).with_zero_points().scales_as(BF16)),
        (U8, Blocks::squares(32).with_zero_points().scales_as(F16)),
        (I4, Blocks::squares(32).scales_as(F16)),
        (E4M3, Blocks::groups(128)),
        (E5M2, Blocks::groups(128)),
    ] {
        let QuantizedWeights { b, b_scale, b_zero } = quantize_weights(&weights, [n, k], dtype, blocks).unwrap();
        let [across, along] = blocks.counts(n, k);
        for (i, weight) in weights.iter().enumerate() {
            let (column, term) = (i / k, i % k);
            let at = match blocks.lines {
                1 => term / blocks.terms * across + column,
                lines => column / lines * along + term / blocks.terms,
            };
            let scale = blocks.dtype.read(&b_scale, at);
            let zero = if blocks.zero_points { Blocks::zero_format(dtype).read(&b_zero, at) } else { 0.0 };
            let back = (dtype.read(&b, column * k.next_multiple_of(dtype.run()) + term) - zero) * scale;
            let step = match dtype {
                E4M3 => (f64::from(*weight).abs() / 16.0).max(scale * 2f64.powi(-10)),
                E5M2 => (f64::from(*weight).abs() / 8.0).max(scale * 2f64.powi(-17)),
                // Scales of 16 bits may be too small by a rounding, so the largest number saturates.
                _ => 0.5 * scale + 2f64.powi(-8) * f64::from(*weight).abs(),
            };
            assert!((back - f64::from(*weight)).abs() <= step * (1.0 + 1e-9), "{dtype} {blocks}: {back} for {weight}");
            assert!(*weight != 0.0 || back == 0.0, "{dtype} {blocks}: {back} for 0");
        }
    }
    assert_eq!(quantize_weights(&[], [0, 4], F16, Blocks::groups(32)), Err(WeightsError::Format(F16)));
    assert!(matches!(quantize_weights(&[], [1, 4], I4, Blocks::groups(32)), Err(WeightsError::Length { .. })));
    let infinite = [0.0, 1.0, 2.0, 3.0, 4.0, f32::NEG_INFINITY];
    let error = WeightsError::NotFinite { column: 1, term: 2, value: "-inf".to_owned() };
    assert_eq!(quantize_weights(&infinite, [2, 3], I4, Blocks::groups(32)), Err(error));
    assert!(matches!(quantize_weights(&[1.0], [1, 1], I4, Blocks::groups(33)), Err(WeightsError::Blocks { .. })));
}
