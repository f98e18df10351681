//! A layer's refusals, and their words.

use postlude::grad::Wrt;
use postlude::layer::{Linear, LinearError};
use postlude::prelude::*;

fn layer(extents: [usize; 2]) -> Linear {
    Linear::new(F32, extents, |_, z| z.relu()).unwrap()
}

#[test]
fn layers_that_do_not_fit_behind_each_other() {
    let next = layer([5, 2]);
    let refused = |previous: &Linear| next.dgrad_into(previous, 3).unwrap_err().to_string();
    assert_eq!(
        refused(&layer([3, 4])),
        "the layer before makes 4 columns, and this one takes 5: chain layers whose extents agree"
    );
    assert_eq!(
        refused(&layer([3, 5]).batched(2)),
        "the layer before makes 2 batch entries, and this one takes 1: chain layers whose extents agree"
    );
    let half = Linear::new(F16, [3, 5], |_, z| z.relu()).unwrap();
    assert_eq!(
        refused(&half),
        "`y` of the layer before is f16, but is multiplied with a matrix of f32: store it in the format of this \
         layer's X and W, or convert it and use `dgrad`"
    );
    let transposed = next.clone().trans_x(true);
    assert_eq!(
        transposed.dgrad_into(&layer([3, 5]), 3).unwrap_err().to_string(),
        "the layer before stores its output row_major, and this one reads X column_major: use `trans_x(false)`"
    );
    let epilogue = Epilogue::build(|e| e.store("y", e.acc().relu(), F32.column_major())).unwrap();
    let columns = Linear::with_epilogue(F32, [3, 5], &epilogue, Wrt::all()).unwrap();
    assert!(refused(&columns).ends_with("use `trans_x(true)`"));
    assert!(transposed.dgrad_into(&columns, 3).is_ok());
}

#[test]
fn formats_that_no_layer_has() {
    for dtype in [I32, Bool] {
        let epilogue = Epilogue::build(|e| e.store("y", e.acc().relu(), F32)).unwrap();
        for layer in [Linear::new(dtype, [2, 3], |_, z| z), Linear::with_epilogue(dtype, [2, 3], &epilogue, Wrt::all())] {
            let error = layer.unwrap_err().to_string();
            assert!(error.ends_with(&format!("a layer multiplies matrices of f32, f16 or bf16, not of {dtype}")), "{error}");
        }
    }
}

#[test]
fn epilogues_that_make_no_layer() {
    let error = Linear::new(F32, [1, 1], |e, z| z + e.load("w", F32)).unwrap_err();
    assert_eq!(error.to_string(), "the epilogue has an argument `w`, which is the name of one of the layer's tensors: rename it");
    for name in ["x", "w", "dy", "dz"] {
        let named = Epilogue::build(|e| e.store("y", e.acc() + e.load(name, F32), F32)).unwrap();
        let error = Linear::with_epilogue(F32, [1, 1], &named, Wrt::accumulator()).unwrap_err();
        assert!(matches!(error, LinearError::Name { name: taken } if taken == name), "{name}: {error}");
    }
    // Its gradient would be taken for that of the product.
    let named = Epilogue::build(|e| e.store("y", e.acc() * 2.0 + e.load("acc", F32) * 3.0, F32)).unwrap();
    let error = Linear::with_epilogue(F32, [1, 1], &named, Wrt::arguments(["acc"])).unwrap_err();
    assert!(matches!(error, LinearError::Name { name: "acc" }), "{error}");
    assert!(matches!(Linear::new(F32, [1, 1], |_, z| z.gt(0.0)), Err(LinearError::Check(_))));
    let epilogue = Epilogue::build(|e| e.store("y", e.acc() + e.load("bias", F32.over(N)), F32)).unwrap();
    let error = Linear::with_epilogue(F32, [1, 1], &epilogue, Wrt::arguments(["bias"])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a layer's gradients follow from that of its product: use `Wrt::all()` or `Wrt::accumulator()`"
    );
    let error = Linear::with_epilogue(F16, [1, 1], &epilogue, Wrt::all()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the gradient of the product is f32, but is multiplied with a matrix of f16: say `.format(\"acc\", ..)` to `Wrt`"
    );
    assert!(Linear::with_epilogue(F16, [1, 1], &epilogue, Wrt::all().format("acc", F16)).is_ok());
    for dtype in [I32, Bool] {
        let (layer, previous) = (Linear::new(F32, [1, 1], |_, z| z).unwrap().gradients(dtype), layer([1, 1]).gradients(dtype));
        let steps = [layer.wgrad(1), layer.wgrad_with_bias(1), layer.activation_grad(1), layer.dgrad_into(&previous, 1)];
        for error in steps.map(Result::unwrap_err) {
            let cure = "ask for one of these with `Linear::gradients`";
            assert_eq!(error.to_string(), format!("a layer's gradients are f32, f16 or bf16, not {dtype}: {cure}"));
        }
    }
}

