//! Fused products: an epilogue behind the product of two candle tensors.

use crate::operation;
use crate::storage::{Input, Output, Wanted, lies, run};
use candle_core::{Error, Result, Tensor};
use postlude::args::MemoryLayout;
use postlude::check::Role;
use postlude::grad::Wrt;
use postlude::ir::axes::{L, M, N};
use postlude::ir::{Operand, Order};
use postlude::{DType, Epilogue, Gemm, Layout, Operation, Shape};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// A value that an argument has.
#[derive(Clone, Debug)]
pub(crate) enum Given {
    Tensor(Tensor),
    Scalar(f64),
}

impl Given {
    pub(crate) fn detached(&self) -> Given {
        match self {
            Given::Tensor(tensor) => Given::Tensor(tensor.detach()),
            Given::Scalar(number) => Given::Scalar(*number),
        }
    }

    fn input(&self) -> Input<'_> {
        match self {
            Given::Tensor(tensor) => Input::Tensor(tensor),
            Given::Scalar(number) => Input::Scalar(*number),
        }
    }
}

/// The epilogue's arguments by name: tensors, and numbers for its scalars.
#[derive(Clone, Debug, Default)]
pub struct Arguments {
    given: Vec<(String, Given)>,
}

impl Arguments {
    /// No argument yet.
    pub fn new() -> Arguments {
        Arguments::default()
    }

    /// A tensor that the epilogue loads.
    #[must_use]
    pub fn tensor(mut self, name: &str, tensor: &Tensor) -> Arguments {
        self.given.push((name.into(), Given::Tensor(tensor.clone())));
        self
    }

    /// A number for a scalar.
    #[must_use]
    pub fn scalar(mut self, name: &str, number: impl Into<f64>) -> Arguments {
        self.given.push((name.into(), Given::Scalar(number.into())));
        self
    }
}

/// The arguments whose gradient is asked for, and the format of the operands.
type Asked = (Vec<String>, DType);

/// An epilogue behind products of candle tensors. Make it once: it keeps plans and derivatives.
#[derive(Debug)]
pub struct Fused {
    product: Runner,
    pairs: Mutex<HashMap<Asked, Arc<Differentiated>>>,
}

impl Fused {
    /// Compiles nothing yet.
    pub fn new(epilogue: &Epilogue) -> Fused {
        Fused { product: Runner::new(epilogue), pairs: Mutex::default() }
    }

    /// The epilogue behind `a @ b`: M x K times K x N, or either with a batch axis in front. The epilogue has one output.
    ///
    /// `b` of a linear layer is `w.t()`, which copies nothing. If a variable takes part, the result is a node of candle's
    /// graph, and `backward` finds the gradients of `a`, `b` and the tensors among the arguments.
    ///
    /// # Errors
    /// If arguments do not fit, with the library's text; if the epilogue has several outputs, or no derivative where one is
    /// asked for; if the device fails.
    pub fn apply(&self, a: &Tensor, b: &Tensor, arguments: Arguments) -> Result<Tensor> {
        self.apply_to(a, b, &arguments)
    }

    /// `apply` with arguments that the caller keeps.
    pub(crate) fn apply_to(&self, a: &Tensor, b: &Tensor, Arguments { given }: &Arguments) -> Result<Tensor> {
        let is_tracked = |(_, given): &&(String, Given)| matches!(given, Given::Tensor(tensor) if tensor.track_op());
        if !a.track_op() && !b.track_op() && !given.iter().any(|given| is_tracked(&given)) {
            let mut outputs = self.product.run(a, Some(b), given)?;
            return match (outputs.pop(), outputs.is_empty()) {
                (Some(output), true) => Ok(output.into_tensor()),
                _ => Err(Error::msg("`apply` returns one output, and the epilogue has several: use `apply_all`")),
            };
        }
        let names = given.iter().filter(is_tracked).map(|(name, _)| name.clone()).collect();
        let pair = self.differentiated(names, dtype(a)?)?;
        let mut outputs = pair.forward.run(a, Some(b), given)?;
        let visible = pair.forward.outputs.iter().position(|(name, _)| *name == pair.through);
        let visible = visible.ok_or_else(|| Error::msg("the epilogue has no output"))?;
        let result = outputs.remove(visible);
        let mut names = pair.forward.outputs.iter().map(|(name, _)| name).filter(|name| **name != pair.through);
        let saved = outputs.into_iter().filter_map(|output| Some((names.next()?.clone(), output.into_tensor()))).collect();
        operation::node((a, b), result, pair.clone(), given, saved)
    }

