//! The epilogue graph: its values, when they are evaluated, and what axes mean.
//!
//! A [`Graph`] is a list of [`Node`]s, each of which uses only nodes before it, and a list of [`Sink`]s that write
//! values to memory. Nodes have no effects, so a program cannot observe when, how often or whether a node is evaluated.
//! A sink takes effect once for every element of the output. A node has a [`ValueType`](crate::dtype::ValueType) and a
//! set of [`Axes`]. Both follow from its operands by the rules in [`check`](crate::check).

pub mod axes;
pub mod constant;
pub mod coordinate;
pub mod custom;
pub mod custom_monoid;
pub mod dot;
mod fnv;
pub mod function;
pub mod graph;
pub mod inner_adjoint;
pub mod monoid;
pub(crate) mod name;
pub mod op;
pub mod operand;
pub mod over;
pub mod sink;
pub mod text;
pub mod wire;

pub use axes::Axes;
pub use custom::{CustomOp, CustomOpError, Registry};
pub use custom_monoid::CustomMonoid;
pub(crate) use fnv::fnv1a;
pub use function::Function;
pub use graph::{Constant, Coordinate, Graph, Node, NodeId, Side};
pub use monoid::Monoid;
pub use op::Op;
pub use operand::{Operand, Order};
pub use over::Over;
pub use sink::{Reduce, Reduction, Sink, SinkKind};