#[test]
fn outputs_that_cannot_be_added_to() {
    let error = layer([2, 3]).wgrad(4).unwrap().accumulate(&["dx"]).unwrap_err();
    assert_eq!(error.to_string(), "the step writes no `dx`; it writes dw");
    let reserve = layer([2, 3]).pair().reserve().values()[0].name.clone();
    let error = layer([2, 3]).forward(4).accumulate(&[&reserve]).unwrap_err();
    let why = "it holds conditions, not numbers: leave it out";
    assert_eq!(error.to_string(), format!("the step cannot add to `{reserve}`: {why}"));
    // If Y is kept for the derivative, an addition would change it.
    let sigmoid = Epilogue::build(|e| e.store("y", (e.acc() + e.load("bias", F32.over(N))).sigmoid(), F32)).unwrap();
    let kept = Linear::with_epilogue(F32, [1, 1], &sigmoid, Wrt::all().keeps("y")).unwrap();
    let error = kept.forward(1).accumulate(&["y"]).unwrap_err().to_string();
    assert!(error.starts_with("the step cannot add to `y`: the derivative follows from it"), "{error}");
    assert!(kept.inference(1).accumulate(&["y"]).is_ok());
    let apart = Linear::with_epilogue(F32, [1, 1], &sigmoid, Wrt::all()).unwrap();
    assert!(apart.forward(1).accumulate(&["y"]).is_ok());
    let halved = Epilogue::build(|e| {
        e.store("y", e.acc() + e.load("y", F32) * 0.5, F32);
        e.reduce("sum", e.acc(), Monoid::Sum.accumulate(), F32.over(N));
        e.reduce("amax", e.acc(), Monoid::AbsMax, F32.pointer());
    });
    let wrt = Wrt::accumulator().detached("amax");
    let halved = Linear::with_epilogue(F32, [1, 1], &halved.unwrap(), wrt).unwrap().inference(1);
    assert_eq!(
        halved.clone().accumulate(&["y"]).unwrap_err().to_string(),
        "the step cannot add to `y`: the epilogue already updates it in place: add there, or store to another name"
    );
    assert!(layer([2, 3]).wgrad(4).unwrap().accumulate(&["dw"]).unwrap().accumulate(&["dw"]).is_err());
    // The present value is one more element of a reduction.
    let (x, mut y, mut sum, mut amax) = ([3.0f32], [0.0f32], [1.0f32], [4.0f32]);
    let args = HostArgs::new().input("x", &x).input("w", &[1.0f32]).output("y", &mut y);
    let args = args.output("sum", &mut sum).output("amax", &mut amax);
    halved.accumulate(&["sum", "amax"]).unwrap().reference(args).unwrap();
    assert_eq!((sum, amax), ([4.0], [4.0]));
    // Neither tensors of the step nor what its epilogue has.
    for name in ["dw", "x", "dz"] {
        let error = layer([2, 3]).wgrad(4).unwrap().plus(name, F32).unwrap_err();
        assert_eq!(error.to_string(), format!("the step has a tensor or an argument `{name}`: choose another name"));
    }
    for name in ["y", "bias"] {
        assert!(matches!(layer([2, 3]).forward(4).plus(name, F32), Err(LinearError::Taken { .. })));
    }
    let aside = Epilogue::build(|e| e.store("y", e.load("r", F32) * 2.0, F32)).unwrap();
    let step = Linear::with_epilogue(F32, [2, 3], &aside, Wrt::all()).unwrap().inference(4);
    let error = step.plus("p", F32).unwrap_err().to_string();
    assert_eq!(error, "the epilogue does not read its product, so nothing can be added to it: load `p` in the epilogue");
}

