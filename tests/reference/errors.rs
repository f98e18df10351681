//! Arguments that do not fit: each fault names its argument, and nothing is written.

use crate::support::product;
use half::f16;
use postlude::args::{ArgumentError, ArgumentErrors, ArgumentFault, IntoTensor, Misfit};
use postlude::dtype::ValueType;
use postlude::prelude::*;
use postlude::reference::{Precision, oracle, run};
use postlude::{HostArgs, Operation};

const SHAPE: Shape = Shape::new(2, 3, 4).batched(2);

fn epilogue() -> Epilogue {
    Epilogue::build(|e| {
        let y = (e.acc() + e.load("bias", F16.over(N))) * e.scalar("scale", F32) + e.load("c", F32);
        e.store("c", y, F32);
        e.store("d", y, F16);
    })
    .unwrap()
}

/// Memory for every argument.
struct Room {
    a: Vec<f32>,
    b: Vec<f32>,
    bias: Vec<half::f16>,
    c: Vec<f32>,
    d: Vec<half::f16>,
}

impl Room {
    fn new() -> Room {
        let (c, d) = (vec![7.0; 12], vec![half::f16::ONE; 12]);
        Room { a: vec![1.0; 16], b: vec![1.0; 24], bias: vec![half::f16::ONE; 3], c, d }
    }

    /// Every argument but one.
    fn without(&mut self, name: &str) -> HostArgs<'_> {
        let mut args = HostArgs::new();
        if name != "a" {
            args = args.input("a", &self.a);
        }
        if name != "b" {
            args = args.input("b", &self.b);
        }
        if name != "bias" {
            args = args.input("bias", &self.bias);
        }
        if name != "scale" {
            args = args.scalar("scale", 2.0f32);
        }
        if name != "c" {
            args = args.output("c", &mut self.c);
        }
        if name != "d" {
            args = args.output("d", &mut self.d);
        }
        args
    }
}

fn attempt(args: HostArgs<'_>) -> Result<(), ArgumentErrors> {
    let epilogue = epilogue();
    let oracle = oracle(product(F32, TN), epilogue.checked(), SHAPE, &args).map(|_| ());
    let result = run(product(F32, TN), epilogue.checked(), SHAPE, args, Precision::F32);
    assert_eq!(result, oracle);
    result
}

/// The only fault of a launch without `name` and with `add`; nothing may have been written.
fn fault(name: &str, add: impl for<'a> FnOnce(HostArgs<'a>) -> HostArgs<'a>) -> ArgumentFault {
    let mut room = Room::new();
    let errors = attempt(add(room.without(name))).unwrap_err();
    assert_eq!(errors.0.len(), 1, "{errors}");
    assert!(errors.to_string().starts_with(&format!("argument `{}`: ", errors.0[0].name)), "{errors}");
    if !name.is_empty() {
        assert_eq!(errors.0[0].name, name, "{errors}");
    }
    let fresh = Room::new();
    assert!(room.c == fresh.c && room.d == fresh.d, "written in spite of {errors}");
    errors.0[0].fault.clone()
}

#[test]
fn all_arguments_fit() {
    let mut room = Room::new();
    attempt(room.without("")).unwrap();
    assert_eq!(room.c, [(4.0 + 1.0) * 2.0 + 7.0; 12]);
    assert!(room.d.iter().all(|x| x.to_f32() == 17.0));
}

#[test]
fn missing_unknown_and_repeated_arguments() {
    for name in ["a", "b", "bias", "scale", "c", "d"] {
        assert!(matches!(fault(name, |args| args), ArgumentFault::Missing { .. }), "{name}");
    }
    assert!(matches!(fault("", |args| args.scalar("extra", 1.0f32)), ArgumentFault::Unknown { known } if known.len() == 6));
    assert_eq!(fault("", |args| args.scalar("scale", 1.0f32)), ArgumentFault::Twice);
}

#[test]
fn every_fault_is_reported_at_once() {
    let errors = attempt(HostArgs::new().scalar("x", 1).scalar("scale", 1)).unwrap_err();
    let names: Vec<&str> = errors.0.iter().map(|e| e.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "bias", "scale", "c", "d", "x"]);
}