    /// Every output of the epilogue, in its order, without gradients.
    ///
    /// # Errors
    /// If arguments do not fit, or the device fails.
    pub fn apply_all(&self, a: &Tensor, b: &Tensor, arguments: Arguments) -> Result<Vec<Tensor>> {
        Ok(self.product.run(a, Some(b), &arguments.given)?.into_iter().map(Output::into_tensor).collect())
    }

    fn differentiated(&self, names: Vec<String>, format: DType) -> Result<Arc<Differentiated>> {
        let key = (names, format);
        if let Some(pair) = self.pairs.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(pair.clone());
        }
        let (names, _) = &key;
        let epilogue = &self.product.epilogue;
        if self.product.outputs.len() != 1 {
            return Err(Error::msg("gradients need an epilogue of one output: `apply_all` computes without them"));
        }
        let wrt = names.iter().fold(Wrt::accumulator(), |wrt, name| wrt.and(name));
        let pair = epilogue.backward(wrt).map_err(Error::wrap)?;
        let made = Arc::new(Differentiated {
            forward: Runner::new(pair.forward()),
            backward: Runner::new(pair.backward()),
            through: pair.through().to_owned(),
        });
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner).insert(key, made.clone());
        Ok(made)
    }
}

/// An epilogue that saves what its derivative needs, and the derivative.
#[derive(Debug)]
pub(crate) struct Differentiated {
    forward: Runner,
    backward: Runner,
    through: String,
}

impl Differentiated {
    /// The gradient of the accumulator, and those of arguments by name.
    pub(crate) fn gradients(
        &self,
        upstream: &Tensor,
        given: &[(String, Given)],
        saved: &[(String, Tensor)],
    ) -> Result<(Tensor, Vec<(String, Tensor)>)> {
        let needs = |name: &str| self.backward.epilogue.checked().argument(name).is_some();
        let saved = saved.iter().map(|(name, tensor)| (name.clone(), Given::Tensor(tensor.clone())));
        let all: Vec<(String, Given)> = given.iter().cloned().chain(saved).filter(|(name, _)| needs(name)).collect();
        // Candle's gradients may be broadcast views.
        let upstream = upstream.contiguous()?;
        let mut dz = None;
        let mut others = Vec::new();
        let names = self.backward.outputs.iter().map(|(name, _)| name);
        for (name, output) in names.zip(self.backward.run(&upstream, None, &all)?) {
            let gradient = output.into_tensor();
            match name.strip_prefix("grad_") {
                Some("acc") => dz = Some(gradient),
                Some(name) => others.push((name.to_owned(), gradient)),
                None => {}
            }
        }
        Ok((dz.ok_or_else(|| Error::msg("the derivative has no gradient of the product"))?, others))
    }
}

/// An epilogue on candle tensors, without a history.
pub(crate) struct Runner {
    epilogue: Epilogue,
    /// What it stores, in its order.
    outputs: Vec<(String, Operand)>,
    /// A product for each way in which operands have lain.
    products: Mutex<Vec<Arc<Product>>>,
}

/// The epilogue behind a product of operands that lie in one way.
pub(crate) struct Product {
    pub gemm: Gemm,
    #[cfg(feature = "cuda")]
    pub planners: crate::storage::cuda::Planners,
}

impl std::fmt::Debug for Runner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.epilogue.fmt(f)
    }
}

/// Postlude's format of a tensor.
pub(crate) fn dtype(tensor: &Tensor) -> Result<DType> {
    use candle_core::DType as Theirs;
    Ok(match tensor.dtype() {
        Theirs::F32 => DType::F32,
        Theirs::F64 => DType::F64,
        Theirs::F16 => DType::F16,
        Theirs::BF16 => DType::BF16,
        Theirs::F8E4M3 => DType::E4M3,
        Theirs::I32 => DType::I32,
        Theirs::U8 => DType::U8,
        other => return Err(Error::msg(format!("candle's {other:?} has no format in Postlude: convert the tensor"))),
    })
}