#[test]
fn arguments_that_do_not_fit_have_the_names_of_the_layer() {
    let layer = layer([2, 3]);
    let (x, w, bias, mut y) = ([0.0f32; 8], [0.0f32; 5], [0.0f32; 3], [0.0f32; 12]);
    let mut reserve = layer.reserve(4);
    let args = HostArgs::new().input("x", &x).input("w", &w).input("bias", &bias).output("y", &mut y).saving(&mut reserve);
    let error = layer.forward(4).reference(args).unwrap_err().to_string();
    assert_eq!(error, "argument `w`: too short: K x N, row-major with leading dimension 3 needs 6 elements, got 5");
    let args = HostArgs::new().input("x", &x).input("weight", &w).input("bias", &bias).output("y", &mut y);
    let error = layer.inference(4).reference(args).unwrap_err().to_string();
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines[0], "argument `w`: missing; it needs memory of f32, K x N, row-major");
    assert_eq!(lines[1], "argument `weight`: the epilogue has no such argument; it has x, w, bias, y");
    let transposed = layer.clone().trans_w(true);
    let args = HostArgs::new().input("x", &x).input("w", w.ld(1)).input("bias", &bias).output("y", &mut y);
    let error = transposed.inference(4).run(args).unwrap_err().to_string();
    assert_eq!(error, "argument `w`: K x N, column-major needs a leading dimension of at least 2, got 1");
}

#[test]
fn reserves_that_are_missing_or_not_their_own() {
    let (layer, other) = (layer([2, 3]), Linear::new(F32, [2, 3], |_, z| z.tanh()).unwrap());
    let (dy, mut dz, mut dbias) = ([0.0f32; 12], [0.0f32; 12], [0.0f32; 3]);
    let step = layer.activation_grad(4).unwrap();
    let mut refused = |reserve: Option<&postlude::grad::Reserve<Vec<u8>>>| {
        let args = HostArgs::new().input("dy", &dy).output("grad_acc", &mut dz).output("grad_bias", &mut dbias);
        let args = match reserve {
            Some(reserve) => args.saved(reserve),
            None => args,
        };
        step.reference(args).unwrap_err().to_string()
    };
    let name = layer.pair().reserve().values()[0].name.clone();
    assert_eq!(
        refused(None),
        format!(
            "argument `{name}`: missing; it needs memory of bits8, M x N, row-major, of the reserve: pass all of it \
             with `.saved(&reserve)`, a \
             `Reserve` of this `backward()` pair"
        )
    );
    let foreign = refused(Some(&other.reserve(4)));
    assert!(foreign.contains("pass the reserve of the same `backward()` pair"), "{foreign}");
    let small = refused(Some(&layer.reserve(3)));
    assert!(small.contains("of 3 x 3, and the problem is 4 x 3 x 0: allocate one for this problem"), "{small}");
    // A chain wants the reserve of the layer before.
    let (w, next) = ([0.0f32; 6], Linear::new(F32, [3, 2], |_, z| z).unwrap());
    let args = HostArgs::new().input("dz", &dy).input("w", &w).output("grad_acc", &mut dz).output("grad_bias", &mut dbias);
    let (reserve, step) = (other.reserve(4), next.dgrad_into(&layer, 4).unwrap());
    let foreign = step.reference(args.saved(&reserve)).unwrap_err().to_string();
    assert!(foreign.contains("pass the reserve of the same `backward()` pair"), "{foreign}");
}

#[test]
fn a_bias_gradient_that_is_no_sum_of_dz() {
    // Twice the bias, no bias, and a bias whose gradient was not requested.
    let twice = Epilogue::build(|e| e.store("y", e.acc() + e.load("bias", F32.over(N)) * 2.0, F32)).unwrap();
    let none = Epilogue::build(|e| e.store("y", e.acc(), F32)).unwrap();
    let plain = Epilogue::build(|e| e.store("y", e.acc() + e.load("bias", F32.over(N)), F32)).unwrap();
    for (epilogue, wrt) in [(twice, Wrt::all()), (none, Wrt::all()), (plain, Wrt::accumulator())] {
        let layer = Linear::with_epilogue(F32, [2, 3], &epilogue, wrt).unwrap();
        let error = layer.wgrad_with_bias(4).unwrap_err();
        assert!(matches!(error, LinearError::NoBias) && error.to_string().contains("add a bias over N"), "{error}");
    }
}

/// What a step was asked to prefer stays where its epilogue changes.
#[test]
fn preferences_outlive_another_epilogue() {
    let step = || layer([64, 64]).forward(64).with(|gemm| gemm.split_k(3));
    let refused = |step: Result<postlude::layer::Step, LinearError>| {
        let step = step.unwrap();
        step.gemm().kernel_plan(postlude::target::Target::SM_80, 108, step.shape()).unwrap_err().to_string()
    };
    let of_step = refused(Ok(step()));
    assert!(of_step.contains("equal multiples"), "{of_step}");
    assert_eq!(refused(step().plus("skip", F32)), of_step);
    let gradient = layer([64, 64]).wgrad(64).unwrap().with(|gemm| gemm.split_k(3));
    assert_eq!(refused(gradient.accumulate(&["dw"])), of_step);
}
