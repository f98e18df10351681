//! Composable GEMM epilogues: a graph written in Rust becomes one fused CUDA kernel, compiled at run time.
//!
//! An *epilogue* is the computation between the accumulators of a matrix product and memory: a bias, an activation, a
//! residual, a mask. Here it is a graph that ordinary Rust builds. The library checks the graph, evaluates it on the
//! CPU, and renders it into the kernel that computes the product. Other libraries offer a list of epilogues. Here row,
//! column and batch entry are values like any other, so a different function can hold in each *region* of the output.
//!
//! ```
//! use postlude::prelude::*;
//!
//! let epilogue = Epilogue::build(|e| {
//!     let z = e.acc() + e.load("bias", F32.over(N));
//!     let first_rows = e.row().lt(e.scalar("boundary", I32));
//!     e.store("d", z.region(first_rows, |z| z.sigmoid()).otherwise(|z| z.tanh()), F32);
//! })?;
//! let (a, b, bias) = ([1.0f32, 0.0, 0.0, 1.0], [1.0f32, 2.0, 3.0, 4.0], [0.0f32, 0.0]);
//! let mut d = [0.0f32; 4];
//! let args = HostArgs::new().input("a", &a).input("b", &b).input("bias", &bias).scalar("boundary", 1).output("d", &mut d);
//! let ran_on = Gemm::new(F32, TT, &epilogue).run(Shape::new(2, 2, 2), args)?;
//! println!("{ran_on}"); // GPU: ..., or CPU: and why
//! assert!((d[0] - 0.7311).abs() < 1e-4 && (d[3] - 0.9993).abs() < 1e-4); // sigmoid(1), tanh(4)
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | to | use |
//! | --- | --- |
//! | build a graph | [`Epilogue::build`], [`Builder`], [`Expr`]; ready-made ones are [recipes](build::recipes), and [cuBLASLt's and Paddle's](compat) |
//! | compute once, anywhere | [`Gemm::run`]; on the CPU only, [`Gemm::reference`] |
#![cfg_attr(
    feature = "cuda",
    doc = "| compute again and again on a GPU | [`Gemm::plan`], [`Plan::execute`]; faster tiles: [`Plan::autotune`] |"
)]
#![cfg_attr(not(feature = "cuda"), doc = "| compute again and again on a GPU | `Gemm::plan`, `Plan::execute` (feature `cuda`) |")]
//! | differentiate | [`Epilogue::backward`], [`grad`] |
//! | train a linear layer, or a chain of them | [`Linear`](layer::Linear), [`layer`] |
//! | see what would run, without a GPU | [`Gemm::kernel_plan`], [`KernelPlan::explain`](plan::KernelPlan::explain), [`KernelPlan::source`](plan::KernelPlan::source) |
#![cfg_attr(
    feature = "jit",
    doc = "| compile without a GPU, fill a cache | [`Gemm::compile`], [`gemm::precompile`], [`jit::Cache`] |"
)]
#![cfg_attr(
    not(feature = "jit"),
    doc = "| compile without a GPU, fill a cache | `Gemm::compile`, `gemm::precompile` (feature `jit`) |"
)]
//! | print, draw, store, read back | `Display`, [`Epilogue::to_dot`], [`Epilogue::to_json`], [`Epilogue::from_text`] |
//!
//! # The language
//!
//! ## Values
//!
//! A graph has nodes, each a value for every element of the output, and sinks that write values to memory. Nodes have
//! no effects: when, how often or whether a node is evaluated cannot be observed. Equal nodes are one node. A node sees
//! only its own element, except through a reduction. A gated unit has two products, so one of them is loaded.
//!
//! A value has a type: `f32`, `f64`, `i32` or `bool`. Floating-point operands of 16 bits are widened to `f32` when they
//! are loaded. Types do not mix without a [`cast`](Expr::cast). A Rust number becomes a constant: `2` is an `i32`, and
//! `2.0` an `f32`, or an `f64` [beside an `f64` value](build::IntoExpr).
//!
//! | value | built by | type |
//! | --- | --- | --- |
//! | the accumulator | [`acc`](Builder::acc); [`acc_f64`](Builder::acc_f64) for `F64` operands, [`acc_i32`](Builder::acc_i32) for integers | `f32[M,N,L]`, `f64[M,N,L]`, `i32[M,N,L]` |
//! | an element in memory | [`load`](Builder::load) | of its format, along its operand's axes |
//! | an element of a table | [`gather`](Builder::gather) | of its format, along its index's axes |
//! | a scalar of the launch | [`scalar`](Builder::scalar) | of its format, along no axis |
//! | either, if a launch may leave it out | [`load_or`](Builder::load_or), [`scalar_or`](Builder::scalar_or) | as above; its default if it is left out |
//! | a coordinate | [`row`](Builder::row), [`column`](Builder::column), [`batch`](Builder::batch) | `i32[M]`, `i32[N]`, `i32[L]` |
//! | a constant | a Rust number, or [`constant`](Builder::constant) | of its Rust type, along no axis |
//! | a primitive | operators and methods of [`Expr`]; the table is [`Op`] | by the row's [signature](ir::op::Signature) |
//! | an activation | methods of [`Expr`]; the table is [`build::activation::ALL`] | `f32`; `f64` of `f64` values; `i32` of `i32` values if it is defined on whole numbers (`relu`, `clamp`) |
//! | a custom primitive | [`CustomOp`] and [`custom`](Builder::custom) | `f32` |
//!
//! ## Axes
//!
//! The output has rows (M), columns (N) and batch entries (L). A value varies along a subset of these axes. This is the
//! whole shape system: operands of different axes join by union, which is broadcasting. A vector is named by the axis
//! it runs *over*: a bias over N has one element a column.
//!
//! ```
//! # use postlude::prelude::*;
//! let epilogue = Epilogue::build(|e| {
//!     let per_row = e.load("scale", F32.over(M)); //            one a row
//!     let per_column = e.load("bias", F16.over(N)); //          one a column
//!     let matrix = e.load("residual", BF16); //                 one an element, a matrix for each batch entry
//!     let shared = e.load("mask", Bool.over(M | N)); //         one an element, the same for every batch entry
//!     let one = e.load("gain", F32.pointer()); //               one number, behind a device pointer
//!     let y = (e.acc() * per_row + per_column) * one + matrix;
//!     e.store("d", shared.select(y, 0.0), F16);
//! })?;
//! assert!(epilogue.to_string().contains(r#"bool[M,N] = load "mask" bool[M,N]"#));
//! # Ok::<(), postlude::Diagnostics>(())
//! ```
//!
//! A matrix is row-major unless it is [`column_major`](Operand::column_major). [`batched`](Operand::batched) adds the
//! batch axis, and [`shared`](Operand::shared) removes it. Leading dimensions and batch strides belong to the launch,
//! not to the graph.
//!
//! ## Tables
//!
//! [`gather`](Builder::gather) reads a table at an `i32` index that the graph computes or loads. The table has one
//! dimension, and the launch's argument gives its length. An index that is negative or not below the length reads 0, so
//! a kernel never reads outside the table. The result varies along the index's axes, and is computed as often.
//!
//! ```
//! # use postlude::prelude::*;
//! # let _ = Epilogue::build(|e| {
//! let slope = e.gather("slope", F32, e.load("expert", I32.over(M))); //   one a row: the parameter of the row's expert
//! let head = e.gather("alibi", F32, e.batch()); //                        one a batch entry
//! let bias = e.gather("distance", F16, (e.column() - e.row()).abs()); //  one an element
//! # e.store("d", e.acc().prelu(slope) + head * bias, F16);
//! # })?;
//! # Ok::<(), postlude::Diagnostics>(())
//! ```
//!
//! A derivative treats a table as a constant. The gradient of a table would need a scatter, so it is rejected.
//!
//! ## Phases
//!
//! The axes also determine how often a value is computed: along no axis or L, once a tile; along M, once a row; along
//! N, once for a thread's strip of columns; along both, in the visit of every element. You never hoist by hand: `exp`
//! of a scale over M costs one `exp` a row.
//!
//! ## Coordinates
//!
//! Row, column and batch entry are `i32` coordinates of the output, counted from the [origin](Args::origin) of the
//! launch. So a shard or a slice computes with the coordinates of the whole. Integer arithmetic wraps. Division
//! truncates towards zero, and by zero gives zero. Bits have Rust's operators `&`, `|`, `^`, `!`, `<<` and `>>`; the
//! first four also take conditions. A shift by an amount outside 0 to 31 shifts out every bit.
//!
//! ```
//! # use postlude::prelude::*;
//! # let _ = Epilogue::build(|e| {
//! let causal = e.column().le(e.row());
//! let head = e.column() / e.scalar("head_width", I32);
//! let checkerboard = ((e.row() + e.column()) % 2).eq(0);
//! # e.store("d", (causal & checkerboard & head.eq(0)).select(e.acc(), 0.0), F16);
//! # })?;
//! # Ok::<(), postlude::Diagnostics>(())
//! ```
//!
//! ## Regions
//!
//! [`select`](Expr::select) picks one of two values. [`region`](Expr::region) and
//! [`otherwise`](build::Regions::otherwise) pick one of several functions of a value: the first condition that holds
//! counts. The arm that is not picked never reaches the result, not even as a NaN.
//!
//! If a condition consists of coordinates, scalars and data of the row, and its arms are expensive, the kernel
//! branches. Where the condition is uniform over the strip of columns that a thread visits, one arm runs. A condition
//! over rows alone is always uniform. The bounds may be scalars of the launch, so moving a boundary compiles nothing.
//!
//! Data may choose as well: a condition on a value that is loaded or gathered for each row branches like a condition on
//! rows.
//!
//! ```
//! # use postlude::prelude::*;
//! let epilogue = Epilogue::build(|e| {
//!     let gated = e.load("kind", I32.over(M)).eq(1);
//!     let smooth = e.gather("smooth", Bool, e.load("expert", I32.over(M)));
//!     let d = e.acc().region(gated, |z| z.sigmoid()).region(smooth, |z| z.gelu()).otherwise(|z| z.tanh());
//!     e.store("d", d, F16);
//! })?;
//! # #[cfg(feature = "jit")] {
//! let (target, shape) = (postlude::target::Target::SM_90A, Shape::new(4096, 4096, 1024));
//! let plan = postlude::Gemm::new(F16, TN, &epilogue).kernel_plan(target, 132, shape).unwrap();
//! assert!(plan.explain().contains("2 branch(es)"));
//! # }
//! # Ok::<(), postlude::Diagnostics>(())
//! ```
//!
//! ## Rounding
//!
//! - The product accumulates in `f32` (in `f64` for `f64` operands, in wrapping `i32` for integers). Its order is
//!   not specified, but one plan on one device always uses the same.
//! - Every primitive of the epilogue is computed in `f32`. The reference rounds the exact result once. A kernel is
//!   within the units in the last place of the primitive's [row](ir::op::Row). `f64` values are computed in `f64`, with
//!   the CPU's library, and the row states a bound for `f64`. The compiler may fuse a product with the sum or
//!   difference that uses it (one fused multiply-add), and with nothing else. So `x * y - z * w` need not be 0 where
//!   both products round to the same number.
//! - A store rounds once, to nearest even. A value beyond a format's range becomes infinite. Formats of eight bits saturate
//!   instead.
//! - Rounding in between is explicit: [`cast`](Expr::cast) to `F16`, `BF16`, `E4M3` or `E5M2` rounds a value to that
//!   precision and gives an `f32`. [`quantize`](Expr::quantize) and [`dequantize`](Expr::dequantize) apply scales and zero
//!   points as well.
//! - If every stored matrix is 16 bit or narrower, kernels use the hardware's approximations of `f32` primitives, each
//!   within the bound of its row. Reductions beside such stores do the same. [`Gemm::math`] overrides this.
//!
//! ## NaN
//!
//! `min`, `max` and with them `relu` and `clamp` give NaN if an operand is NaN, as in PyTorch. Comparisons with NaN are
//! false, `ne` is true. A cast of NaN to `i32` gives 0, and to `bool` true. [`min_num`](Expr::min_num) and
//! [`max_num`](Expr::max_num) take the operand that is a number. [`is_nan`](Expr::is_nan) tests for NaN.
//!
//! ## Sinks
//!
//! [`store`](Builder::store) writes a value as a matrix in a format of its own. An epilogue may have several stores. A
//! store under the name of a loaded matrix updates it in place: each element is read before it is written. An output
//! under a name of its own has memory of its own, which borrows ensure, since kernels may compute elements at the edge
//! twice.
//!
//! ```
//! # use postlude::prelude::*;
//! let epilogue = Epilogue::build(|e| {
//!     let z = e.acc() + e.load("c", F16) * 0.5;
//!     e.store("c", z, F16); //                                in place
//!     e.store("active", z.gt(0.0), Bool); //                  a mask for the backward pass
//!     e.store("transposed", z.relu(), BF16.column_major()); // and a copy that lies the other way
//! })?;
//! let names: Vec<&str> = epilogue.arguments().iter().map(|a| &*a.name).collect();
//! assert_eq!(names, ["c", "active", "transposed"]);
//! # Ok::<(), postlude::Diagnostics>(())
//! ```
//!
//! A condition may be stored with one bit an element: as [`Bits8`](DType::Bits8), whose rows begin with a byte, or as
//! [`Bits128`](DType::Bits128), cuBLASLt's layout. Both are loaded like any other condition.
//!
//! [`reduce`](Builder::reduce) combines elements with a [monoid](ir::Monoid): sum, mean, maximum, norm, the index of
//! the largest, and others, or [one of your own](CustomMonoid::build). The operand describes the result, and the
//! reduction covers every axis that the result does not vary along. The bits are the same each time, unless the monoid
//! is [`atomic`](ir::Monoid::atomic). A reduction overwrites its memory, unless it is to
//! [`accumulate`](ir::Monoid::accumulate): then the present value takes part as one more element.
//!
//! ```
//! # use postlude::prelude::*;
//! let epilogue = Epilogue::build(|e| {
//!     let dz = e.load("active", Bits8).select(e.acc(), 0.0);
//!     e.store("dz", dz, F16);
//!     e.reduce("dbias", dz, Monoid::Sum, F32.over(N)); //              over M, and over the batch
//!     e.reduce("entry", dz, Monoid::Sum, F32.over(N).batched()); //    over M, for each batch entry
//!     e.reduce("amax", dz, Monoid::AbsMax.atomic(), F32.pointer()); // over everything
//!     e.reduce("best", dz, Monoid::ArgMax, I32.over(M)); //            over N: the column of each row's largest
//!     e.reduce("sum_of_b", e.b(), Monoid::Sum, F32.over(N)); //        an operand of the product, over its own axis K
//! })?;
//! # Ok::<(), postlude::Diagnostics>(())
//! ```
//!
//! ## Functions of your own
//!
//! A Rust function over [`Expr`] works exactly like an activation of the library. A [`CustomOp`] has a CUDA expression,
//! a value on the CPU and a derivative. Documents contain its name and a fingerprint, never its text. Your own monoid,
//! such as a variance, is made of expressions: [`CustomMonoid::build`].
//!
//! ```
//! # use postlude::prelude::*;
//! fn softcap(x: Expr<'_>, cap: f32) -> Expr<'_> {
//!     (x / cap).tanh() * cap
//! }
//! let epilogue = Epilogue::build(|e| e.store("d", softcap(e.acc(), 30.0), F16))?;
//! # Ok::<(), postlude::Diagnostics>(())
//! ```
//!
//! # Training
//!
//! [`Epilogue::backward`] gives a pair of epilogues: the same one, which also saves the values its derivative needs,
//! and one that computes the gradients of the accumulator and of every argument. It saves as little as possible: a bit
//! an element for ReLU, one number for a sigmoid (none if its output is kept), nothing for values that follow from
//! coordinates and arguments. See [`grad`].
//!
//! ```
//! # use postlude::prelude::*;
//! use postlude::grad::Wrt;
//! let epilogue = postlude::build::recipes::bias_activation(F16, F16, |z| z.relu())?;
//! let pair = epilogue.backward(Wrt::all())?;
//! assert_eq!(pair.reserve().bytes(Shape::new(4096, 4096, 1)), 4096 * 4096 / 8);
//! let gradients: Vec<&str> = pair.backward().graph().sinks().iter().map(|s| &*s.name).collect();
//! assert_eq!(gradients, ["grad_acc", "grad_bias"]);
//! # Ok::<(), postlude::Error>(())
//! ```
//!
//! [`Linear`](layer::Linear) has every product of a linear layer's training step, each planned once: forward, both
//! gradients, the bias gradient inside one of them, the derivative of a layer behind the product of the next, and
//! gradients that accumulate. `examples/train_mlp` trains a network with nothing else. See [`layer`].
//!
//! # Looking for
//!
//! | | |
//! | --- | --- |
//! | softmax | [`softmax_over`](Expr::softmax_over), [`recipes::softmax`](build::recipes::softmax): over a matrix one kernel, behind a product one where a tile has whole rows, otherwise two |
//! | layer norm, RMS norm | [`recipes::layer_norm`](build::recipes::layer_norm), [`recipes::rms_norm`](build::recipes::rms_norm), or what you make of [`mean_over`](Expr::mean_over) |
//! | group norm, instance norm | [`recipes::group_norm`](build::recipes::group_norm), or `mean_over((M \| N).bands(8))` |
//! | cross-entropy | [`recipes::cross_entropy`](build::recipes::cross_entropy), with its gradient |
//! | argmax, argmin | [`Monoid::ArgMax`], [`Monoid::ArgMin`] |
//! | top-k | [`top_k_over`](Expr::top_k_over); [`recipes::top_k`](build::recipes::top_k), [`recipes::top_k_softmax`](build::recipes::top_k_softmax) |
//! | SwiGLU, GEGLU | two launches: a product stores the gate, the other loads it; both products in one kernel not yet |
//! | dropout | a [loaded](Builder::load) mask of one bit an element; random numbers in a kernel not yet |
//! | int8, fp8 | operands and outputs of `I8`, `U8`, `E4M3`, `E5M2` ([`Gemm::mixed`], [`w8a8`](build::recipes::w8a8), [`quantize`](Expr::quantize)) |
//! | `scaled_mm` | the recipe [`scaled_mm`](build::recipes::scaled_mm); scales of blocks along K: [`Gemm::block_scaled`] |
//! | convolution | [`Conv`]: images and filters as a product of pixels and channels, behind any epilogue, and its gradients ([`Conv::data_gradient`], [`Conv::filter_gradient`], [`layer::Conv2d`]); pooling: not yet |
//! | batch norm | [`batch_norm`](Expr::batch_norm), [`recipes::conv_bn_relu`](build::recipes::conv_bn_relu), or [folded](build::BatchNorm::fold) into the filters; in training [`BatchNormTraining`](build::BatchNormTraining) |
//! | attention in one kernel | [`Gemm::attention`], causal or not; masks, biases and caps as functions of scores: [`Scores`] |
//! | the names of cuBLASLt, CUTLASS, nvmath-python, PaddlePaddle and PyTorch | [`compat`], and the page `docs/coming_from.md` of the repository: a line for each name |
//!
//! # Errors
//!
//! Building a graph never fails. [`Epilogue::build`] returns every error at once as [`Diagnostics`]. Each has a code,
//! its line of the listing with the culprit underlined, the Rust line that built it, and a cure. The [rules](check) are
//! a table.
//!
//! ```
//! # use postlude::prelude::*;
//! let faults = Epilogue::build(|e| e.store("d", e.acc() + e.row(), F16)).unwrap_err();
//! let first = faults.iter().next().unwrap();
//! assert_eq!(first.code(), "E0201");
//! assert!(first.to_string().contains("%2 = add %0, %1"));
//! ```
//!
//! A graph that passes the check evaluates and renders without a panic. Every later stage has an error type that states
//! what it needs and what it found. [`Error`] joins the errors between an epilogue and its results.
//!
//! # Arguments
//!
//! A launch passes the product's operands as `a` and `b`, and every argument that the epilogue names. All arguments are
//! checked, every fault is reported, and with any fault nothing runs. The list borrows its arguments, outputs mutably.
//!
//! ```
//! # use postlude::prelude::*;
//! let epilogue = Epilogue::build(|e| e.store("d", e.acc() * e.scalar("alpha", F32), F32))?;
//! let (a, b, mut d) = ([1.0f32; 4], [1.0f32; 3], [0.0f32; 4]);
//! let args = HostArgs::new().input("a", &a).input("b", &b).scalar("beta", 1.0).output("d", &mut d);
//! let error = Gemm::new(F32, TT, &epilogue).reference(Shape::new(2, 2, 2), args).unwrap_err();
//! let lines: Vec<String> = error.to_string().lines().map(String::from).collect();
//! assert!(lines[0].starts_with("argument `b`: too short") && lines[1].starts_with("argument `alpha`: missing"));
//! assert_eq!(lines[2], "argument `beta`: the epilogue has no such argument; it has a, b, alpha, d");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The CPU reference
//!
//! [`Gemm::reference`] computes the meaning of a kernel: kernels are tested against this definition. It runs anywhere,
//! takes the same arguments, and has an `f64` [oracle](reference::oracle) for tests. See [`reference`](mod@reference).
//!
//! # Planning
//!
//! [`Gemm::kernel_plan`] chooses mainloop and tile for a [`Target`](target::Target), a number of multiprocessors and a
//! [`Problem`](plan::Problem). The result is plain data and can explain itself. Planning needs no GPU.
//!
//! ```
//! # use postlude::prelude::*;
//! use postlude::target::Target;
//! let epilogue = postlude::build::recipes::bias_activation(F16, F16, |z| z.gelu())?;
//! let plan = Gemm::new(F16, TN, &epilogue).kernel_plan(Target::SM_90A, 132, Shape::new(4096, 4096, 4096))?;
//! assert!(plan.explain().contains("shared memory"));
//! assert!(plan.source()?.text().contains("epilogue_visit"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A kernel serves a class of problems: format, layout and alignment of the operands, and a tile. Extents, strides,
//! addresses and scalars belong to the launch. `Gemm::plan` compiles the kernel or takes it from the cache, and loads
//! it. `Plan::execute` checks the arguments and launches.
//!
//! The choice of the tile is an estimate. `Plan::autotune` measures the tiles that fit on the program's own arguments,
//! takes the fastest, and stores the answer beside the cached kernels for later plans of the same kind.
//! `NetworkPlan::autotune` does so for all kernels of a network.
//!
//! # The cache
//!
//! A kernel is compiled once. After that it is in memory, or one verified file away, for every process of the user.
//! `POSTLUDE_CACHE=deny` runs only compiled kernels. `gemm::precompile`, `jit::Cache::export` and `import`, or the
//! command `postlude-cache`, fill a cache. Filling a cache needs no GPU, and using it needs no NVRTC. See `jit`.
//!
//! # Features
//!
//! `cuda` (default): devices and launches. `jit`: compiling with NVRTC. `dlpack`: tensors of other libraries. Without
//! them: graphs, the check, the CPU reference, plans and their source. No feature needs CUDA to build. Driver and NVRTC
//! are looked up when they are first used.

