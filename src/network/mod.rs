//! Operator graphs: a network of tensors and operators, checked, run on the CPU, and fused into kernels.
//!
//! ```
//! use postlude::network::{Network, Tensor};
//! use postlude::prelude::*;
//!
//! let network = Network::build(|g| {
//!     let x = g.input("x", F32, ("batch", 3));
//!     let w = g.constant("w", Tensor::of(&[1.0f32, 0.0, 0.0, 1.0, 1.0, 1.0], &[3, 2]).unwrap());
//!     let b = g.constant("b", Tensor::of(&[-1.0f32, 0.5], &[2]).unwrap());
//!     g.output("y", (x.matmul(w) + b).relu());
//! })?;
//! println!("{network}");
//! let x = Tensor::of(&[1.0f32, -2.0, 0.5], &[1, 3])?;
//! let outputs = network.run(&[("x", x)])?;
//! assert_eq!(outputs[0].1.numbers(), [0.5, 0.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`Network`] is a checked [`Graph`]: nodes apply [operators](Operator) to edges, which are tensors. Any number of
//! nodes may read an edge, and two edges may join the same two nodes. Operators have ONNX's names, and the meaning of
//! ONNX at opset 17 and later. A pointwise operator is one expression of the epilogue language, from which its typing,
//! its meaning on the CPU and its fusion follow. Others have a meaning of their own.
//!
//! A program's own operator is such an expression, or two closures over tensors ([`CustomOperator`]).
//!
//! # Training
//!
//! [`Network::backward`] gives the network that computes a loss and its gradients with respect to named inputs. It is a network
//! like any other: it fuses, and runs where the others do.
//!
//! # Quantised numbers
//!
//! A product of what `DequantizeLinear` gives is fused as a product of the numbers of eight bits. Scales, bias, activation and
//! the `QuantizeLinear` behind it become its epilogue:
//!
//! ```
//! use postlude::network::{Attributes, Network, Tensor};
//! use postlude::prelude::*;
//!
//! let network = Network::build(|g| {
//!     let none = Attributes::new;
//!     let scale = g.number(F32, 0.05);
//!     let x = g.input("x", I8, (4, 3)).apply("DequantizeLinear", &[scale], none());
//!     let w = g.constant("w", Tensor::of(&[1i8, -2, 3, -4, 5, -6], &[3, 2]).unwrap());
//!     let y = x.matmul(w.apply("DequantizeLinear", &[g.number(F32, 0.5)], none())).relu();
//!     g.output("y", y.apply("QuantizeLinear", &[scale, g.number(I8, 0.0)], none()));
//! })?;
//! let fused = network.fuse()?;
//! let kernels: Vec<_> = fused.kernels().map(|kernel| kernel.gemm.operation().dtypes()).collect();
//! assert_eq!(kernels, [[I8, I8]]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Types
//!
//! An edge has a [`Format`] and extents. An extent is a number, a symbol such as `"batch"` that [`Network::bind`]
//! replaces, or not known before the network runs. [`Network::run`] takes tensors of any extents that fit.
//!
//! # Rounding
//!
//! On the CPU every node rounds its results to their format. A fused kernel keeps values between the nodes in it as the
//! epilogue language does, in `f32` for formats of 16 bits, and rounds what it stores. So a fused network rounds less.
//!
//! # Rules
//!
//! | code | rule |
//! | --- | --- |
//! | N0101 | A network has an output. |
//! | N0102 | A name has 1 to 1024 characters. |
//! | N0103 | No two inputs have one name, and no two outputs. |
//! | N0104 | A node comes behind the nodes that it depends on. |
//! | N0105 | A value is used with the builder that made it. |
//! | N0201 | An operator is a row of the table, or registered. |
//! | N0202 | A node has as many inputs and outputs as its operator. |
//! | N0203 | Attributes have the names and types of the operator's row, and values that it defines. |
//! | N0204 | Inputs have formats that the operator takes. |
//! | N0205 | Shapes fit each other. |
//! | N0206 | Indices and extents lie inside what they count. |
//! | N0207 | The case is one that this library computes. |
//! | N0208 | A tensor has at most 16 GiB. |
//! | N0301 | A symbol that is bound belongs to an input. |
//! | N0302 | An input that is fixed exists, and its tensor is of its type. |

mod attribute;
mod builder;
mod bytes;
mod check;
mod custom;
#[cfg(feature = "cuda")]
mod device;
mod execute;
mod fault;
mod format;
pub mod fuse;
mod grad;
mod graph;
pub mod json;
mod meaning;
#[allow(clippy::module_inception, reason = "the module's main type has a file of its own")]
mod network;
#[cfg(feature = "onnx")]
pub mod onnx;
pub mod operator;
mod pass;
mod print;
#[cfg(feature = "cuda")]
mod replay;
mod tensor;
#[cfg(feature = "cuda")]
mod tune;
mod types;

pub use attribute::{Attribute, AttributeType, Attributes};
pub use builder::{NetworkBuilder, Value};
pub use check::{NetworkDiagnostic, NetworkDiagnostics};
pub use custom::{CustomOperator, Operators};
#[cfg(feature = "cuda")]
pub use device::{NetworkPlan, NetworkPlanError, UnservedNode};
pub use execute::RunError;
pub use fault::Fault;
pub use format::Format;
pub use grad::BackwardError;
pub use graph::{Applied, Edge, EdgeId, Graph, Node, NodeId, Source};
pub use network::Network;
pub use operator::Operator;
pub use pass::Simplified;
pub use tensor::Tensor;
#[cfg(feature = "cuda")]
pub use tune::{KernelTuning, NetworkTuning};
pub use types::{Dim, IntoDims, Type};
