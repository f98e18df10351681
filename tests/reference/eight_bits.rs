//! Numbers of eight bits against what their codes are worth, by the formula: the nearest of all of them, of two the even one.

use postlude::prelude::*;

/// Codes of a format without their sign, up to the largest number, and what they are worth.
fn codes(dtype: DType) -> Vec<(u8, f64)> {
    let (fraction, bias, most) = if dtype == E4M3 { (3, 7, 0x7e) } else { (2, 15, 0x7b) };
    let worth = |code: u8| {
        let (exponent, rest) = (i32::from(code >> fraction), f64::from(code & ((1 << fraction) - 1)));
        let one = f64::from(1 << fraction);
        if exponent == 0 { rest * 2f64.powi(1 - bias - fraction) } else { (rest + one) * 2f64.powi(exponent - bias - fraction) }
    };
    (0..=most).map(|code| (code, worth(code))).collect()
}

fn points(dtype: DType) -> Vec<f64> {
    let halves = (0..=u16::MAX).map(|bits| postlude::half::f16::from_bits(bits).to_f64()).filter(|x| !x.is_nan());
    let codes = codes(dtype);
    let ties = codes.windows(2).map(|pair| (pair[0].1 + pair[1].1) / 2.0).chain([464.0, 61440.0, 1e300, f64::INFINITY]);
    halves.chain(ties.flat_map(|x| [x.next_down(), x, x.next_up()]).flat_map(|x| [x, -x])).collect()
}

#[test]
fn a_floating_point_number_is_the_nearest_and_saturates() {
    for dtype in [E4M3, E5M2] {
        let codes = codes(dtype);
        for x in points(dtype) {
            let size = x.abs().min(codes.last().unwrap().1);
            let distance = |(_, worth): &&(u8, f64)| (worth - size).abs();
            let least = codes.iter().map(|code| distance(&code)).fold(f64::INFINITY, f64::min);
            let nearest: Vec<_> = codes.iter().filter(|code| distance(code) == least).collect();
            let (code, worth) = **nearest.iter().find(|(code, _)| nearest.len() == 1 || code % 2 == 0).unwrap();
            let mut byte = [0xaa];
            dtype.write(&mut byte, 0, x);
            assert_eq!(byte[0], code | if x.is_sign_negative() { 0x80 } else { 0 }, "{dtype} {x}");
            assert_eq!(dtype.round(x).to_bits(), worth.copysign(x).to_bits(), "{dtype} {x}");
            assert_eq!(dtype.read(&byte, 0).to_bits(), worth.copysign(x).to_bits(), "{dtype} {x}");
        }
        for x in [f64::NAN, -f64::NAN] {
            let mut byte = [0];
            dtype.write(&mut byte, 0, x);
            assert_eq!(byte, [0x7f]);
            assert!(dtype.round(x).is_nan() && dtype.read(&byte, 0).is_nan() && dtype.read(&[0xff], 0).is_nan());
        }
    }
    assert_eq!([0x7c, 0xfc].map(|code| E5M2.read(&[code], 0)), [f64::INFINITY, f64::NEG_INFINITY]);
}

#[test]
fn an_integer_is_the_nearest_even_one_and_saturates() {
    for x in points(E4M3) {
        for (dtype, least, most) in [(I8, -128.0, 127.0), (U8, 0.0, 255.0)] {
            let (down, rest) = (x.floor(), x - x.floor());
            let up = rest > 0.5 || (rest == 0.5 && down.rem_euclid(2.0) == 1.0);
            let expected = (if up { down + 1.0 } else { down }).clamp(least, most);
            assert_eq!(dtype.round(x), expected, "{dtype} {x}");
            let mut byte = [0xaa];
            dtype.write(&mut byte, 0, x);
            assert_eq!(dtype.read(&byte, 0), expected, "{dtype} {x}");
        }
    }
    assert_eq!([I8, U8].map(|dtype| dtype.round(f64::NAN)), [0.0, 0.0]);
}

#[test]
fn elements_of_a_program_are_what_their_crates_say() {
    let (a, level, bias) = ([1i8, -2, 127, -128], [3u8, 255], [1.5, -0.25].map(postlude::float8::F8E4M3::from_f32));
    let epilogue = Epilogue::build(|e| {
        let z = (e.acc_i32() + e.load("level", U8.over(M))).cast(F32) + e.load("bias", E4M3.over(N));
        e.store("d", z, F32);
        e.store("q", z, U8);
    });
    let (mut d, mut q) = ([0.0f32; 4], [0u8; 4]);
    let args = HostArgs::new().input("a", &a).input("level", &level).input("bias", &bias).output("d", &mut d).output("q", &mut q);
    Gemm::pointwise(I8, Default::default(), &epilogue.unwrap()).reference(Shape::matrix(2, 2), args).unwrap();
    assert_eq!((d, q), ([5.5, 0.75, 383.5, 126.75], [6, 1, 255, 127]));
}