pub mod args;
pub mod build;
pub mod calibrate;
pub mod check;
pub mod compat;
#[cfg(feature = "cuda")]
pub mod device;
#[cfg(feature = "dlpack")]
pub mod dlpack;
pub mod dtype;
pub mod emit;
pub mod error;
pub mod gemm;
pub mod grad;
pub mod ir;
#[cfg(feature = "jit")]
pub mod jit;
pub mod layer;
pub mod network;
mod parallel;
pub mod pass;
pub mod plan;
pub mod problem;
pub mod reference;
pub mod source;
pub mod target;
#[cfg(feature = "cuda")]
pub mod tune;
pub mod weights;

pub use args::{Args, HostArgs, IntoTensor, Tensor};
pub use build::{Builder, Epilogue, Expr};
pub use check::{Diagnostic, Diagnostics};
#[cfg(feature = "cuda")]
pub use cudarc;
#[cfg(feature = "cuda")]
pub use device::{Device, DeviceArgs};
pub use dtype::{DType, Element};
pub use error::Error;
/// The crate of host numbers of eight bits, [`float8::F8E4M3`] and [`float8::F8E5M2`].
pub use float8;
#[cfg(feature = "cuda")]
pub use gemm::Plan;
pub use gemm::{Conv, Gemm, RanOn};
pub use half;
pub use ir::{CustomMonoid, CustomOp, Monoid, Op, Operand, Registry, Side};
pub use problem::{Attention, Blocks, ConvShape, Convolution, GradientOf, Layout, Operation, PoolKind, Pooling, Scores, Shape};
pub use reference::Precision;