#[test]
fn wrong_kinds_and_formats() {
    static WIDE: [f32; 24] = [0.0; 24];
    static NARROW: [i32; 24] = [0; 24];
    assert_eq!(fault("a", |args| args.input("a", &NARROW[..])), ArgumentFault::DType { needs: F32, got: I32 });
    assert_eq!(fault("bias", |args| args.input("bias", &WIDE[..])), ArgumentFault::DType { needs: F16, got: F32 });
    assert!(matches!(fault("scale", |args| args.scalar("scale", 1)), ArgumentFault::ScalarType { .. }));
    assert!(matches!(fault("scale", |args| args.input("scale", &WIDE[..])), ArgumentFault::Kind { .. }));
    assert!(matches!(fault("b", |args| args.scalar("b", 1.0f32)), ArgumentFault::Kind { .. }));
}

#[test]
fn the_cure_for_a_format_is_where_the_format_was_chosen() {
    let text = |name: &str| ArgumentError { name: name.into(), fault: ArgumentFault::DType { needs: F16, got: F32 } }.to_string();
    for operand in ["a", "b"] {
        let text = text(operand);
        assert!(text.contains("or have the operation take f32: `Gemm::new(F32, ..)`"), "{text}");
    }
    let text = text("bias");
    assert!(text.ends_with("convert the data, or have the epilogue load, store or multiply f32"), "{text}");
}

#[test]
fn memory_that_cannot_be_written() {
    static WIDE: [f32; 12] = [0.0; 12];
    assert_eq!(fault("c", |args| args.input("c", &WIDE[..])), ArgumentFault::ReadOnly);
    // Passed as an output, but borrowed as an input.
    assert_eq!(fault("c", |args| args.output("c", &WIDE[..])), ArgumentFault::Shared);
}

#[test]
fn a_byte_for_each_element_is_no_mask_of_bits() {
    let masked = Epilogue::build(|e| {
        let keep = e.load("mask", Bits8);
        e.store("d", keep.select(e.acc(), 0.0), F32);
    })
    .unwrap();
    let (a, b) = ([1.0f32; 24], [1.0f32; 32]);
    let attempt = |mask: &[u8]| {
        let mut d = [9.0f32; 48];
        let args = HostArgs::new().input("a", &a).input("b", &b).input("mask", mask).output("d", &mut d);
        run(product(F32, TN), masked.checked(), Shape::new(6, 8, 4), args, Precision::F32).map(|()| d[0])
    };
    let ArgumentErrors(errors) = attempt(&[1; 48]).unwrap_err();
    assert_eq!(errors[0].fault, ArgumentFault::Unpacked { dtype: Bits8, needs: 6, got: 48 });
    assert!(errors[0].to_string().contains("declare it `Bool`, or pack it into 6 bytes"), "{}", errors[0]);
    // Six bytes are bits, and so is any other memory that is long enough.
    assert_eq!((attempt(&[1; 6]), attempt(&[2; 47])), (Ok(4.0), Ok(0.0)));
    // A row of two elements in a padded byte, and rows of sixteen at sixteen bytes: as many bytes as elements, and bits.
    for (shape, mask, ld) in [(Shape::new(1, 2, 4), vec![1u8, 0], 8), (Shape::new(2, 16, 4), vec![1; 32], 128)] {
        let (b, mut d) = (vec![1.0f32; shape.n * 4], vec![9.0f32; shape.m * shape.n]);
        let args = HostArgs::new().input("a", &a[..shape.m * 4]).input("b", &b).input("mask", (&mask).ld(ld));
        run(product(F32, TN), masked.checked(), shape, args.output("d", &mut d), Precision::F32).unwrap();
        assert_eq!(d[..2], [4.0, 0.0], "{shape}");
    }
    // Paddle's reserves of ReLU are of a byte for each element, and hold bits.
    let masked = Epilogue::build(|e| e.store("mask", e.acc().ge(0.0), Bits128)).unwrap();
    let (a, b, mut mask) = ([1.0f32; 4], [1.0f32; 4 * 256], [0u8; 256]);
    let args = HostArgs::new().input("a", &a).input("b", &b).output("mask", &mut mask);
    run(product(F32, TN), masked.checked(), Shape::new(1, 256, 4), args, Precision::F32).unwrap();
    assert!(mask[..32] == [255; 32] && mask[32..] == [0; 224]);
}