/// ONNX's formula, at ties, beyond both ends and with zero points that are odd; and what PyTorch and vLLM compute, by loops.
#[test]
fn quantising_is_onnxs() {
    let x: Vec<f32> = (-40..40).map(|i| i as f32 / 4.0).chain([1e9, -1e9, f32::INFINITY, f32::NAN]).collect();
    for (dtype, zero, least, most) in [(I8, -3, -128.0, 127.0), (U8, 7, 0.0, 255.0), (U8, 0, 0.0, 255.0)] {
        let epilogue = Epilogue::build(|e| {
            let q = e.acc().quantize(dtype, e.scalar("scale", F32), e.scalar("zero", I32));
            e.store("q", q, dtype);
            e.store("again", q.dequantize(e.scalar("scale", F32), e.scalar("zero", I32)), F32);
            e.store("symmetric", e.acc().quantize(dtype, 0.25, 0), I32);
        })
        .unwrap();
        let (mut q, mut again, mut symmetric) = (vec![0u8; x.len()], vec![0.0f32; x.len()], vec![0i32; x.len()]);
        let args = HostArgs::new().input("a", &x).scalar("scale", 0.5).scalar("zero", zero);
        let args = args.output("q", postlude::Tensor::of_bytes_mut(dtype, &mut q)).output("again", &mut again);
        let args = args.output("symmetric", &mut symmetric);
        Gemm::pointwise(F32, Default::default(), &epilogue).reference(Shape::matrix(1, x.len()), args).unwrap();
        for (i, x) in x.iter().map(|x| f64::from(*x)).enumerate() {
            let moved = (x / 0.5).round_ties_even() + f64::from(zero);
            let expected = if x.is_nan() { 0.0 } else { moved.clamp(least, most) };
            assert_eq!(dtype.read(&q, i), expected, "{dtype} {x}");
            assert_eq!(f64::from(again[i]), (expected - f64::from(zero)) * 0.5, "{dtype} {x}");
            assert_eq!(f64::from(symmetric[i]), dtype.round((x * 4.0).round_ties_even()), "{dtype} {x}");
        }
    }
    let epilogue = Epilogue::build(|e| {
        let q = e.acc().quantize(E4M3, 0.5, 0.0);
        e.store("q", q, E4M3);
        e.store("again", q.dequantize(0.5, 0), F32);
    })
    .unwrap();
    let (mut q, mut again) = ([0u8; 3], [0.0f32; 3]);
    let args = HostArgs::new().input("a", &[1.03f32, -300.0, -0.0]).output("q", postlude::Tensor::of_bytes_mut(E4M3, &mut q));
    Gemm::pointwise(F32, Default::default(), &epilogue).reference(Shape::matrix(1, 3), args.output("again", &mut again)).unwrap();
    assert_eq!((again.map(f32::to_bits), q[2]), ([1.0f32, -224.0, -0.0].map(f32::to_bits), 0x80));
}

#[test]
fn recipes_of_eight_bits_are_plain_arithmetic() {
    use postlude::build::recipes;
    let (m, n, k) = (4, 3, 6);
    let a: Vec<u8> = (0..m * k).map(|i| (i * 37 % 256) as u8).collect();
    let b: Vec<i8> = (0..n * k).map(|i| (i * 53 % 256) as u8 as i8).collect();
    let (zeros, bias) = ([3i32, -5, 128, 0], [0.5f32, -1.0, 2.0]);
    let (rows, columns) = ([0.5f32, 1.0, 0.25, 2.0], [0.125f32, 2.0, 1.0]);
    let sums: Vec<i32> = b.chunks_exact(k).map(|column| column.iter().map(|x| i32::from(*x)).sum()).collect();
    let product = |i: usize, j: usize, zero: i32| -> f64 {
        (0..k).map(|x| f64::from(i32::from(a[i * k + x]) - zero) * f64::from(b[j * k + x])).sum()
    };
    for (by_row, with_bias) in [(true, true), (false, false)] {
        let axes = |vector: postlude::Operand| if by_row { vector } else { F32.pointer() };
        let zero_point = if by_row { I32.over(M) } else { I32.pointer() };
        let epilogue = recipes::w8a8_asymmetric(axes(F32.over(M)), axes(F32.over(N)), zero_point, F32, F32).unwrap();
        let mut d = vec![0.0f32; m * n];
        let count = |all: usize| if by_row { all } else { 1 };
        let args = HostArgs::new()
            .input("a", &a)
            .input("b", &b)
            .input("scale_a", &rows[..count(m)])
            .input("scale_b", &columns[..count(n)])
            .input("zero_point", &zeros[..count(m)])
            .input("column_sums", &sums)
            .output("d", &mut d);
        let args = if with_bias { args.input("bias", &bias) } else { args };
        Gemm::mixed(U8, I8, TN, &epilogue).reference(Shape::new(m, n, k), args).unwrap();
        for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
            let (row, column) = if by_row { (i, j) } else { (0, 0) };
            let scale = f64::from(rows[row]) * f64::from(columns[column]);
            let expected = product(i, j, zeros[row]) * scale + if with_bias { f64::from(bias[j]) } else { 0.0 };
            assert_eq!(f64::from(d[i * n + j]), expected, "{i} {j}");
        }
    }
    let epilogue = recipes::w8a8(F32.pointer(), F32.over(N), F32, I8).unwrap();
    let mut d = vec![0i8; m * n];
    let args = HostArgs::new().input("a", &a).input("b", &b).input("scale_a", &rows[2..3]).input("scale_b", &columns);
    let args = args.input("scale_result", &[0.125f32]).output("d", &mut d);
    Gemm::mixed(U8, I8, TN, &epilogue).reference(Shape::new(m, n, k), args).unwrap();
    for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
        assert_eq!(f64::from(d[i * n + j]), I8.round(product(i, j, 0) * 0.25 * f64::from(columns[j]) * 0.125), "{i} {j}");
    }
}
