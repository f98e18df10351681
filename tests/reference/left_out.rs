//! Arguments that a launch leaves out: each means what memory full of its default would.

use crate::support::{POINTWISE, product};
use postlude::args::{ArgumentFault, Slot, SlotKind, slots};
use postlude::check::Need;
use postlude::dtype::ValueType;
use postlude::grad::Wrt;
use postlude::ir::Constant;
use postlude::prelude::*;
use postlude::reference::{Precision, oracle, run};
use postlude::{HostArgs, Operation, Tensor};

const SHAPE: Shape = Shape::new(7, 11, 5).batched(2);

/// Operands of every format and along every axis, with defaults that their formats do not hold exactly, infinities and integers.
fn epilogue() -> Epilogue {
    Epilogue::build(|e| {
        let z = e.acc() * e.scalar_or("alpha", F32, 0.1) + e.load_or("scale", F16.pointer(), 1e6).min(3.0);
        let z = z * e.load_or("rows", BF16.over(M).batched(), 1.003) + e.load_or("columns", F16.over(N), 0.1);
        let z = z + e.load_or("c", F16, 1.0 / 3.0) * e.load_or("turned", F32.column_major(), 0.1);
        let level = e.load_or("level", I32.over(M), -3) + e.scalar_or("step", I32, 7);
        let keep = e.load_or("keep", Bits8, true) & e.scalar_or("on", Bool, false) & e.load_or("bytes", Bool.over(N), true);
        e.store("d", keep.select(z + level.cast(F32), 0.0), F32);
        e.reduce("sums", z, Monoid::Sum, F32.over(N));
    })
    .unwrap()
}

/// Some bytes for a slot: all elements one number, or all of them different.
fn memory(slot: &Slot, all: Option<Constant>) -> (DType, Vec<u8>) {
    let SlotKind::Memory { dtype, outer, inner, batch, .. } = slot.kind else { panic!("memory") };
    let count = inner.next_multiple_of(dtype.run()) * outer * batch.unwrap_or(1);
    let mut bytes = vec![0; dtype.bytes(count)];
    for i in 0..count {
        let value = all.map_or((i % 5) as f64 - 2.0, Constant::value);
        dtype.write(&mut bytes, i, if dtype.is_packed() || dtype == Bool { f64::from(u8::from(value != 0.0)) } else { value });
    }
    (dtype, bytes)
}

/// What an epilogue writes where `left_out` says what is not passed; `filled` passes memory full of the default instead.
fn outputs(operation: Operation, epilogue: &Epilogue, left_out: impl Fn(usize) -> bool, filled: bool) -> Vec<Vec<u8>> {
    let slots = slots(operation, epilogue.checked(), SHAPE);
    let default = |index: usize| slots[index].need.default().filter(|_| left_out(index));
    let mut buffers: Vec<_> = slots
        .iter()
        .enumerate()
        .map(|(i, slot)| if let SlotKind::Scalar(_) = slot.kind { (F32, Vec::new()) } else { memory(slot, default(i)) })
        .collect();
    let mut args = HostArgs::new();
    for ((index, slot), (dtype, bytes)) in slots.iter().enumerate().zip(&mut buffers) {
        args = match (&slot.kind, default(index)) {
            (_, Some(_)) if !filled => args,
            (SlotKind::Scalar(_), Some(Constant::F32(bits))) => args.scalar(&slot.name, f32::from_bits(bits)),
            (SlotKind::Scalar(_), Some(Constant::I32(x))) => args.scalar(&slot.name, x),
            (SlotKind::Scalar(_), Some(Constant::Bool(b))) => args.scalar(&slot.name, b),
            (SlotKind::Scalar(ValueType::F32), None) => args.scalar(&slot.name, 0.5f32),
            (SlotKind::Scalar(ValueType::I32), None) => args.scalar(&slot.name, 2),
            (SlotKind::Scalar(ValueType::Bool), None) => args.scalar(&slot.name, true),
            (SlotKind::Memory { written: true, .. }, _) => args.output(&slot.name, Tensor::of_bytes_mut(*dtype, bytes)),
            _ => args.input(&slot.name, Tensor::of_bytes(*dtype, bytes)),
        };
    }
    let exact = oracle(operation, epilogue.checked(), SHAPE, &args).unwrap();
    run(operation, epilogue.checked(), SHAPE, args, Precision::F32).unwrap();
    let written = slots.iter().zip(buffers).filter(|(slot, _)| matches!(slot.kind, SlotKind::Memory { written: true, .. }));
    let oracle = exact.outputs.iter().flat_map(|o| &o.values).flat_map(|x| x.to_bits().to_le_bytes()).collect();
    written.map(|(_, (_, bytes))| bytes).chain([oracle]).collect()
}

#[test]
fn what_is_left_out_is_full_of_the_default() {
    let epilogue = epilogue();
    for operation in [product(F32, TT), product(F16, NT), POINTWISE] {
        let all = slots(operation, epilogue.checked(), SHAPE);
        let given = outputs(operation, &epilogue, |_| false, false);
        for (alone, slot) in all.iter().enumerate().filter(|(_, slot)| slot.need.default().is_some()) {
            let found = outputs(operation, &epilogue, |i| i == alone, false);
            assert!(found == outputs(operation, &epilogue, |i| i == alone, true), "{operation} without `{}`", slot.name);
            assert!(found != given, "{operation}: `{}` makes no difference", slot.name);
        }
        assert_eq!(outputs(operation, &epilogue, |_| true, false), outputs(operation, &epilogue, |_| true, true), "{operation}");
    }
}