/// The names that most programs need, in one line: `use postlude::prelude::*;`.
pub mod prelude {
    pub use crate::args::{Args, HostArgs, IntoTensor, Tensor};
    pub use crate::build::{Builder, Epilogue, Expr};
    #[cfg(feature = "cuda")]
    pub use crate::device::{Device, DeviceArgs};
    pub use crate::dtype::DType::{self, BF16, Bits8, Bits128, Bool, E4M3, E5M2, F16, F32, F64, I4, I8, I32, U4, U8};
    #[cfg(feature = "cuda")]
    pub use crate::gemm::Plan;
    pub use crate::gemm::{Conv, Gemm, RanOn};
    pub use crate::grad::Wrt;
    pub use crate::ir::axes::{L, M, N, S};
    pub use crate::ir::{CustomOp, Monoid, Operand, Order, Over, Registry, Side};
    pub use crate::problem::{
        ConvShape,
        Layout::{self, NN, NT, TN, TT},
        Shape,
    };
}

/// The README's programs, compiled.
#[cfg(all(doctest, feature = "cuda"))]
#[doc = include_str!("../README.md")]
struct Readme;

/// The programs of the page for users of other libraries. `tests/coming_from.rs` compiles the lines of its tables.
#[cfg(doctest)]
#[doc = include_str!("../docs/coming_from.md")]
struct ComingFrom;