#[test]
fn what_the_batch_shares_is_not_one_for_each_entry() {
    let sums = Epilogue::build(|e| {
        e.store("d", e.acc() + e.load("bias", F32.over(N)), F32);
        e.reduce("max", e.acc(), Monoid::Max, F32.over(M));
    })
    .unwrap();
    let attempt = |bias: usize, max: usize| {
        let (a, b, bias, mut max, mut d) = ([1.0f32; 16], [1.0f32; 24], vec![1.0f32; bias], vec![9.0f32; max], [9.0f32; 12]);
        let args = HostArgs::new().input("a", &a).input("b", &b).input("bias", &bias).output("max", &mut max).output("d", &mut d);
        let result = run(product(F32, TN), sums.checked(), SHAPE, args, Precision::F32);
        assert!(result.is_ok() || (d == [9.0; 12] && max.iter().all(|x| *x == 9.0)));
        result
    };
    let faults: Vec<ArgumentFault> = attempt(6, 4).unwrap_err().0.into_iter().map(|error| error.fault).collect();
    assert!(matches!(
        faults[..],
        [ArgumentFault::Unbatched { needs: 3, got: 6, .. }, ArgumentFault::Unbatched { needs: 2, got: 4, batch: 2, .. }]
    ));
    let errors = attempt(6, 2).unwrap_err().to_string();
    assert!(errors.starts_with("argument `bias`: ") && errors.contains("declare it `batched()`"), "{errors}");
    // Any other memory that is long enough is meant to be longer.
    attempt(3, 2).unwrap();
    attempt(7, 5).unwrap();
}

#[test]
fn where_there_are_no_elements_any_leading_dimension_will_do() {
    let identity = Epilogue::build(|e| e.store("d", e.acc(), F32)).unwrap();
    let (none, b, mut d): ([f32; 0], _, [f32; 0]) = ([], [1.0f32; 12], []);
    let args = HostArgs::new().input("a", (&none).ld(0)).input("b", &b).output("d", (&mut d).ld(4));
    run(product(F32, NN), identity.checked(), Shape::new(0, 4, 3), args, Precision::F32).unwrap();
}

#[test]
fn memory_that_is_too_short() {
    static ZEROS: [f32; 24] = [0.0; 24];
    let lengths = |fault| match fault {
        ArgumentFault::TooShort { needs, got, .. } => (needs, got),
        other => panic!("{other:?}"),
    };
    assert_eq!(lengths(fault("a", |args| args.input("a", &ZEROS[..15]))), (16, 15));
    assert_eq!(lengths(fault("a", |args| args.input("a", (&ZEROS[..17]).batch_stride(10)))), (18, 17));
    assert_eq!(lengths(fault("a", |args| args.input("a", (&ZEROS[..16]).ld(5).batch_stride(11)))), (20, 16));
}

#[test]
fn strides_that_do_not_fit() {
    static ZEROS: [f32; 24] = [0.0; 24];
    static HALVES: [f16; 24] = [f16::ZERO; 24];
    assert!(matches!(
        fault("a", |args| args.input("a", (&ZEROS[..]).ld(3))),
        ArgumentFault::LeadingDimension { least: 4, got: 3, .. }
    ));
    assert!(matches!(
        fault("bias", |args| args.input("bias", (&HALVES[..]).ld(3))),
        ArgumentFault::LeadingDimension { least: 0, .. }
    ));
    assert!(matches!(
        fault("bias", |args| args.input("bias", (&HALVES[..]).batch_stride(3))),
        ArgumentFault::BatchStride { got: 3, .. }
    ));
}

#[test]
fn batch_entries_of_an_output_may_not_overlap() {
    for stride in [0, 1, 5] {
        let (mut memory, mut room) = (vec![f16::ONE; 24], Room::new());
        let tensor = (&mut memory).batch_stride(stride);
        let errors = attempt(room.without("d").output("d", tensor)).unwrap_err();
        assert_eq!((errors.0.len(), errors.0[0].name.as_str()), (1, "d"));
        assert!(matches!(errors.0[0].fault, ArgumentFault::BatchStride { got, .. } if got == stride));
        assert!(memory.iter().all(|x| *x == f16::ONE) && room.c == Room::new().c);
    }
}

