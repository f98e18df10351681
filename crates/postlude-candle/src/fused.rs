//! Fused products: an epilogue behind the product of two candle tensors.

use crate::operation;
use crate::storage::{Input, Wanted, lies, run};
use candle_core::{Error, Result, Storage, Tensor};
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
    pub(crate) fn detached(self) -> Given {
        match self {
            Given::Tensor(tensor) => Given::Tensor(tensor.detach()),
            scalar => scalar,
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
        let Arguments { given } = arguments;
        let mut names: Vec<String> = Vec::new();
        for (name, given) in &given {
            if matches!(given, Given::Tensor(tensor) if tensor.track_op()) {
                names.push(name.clone());
            }
        }
        if names.is_empty() && !a.track_op() && !b.track_op() {
            let mut outputs = self.product.run(a, Some(b), &given)?;
            return match (outputs.pop(), outputs.is_empty()) {
                (Some((_, storage, extents)), true) => operation::tensor(a, storage, &extents),
                _ => Err(Error::msg("`apply` returns one output, and the epilogue has several: use `apply_all`")),
            };
        }
        let pair = self.differentiated(names, dtype(a)?)?;
        let mut outputs = pair.forward.run(a, Some(b), &given)?;
        let visible = outputs.iter().position(|(name, ..)| *name == pair.through);
        let (_, storage, extents) = outputs.remove(visible.ok_or_else(|| Error::msg("the epilogue has no output"))?);
        let saved = outputs.into_iter().map(|(name, storage, extents)| Ok((name, operation::tensor(a, storage, &extents)?)));
        operation::node((a, b), (storage, &extents), pair.clone(), given, saved.collect::<Result<_>>()?)
    }

    /// Every output of the epilogue, in its order, without gradients.
    ///
    /// # Errors
    /// If arguments do not fit, or the device fails.
    pub fn apply_all(&self, a: &Tensor, b: &Tensor, arguments: Arguments) -> Result<Vec<Tensor>> {
        let outputs = self.product.run(a, Some(b), &arguments.given)?;
        outputs.into_iter().map(|(_, storage, extents)| operation::tensor(a, storage, &extents)).collect()
    }

    fn differentiated(&self, names: Vec<String>, format: DType) -> Result<Arc<Differentiated>> {
        let key = (names, format);
        if let Some(pair) = self.pairs.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(pair.clone());
        }
        let (names, _) = &key;
        let epilogue = &self.product.epilogue;
        let outputs = epilogue.arguments().iter().filter(|argument| matches!(argument.role, Role::Output(_))).count();
        if outputs != 1 {
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
        for (name, storage, extents) in self.backward.run(&upstream, None, &all)? {
            let gradient = operation::tensor(&upstream, storage, &extents)?;
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
    gemms: Mutex<HashMap<Operation, Arc<Gemm>>>,
    #[cfg(feature = "cuda")]
    planners: crate::storage::cuda::Planners,
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
        Runner {
            epilogue: epilogue.clone(),
            gemms: Mutex::default(),
            #[cfg(feature = "cuda")]
            planners: Default::default(),
        }
    }

    /// Runs behind the product, or over `a`. Returns each output's name, storage and extents.
    fn run(&self, a: &Tensor, b: Option<&Tensor>, given: &[(String, Given)]) -> Result<Vec<(String, Storage, Vec<usize>)>> {
        let (operation, shape) = operation_of(a, b)?;
        let batched = a.rank() > 2 || b.is_some_and(|b| b.rank() > 2);
        let outputs = self.epilogue.arguments().iter().filter_map(|argument| match argument.role {
            Role::Output(operand) => Some((argument.name.to_string(), operand)),
            _ => None,
        });
        let wanted = outputs.map(|(name, operand)| wanted(name, operand, shape, batched)).collect::<Result<Vec<_>>>()?;
        let mut inputs: Vec<(&str, Input<'_>)> = Vec::new();
        if b.is_some() || self.epilogue.checked().accumulator().is_some() {
            inputs.push(("a", Input::Tensor(a)));
        }
        inputs.extend(b.map(|b| ("b", Input::Tensor(b))));
        inputs.extend(given.iter().map(|(name, given)| (name.as_str(), given.input())));
        let gemm = {
            let mut gemms = self.gemms.lock().unwrap_or_else(PoisonError::into_inner);
            gemms.entry(operation).or_insert_with(|| Arc::new(Gemm::of(operation, &self.epilogue))).clone()
        };
        let storages = run(
            #[cfg(feature = "cuda")]
            &self.planners,
            &gemm,
            shape,
            &inputs,
            &wanted,
        )?;
        Ok(wanted.into_iter().zip(storages).map(|(wanted, storage)| (wanted.name, storage, wanted.extents)).collect())
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
fn wanted(name: String, operand: Operand, shape: Shape, batched: bool) -> Result<Wanted> {
    if operand.axes.is_matrix() && operand.order == Order::ColumnMajor {
        return Err(Error::msg(format!("output `{name}`: candle's new tensors are row-major: store it so, and take `t()`")));
    }
    let along = |axis, extent| operand.axes.contains(axis).then_some(extent);
    let entries = along(L, shape.batch).filter(|_| batched);
    let (rows, mut columns) = (along(M, shape.m), along(N, shape.n));
    if operand.dtype.is_packed() {
        columns = columns.map(|columns| columns.next_multiple_of(operand.dtype.run()) / 8);
    }
    Ok(Wanted { name, dtype: operand.dtype, extents: entries.into_iter().chain(rows).chain(columns).collect() })
}