impl Runner {
    fn new(epilogue: &Epilogue) -> Runner {
        let outputs = epilogue.arguments().iter().filter_map(|argument| match argument.role {
            Role::Output(operand) => Some((argument.name.to_string(), operand)),
            _ => None,
        });
        Runner { outputs: outputs.collect(), epilogue: epilogue.clone(), products: Mutex::default() }
    }

    /// Runs behind the product, or over `a`. Returns the outputs in their order.
    fn run(&self, a: &Tensor, b: Option<&Tensor>, given: &[(String, Given)]) -> Result<Vec<Output>> {
        let (operation, shape) = operation_of(a, b)?;
        let batched = a.rank() > 2 || b.is_some_and(|b| b.rank() > 2);
        let wanted = self.outputs.iter().map(|(name, operand)| wanted(name, *operand, shape, batched));
        let wanted = wanted.collect::<Result<Vec<_>>>()?;
        let mut inputs: Vec<(&str, Input<'_>)> = Vec::with_capacity(2 + given.len());
        if b.is_some() || self.epilogue.checked().accumulator().is_some() {
            inputs.push(("a", Input::Tensor(a)));
        }
        inputs.extend(b.map(|b| ("b", Input::Tensor(b))));
        inputs.extend(given.iter().map(|(name, given)| (name.as_str(), given.input())));
        run(&self.product(operation), shape, &inputs, &wanted)
    }

    /// The product of operands that lie so. There are few ways, so a search is faster than a hash.
    fn product(&self, operation: Operation) -> Arc<Product> {
        let mut products = self.products.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(product) = products.iter().find(|product| product.gemm.operation() == operation) {
            return product.clone();
        }
        let made = Arc::new(Product {
            gemm: Gemm::of(operation, &self.epilogue),
            #[cfg(feature = "cuda")]
            planners: Default::default(),
        });
        products.push(made.clone());
        made
    }
}

/// Operation and extents, from how the operands lie.
fn operation_of(a: &Tensor, b: Option<&Tensor>) -> Result<(Operation, Shape)> {
    let matrix = |name: &str, tensor: &Tensor| -> Result<(usize, usize, usize, Order)> {
        let order = lies(tensor.layout())?.order();
        let order =
            order.ok_or_else(|| Error::msg(format!("argument `{name}`: neither rows nor columns are contiguous: copy it")))?;
        match *tensor.dims() {
            [rows, columns] => Ok((1, rows, columns, order)),
            [batch, rows, columns] => Ok((batch, rows, columns, order)),
            _ => Err(Error::msg(format!("argument `{name}`: has {} axes, and needs two or three", tensor.rank()))),
        }
    };
    let (batch, m, k, order) = matrix("a", a)?;
    let Some(b) = b else {
        return Ok((Operation::Pointwise { dtype: dtype(a)?, order }, Shape::matrix(m, k).batched(batch)));
    };
    let (batch_b, k_b, n, order_b) = matrix("b", b)?;
    if k_b != k {
        return Err(Error::msg(format!("argument `b`: has {k_b} rows, and `a` has {k} columns: they are the same axis K")));
    }
    let operation = Operation::mixed(dtype(a)?, dtype(b)?, Layout::of(order, order_b));
    Ok((operation, Shape::new(m, n, k).batched(if batch == 1 { batch_b } else { batch })))
}

/// An output of the size that it needs. Candle makes contiguous tensors, so a column-major output has its axes exchanged.
fn wanted(name: &str, operand: Operand, shape: Shape, batched: bool) -> Result<Wanted<'_>> {
    if operand.axes.is_matrix() && operand.order == Order::ColumnMajor {
        return Err(Error::msg(format!("output `{name}`: candle's new tensors are row-major: store it so, and take `t()`")));
    }
    let along = |axis, extent| operand.axes.contains(axis).then_some(extent);
    let entries = along(L, shape.batch).filter(|_| batched);
    let (rows, mut columns) = (along(M, shape.m), along(N, shape.n));
    if operand.dtype.is_packed() {
        columns = columns.map(|columns| columns.next_multiple_of(operand.dtype.run()) / 8);
    }
    let (mut extents, mut rank) = ([0; MemoryLayout::AXES], 0);
    for extent in [entries, rows, columns].into_iter().flatten() {
        extents[rank] = extent;
        rank += 1;
    }
    let layout = MemoryLayout::contiguous(&extents[..rank]).map_err(Error::wrap)?;
    Ok(Wanted { name, dtype: operand.dtype, layout })
}