#[test]
fn the_arguments_say_what_may_be_left_out() {
    let need = |name: &str| epilogue().arguments().iter().find(|a| &*a.name == name).unwrap().need;
    assert_eq!(need("d"), Need::Required);
    assert_eq!(need("alpha"), Need::Optional(0.1f32.into()));
    assert_eq!(need("columns"), Need::Optional((F16.round(f64::from(0.1f32)) as f32).into()));
    assert_eq!(need("scale"), Need::Optional(f32::INFINITY.into()));
    assert_eq!([need("level"), need("on")], [Need::Optional((-3).into()), Need::Optional(false.into())]);
}

/// What may be left out is looked at as closely as everything else where it is passed, and nothing else may be missing.
#[test]
fn what_is_passed_has_to_fit() {
    static FLOATS: [f32; 4] = [1.0; 4];
    static INTEGERS: [i32; 4] = [1; 4];
    let epilogue =
        Epilogue::build(|e| e.store("d", e.acc() * e.load("c", F32) + e.load_or("bias", F32.over(N), 0.0), F32)).unwrap();
    let faults = |args: HostArgs<'_>| {
        let mut d = [9.0f32; 4];
        let args = args.input("a", &FLOATS).output("d", &mut d);
        match run(POINTWISE, epilogue.checked(), Shape::new(2, 2, 0), args, Precision::F32) {
            Ok(()) => Vec::new(),
            Err(errors) => errors.0.into_iter().map(|error| (error.name, error.fault)).collect(),
        }
    };
    let with_c = || HostArgs::new().input("c", &FLOATS);
    assert_eq!(faults(with_c()), []);
    assert_eq!(faults(with_c().input("bias", &FLOATS[..2])), []);
    assert!(matches!(&faults(HostArgs::new())[..], [(name, ArgumentFault::Missing { .. })] if name == "c"));
    for (args, fault) in [
        (with_c().input("bias", &INTEGERS[..2]), ArgumentFault::DType { needs: F32, got: I32 }),
        (with_c().input("bias", &FLOATS[..2]).input("bias", &FLOATS[..2]), ArgumentFault::Twice),
    ] {
        assert_eq!(faults(args), [("bias".to_owned(), fault)]);
    }
    assert!(
        matches!(&faults(with_c().input("bias", &FLOATS[..1]))[..], [(name, ArgumentFault::TooShort { .. })] if name == "bias")
    );
    assert!(matches!(&faults(with_c().scalar("bias", 0.0f32))[..], [(name, ArgumentFault::Kind { .. })] if name == "bias"));
    assert!(
        matches!(&faults(with_c().input("bais", &FLOATS[..2]))[..], [(name, ArgumentFault::Unknown { .. })] if name == "bais")
    );
}

/// Nobody looks at what nothing uses: neither whether it is there, nor what it is.
#[test]
fn what_is_unused_may_be_anything() {
    static FLOATS: [f32; 4] = [1.0; 4];
    static INTEGERS: [i32; 3] = [1; 3];
    let (epilogue, _) = Epilogue::build_lenient(|e| {
        let _unused = (e.load("c", F32), e.scalar("alpha", F32));
        e.store("d", e.acc() + 1.0, F32);
    })
    .unwrap();
    let attempt = |args: HostArgs<'_>| {
        let mut d = [9.0f32; 4];
        let args = args.input("a", &FLOATS).output("d", &mut d);
        run(POINTWISE, epilogue.checked(), Shape::new(2, 2, 0), args, Precision::F32).map(|()| d)
    };
    for args in [
        HostArgs::new(),
        HostArgs::new().input("c", &FLOATS),
        HostArgs::new().input("c", &INTEGERS).scalar("alpha", true),
        HostArgs::new().scalar("c", 1),
    ] {
        assert_eq!(attempt(args), Ok([2.0; 4]));
    }
    assert!(attempt(HostArgs::new().input("c", &FLOATS).input("c", &FLOATS)).is_err(), "given twice");
    assert!(attempt(HostArgs::new().input("e", &FLOATS)).is_err(), "unknown");
}

/// The gradient of what was left out is the one of memory full of the default.
#[test]
fn gradients_of_what_is_left_out() {
    let epilogue = Epilogue::build(|e| {
        let z = e.acc() * e.load_or("gain", F32.over(N), 0.5) + e.load_or("bias", F32.over(N), -1.0);
        e.store("d", z.tanh(), F32);
    });
    let pair = epilogue.unwrap().backward(Wrt::all().exact()).unwrap();
    let names = |epilogue: &Epilogue| epilogue.arguments().iter().map(|a| (a.name.to_string(), a.need)).collect::<Vec<_>>();
    let arguments = names(pair.backward());
    assert!(arguments.contains(&("gain".into(), Need::Optional(0.5f32.into()))), "{arguments:?}");
    assert!(
        arguments.contains(&("grad_gain".into(), Need::Required)) && arguments.contains(&("grad_bias".into(), Need::Required))
    );
    for epilogue in [pair.forward(), pair.backward()] {
        assert_eq!(outputs(POINTWISE, epilogue, |_| true, false), outputs(POINTWISE, epilogue, |_| true, true));
    }
}
