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