#[test]
fn an_accumulator_that_the_operation_does_not_have() {
    let integers = Epilogue::build(|e| e.store("d", e.acc_i32(), I32)).unwrap();
    let a = [1.0f32; 4];
    let mut d = [5i32; 4];
    let args = HostArgs::new().input("a", &a[..]).input("b", &a[..]).output("d", &mut d[..]);
    let errors = run(product(F32, TN), integers.checked(), Shape::new(2, 2, 2), args, Precision::F32).unwrap_err();
    let misfit = Misfit::Accumulator { wants: ValueType::I32, has: ValueType::F32, dtype: F32 };
    assert_eq!((errors.0[0].name.as_str(), &errors.0[0].fault), ("a", &ArgumentFault::Misfit(misfit)));
    assert!(errors.to_string().contains("use `acc()`"), "{errors}");
    // No method of the builder makes an accumulator of conditions.
    let operation = Operation::Pointwise { dtype: Bool, order: Default::default() };
    let attempt = |epilogue: &Epilogue, d: &mut [i32]| {
        let args = HostArgs::new().input("a", &[0u8, 1, 1, 0]).output("d", d);
        run(operation, epilogue.checked(), Shape::new(2, 2, 0), args, Precision::F32)
    };
    let errors = attempt(&integers, &mut d).unwrap_err().to_string();
    assert!(errors.contains("load the matrix instead") && errors.contains("`acc bool`"), "{errors}");
    let document = "%0 = acc bool\n%1 = to_i32 %0\nstore \"d\" i32[M,N,L], %1".parse().unwrap();
    let mut counts = [5i32; 4];
    attempt(&document, &mut counts).unwrap();
    assert_eq!(counts, [0, 1, 1, 0]);
    let ones = Epilogue::build(|e| e.store("d", e.constant(1), I32)).unwrap();
    let bits = [1u8; 4];
    let args = HostArgs::new().input("a", &bits[..]).input("b", &bits[..]).output("d", &mut d[..]);
    let operation = Operation::product(Bool, TN);
    let errors = run(operation, ones.checked(), Shape::new(2, 2, 2), args, Precision::F32).unwrap_err();
    assert_eq!(errors.0[0].fault, ArgumentFault::Misfit(Misfit::Operands(Bool)));
    assert_eq!(d, [5; 4]);
}

#[test]
fn coordinates_that_do_not_fit_an_i32() {
    let mut room = Room::new();
    let last = i32::MAX - SHAPE.m as i32;
    attempt(room.without("").origin(last, 0, 0)).unwrap();
    let errors = attempt(room.without("").origin(last + 1, 0, 0)).unwrap_err();
    assert!(matches!(errors.0[0].fault, ArgumentFault::TooLarge { .. }));
}

#[test]
fn scalars_of_either_precision() {
    let epilogue = Epilogue::build(|e| e.store("d", (e.acc() * e.scalar("s", F32)).cast(F64) * e.scalar("t", F64), F64)).unwrap();
    let (a, mut d) = ([10.0f32], [0.0f64]);
    let operation = Operation::Pointwise { dtype: F32, order: Default::default() };
    let mut attempt = |s: Option<f32>, of: f64, t: Result<f64, f32>| {
        let args = HostArgs::new().input("a", &a).output("d", &mut d);
        let args = match s {
            Some(s) => args.scalar("s", s),
            None => args.scalar("s", of),
        };
        let args = match t {
            Ok(t) => args.scalar("t", t),
            Err(t) => args.scalar("t", t),
        };
        run(operation, epilogue.checked(), Shape::new(1, 1, 0), args, Precision::F32).map(|()| d[0])
    };
    let expected = f64::from(10.0 * 0.1f32) * 0.1;
    assert_eq!(attempt(None, 0.1, Ok(0.1)).unwrap(), expected);
    assert_eq!(attempt(Some(0.1), 0.0, Ok(0.1)).unwrap(), expected);
    assert!(attempt(None, f64::INFINITY, Ok(1.0)).unwrap().is_infinite());
    // Infinity is not what was passed, nor is a tenth of single precision one.
    let fault = |found: Result<f64, ArgumentErrors>| found.unwrap_err().0.remove(0).fault;
    assert_eq!(fault(attempt(None, 1e39, Ok(0.1))), ArgumentFault::ScalarType { needs: ValueType::F32, got: ValueType::F64 });
    assert_eq!(fault(attempt(None, 0.1, Err(0.1))), ArgumentFault::ScalarType { needs: ValueType::F64, got: ValueType::F32 });
}

#[test]
fn memory_of_the_other_precision_is_refused() {
    let epilogue = Epilogue::build(|e| e.store("d", e.acc_f64(), F64)).unwrap();
    let (a, mut d) = ([1.0f32], [0.0f64]);
    let args = HostArgs::new().input("a", &a).input("b", &a).output("d", &mut d);
    let errors = run(product(F64, TN), epilogue.checked(), Shape::new(1, 1, 1), args, Precision::F32).unwrap_err();
    assert_eq!(errors.0[0].fault, ArgumentFault::DType { needs: F64, got: F32 });
    let args = HostArgs::new().input("a", &a).input("b", &a).output("d", &mut d);
    let errors = run(product(F32, TN), epilogue.checked(), Shape::new(1, 1, 1), args, Precision::F32).unwrap_err();
    assert!(errors.to_string().contains("use `acc()`"), "{errors}");
}
