//! What an arm that was not picked would have come to never reaches a gradient.

use crate::edges::{self, Arm};
use postlude::grad::Wrt;
use postlude::prelude::*;
use postlude::reference::{Precision, run};
use postlude::{Builder, HostArgs, Operation};

/// The gradients of the accumulator and of `x`, at the given values of both, for incoming gradients of 1.
fn gradients(build: impl FnOnce(&Builder), a: &[f32], x: &[f32]) -> [Vec<f32>; 2] {
    let epilogue = Epilogue::build(build).unwrap_or_else(|e| panic!("{e}"));
    let pair = epilogue.backward(Wrt::all()).unwrap();
    let (shape, operation) = (Shape::new(1, a.len(), 0), Operation::Pointwise { dtype: F32, order: Default::default() });
    let mut reserve = pair.reserve().allocate(shape);
    let mut d = vec![0.0f32; a.len()];
    let args = HostArgs::new().input("a", a).output("d", &mut d).saving(&mut reserve);
    let args = if x.is_empty() { args } else { args.input("x", x) };
    run(operation, pair.forward().checked(), shape, args, Precision::F32).unwrap();
    let ones = vec![1.0f32; a.len()];
    let mut found = [vec![7.0f32; a.len()], vec![7.0f32; x.len()]];
    let [acc, gx] = &mut found;
    let mut args = HostArgs::new().input("a", &ones).output("grad_acc", acc).saved(&reserve);
    if !x.is_empty() {
        args = args.output("grad_x", gx);
        if pair.backward().arguments().iter().any(|a| &*a.name == "x") {
            args = args.input("x", x);
        }
    }
    run(operation, pair.backward().checked(), shape, args, Precision::F32).unwrap();
    found
}

#[test]
fn reach_no_gradient() {
    for Arm { name, build, a, x, acc, of_x } in edges::ALL {
        let [found_acc, found_x] = gradients(build, a, x);
        assert!(edges::agree(&found_acc, acc), "{name}: {found_acc:?}, not {acc:?}");
        assert!(edges::agree(&found_x, of_x), "{name}: {found_x:?} of `x`, not {of_x:?}");
    }
}
