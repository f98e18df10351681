use super::*;

#[test]
fn names_round_trip_and_agree_with_serde() {
    for d in DType::ALL {
        assert_eq!(DType::from_name(d.name()), Some(d));
        assert_eq!(serde_json::to_string(&d).unwrap(), format!("\"{}\"", d.name()));
    }
}

#[test]
fn read_returns_what_write_rounded() {
    for d in DType::ALL.into_iter().filter(|d| !d.is_four_bits()) {
        let mut bytes = vec![0xAAu8; 3 * d.size()];
        for x in [0.0, 1.0, -2.5, 0.1, 65519.0, 65520.0, 1e-8, 3.0e38] {
            d.write(&mut bytes, 1, x);
            assert_eq!(d.read(&bytes, 1), d.round(x), "{d} {x}");
        }
        assert!(bytes[..d.size()].iter().all(|b| *b == 0xAA) && bytes[2 * d.size()..].iter().all(|b| *b == 0xAA));
    }
}

#[test]
fn a_run_is_its_elements() {
    for d in DType::ALL {
        // Aligned and unaligned.
        for start in 0..2 {
            let mut bytes = vec![0u8; start + 40 * d.size()];
            (0..40).for_each(|i| d.write(&mut bytes[start..], i, f64::from(i as i32 - 20) / 7.0));
            let mut run = [0.0f32; 33];
            d.read_run(&bytes[start..], 5, &mut run);
            let expected = |i: usize| d.read(&bytes[start..], 5 + i) as f32;
            assert!(run.iter().enumerate().all(|(i, x)| *x == expected(i)), "{d}");
        }
    }
}

#[test]
fn f64_is_kept_to_the_last_bit() {
    let mut bytes = [0u8; 24];
    for x in [0.1, -0.0, 1.0 + f64::EPSILON, f64::MIN_POSITIVE / 2.0, f64::MAX, f64::NEG_INFINITY] {
        DType::F64.write(&mut bytes, 1, x);
        assert_eq!(DType::F64.read(&bytes, 1).to_bits(), x.to_bits());
        assert_eq!(DType::F64.round(x).to_bits(), x.to_bits());
    }
    assert_eq!((DType::F64.bits(), DType::F64.bytes(3), DType::F64.elements(17)), (64, 24, 2));
    for value in ValueType::ALL {
        assert_eq!(value.storage().value_type(), value);
    }
}

#[test]
fn rounding_is_to_nearest_even() {
    assert_eq!(DType::F16.round(2049.0), 2048.0);
    assert_eq!(DType::F16.round(2051.0), 2052.0);
    assert_eq!(DType::F16.round(65519.0), 65504.0);
    assert_eq!(DType::F16.round(65520.0), f64::INFINITY);
    assert_eq!(DType::BF16.round(257.0), 256.0);
    assert_eq!(DType::BF16.round(259.0), 260.0);
    assert!(DType::F16.round(f64::NAN).is_nan());
}

#[test]
fn a_number_is_rounded_once() {
    let (tie, little) = (1.0 + 2f64.powi(-11), 2f64.powi(-40));
    assert_eq!([tie - little, tie, tie + little].map(|x| DType::F16.round(x)), [1.0, 1.0, 1.0 + 2f64.powi(-10)]);
    assert_eq!([-tie - little, -tie + little].map(|x| DType::F16.round(x)), [-1.0 - 2f64.powi(-10), -1.0]);
    let tie = 1.0 + 2f64.powi(-8);
    assert_eq!([tie - little, tie, tie + little].map(|x| DType::BF16.round(x)), [1.0, 1.0, 1.0 + 2f64.powi(-7)]);
    // Ties of the smallest subnormals, where `f32` is also subnormal or zero.
    assert_eq!(DType::F16.round(2f64.powi(-25) * (1.0 + little)), 2f64.powi(-24));
    assert_eq!(DType::BF16.round(2f64.powi(-134) * (1.0 + little)), 2f64.powi(-133));
    assert_eq!(DType::BF16.round(-1e-300).to_bits(), (-0.0f64).to_bits());
    assert_eq!([1e300, -1e300].map(|x| DType::BF16.round(x)), [f64::INFINITY, f64::NEG_INFINITY]);
}

#[test]
fn bits_are_counted_from_the_lowest() {
    for format in [DType::Bits8, DType::Bits128] {
        assert_eq!((format.bits(), format.bytes(8), format.bytes(9), format.elements(3)), (1, 1, 2, 24));
        let mut bytes = [0u8, 0xff];
        format.write(&mut bytes, 3, 1.0);
        format.write(&mut bytes, 9, 0.0);
        assert_eq!(bytes, [0b0000_1000, 0b1111_1101]);
        let mut run = [9.0f32; 4];
        format.read_run(&bytes, 7, &mut run);
        assert_eq!(run, [0.0, 1.0, 0.0, 1.0]);
    }
    assert_eq!((DType::F16.bits(), DType::F16.bytes(3), DType::F16.elements(7)), (16, 6, 3));
}

#[test]
fn four_bits_are_counted_from_the_lowest() {
    let mut bytes = [0xA5u8, 0x5A];
    DType::I4.write(&mut bytes, 1, -3.5);
    DType::I4.write(&mut bytes, 2, 99.0);
    assert_eq!(bytes, [0xC5, 0x57]);
    assert_eq!([0, 1, 2, 3].map(|i| DType::I4.read(&bytes, i)), [5.0, -4.0, 7.0, 5.0]);
    assert_eq!([0, 1, 2, 3].map(|i| DType::U4.read(&bytes, i)), [5.0, 12.0, 7.0, 5.0]);
    assert_eq!([-1.0, 2.5, 300.0, f64::NAN].map(|x| DType::U4.round(x)), [0.0, 2.0, 15.0, 0.0]);
    assert_eq!((DType::I4.bits(), DType::I4.bytes(3), DType::I4.elements(2), DType::I4.run()), (4, 2, 4, 2));
}

#[test]
fn numbers_written_at_once_are_those_written_one_by_one() {
    let special = [0.0, -0.0, f64::NAN, f64::INFINITY, -f64::INFINITY, f64::MAX, f64::MIN_POSITIVE, 65519.9, 65520.0, 1e39];
    let ties = (0..1200).map(|i| (1.0 + f64::from(i) / 4096.0) * (1.0 + f64::from(i % 3 - 1) * 1e-12) * f64::from(1 - i % 2 * 2));
    let numbers: Vec<f64> = special.into_iter().chain(ties).collect();
    for d in DType::ALL.into_iter().filter(|d| d.size() > 0) {
        for start in 0..2 {
            let (mut one, mut all) = (vec![0u8; (numbers.len() + 9) * 8], vec![0u8; (numbers.len() + 9) * 8]);
            numbers.iter().enumerate().for_each(|(i, x)| d.write(&mut one[start..], 8 + i, *x));
            d.write_wide(&mut all[start..], 8, &numbers);
            assert_eq!(one, all, "{d} from {start}");
        }
    }
}
