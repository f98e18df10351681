//! Products: an epilogue behind operands of given formats, run on tensors of Python.

use crate::device::{self, current_stream};
use crate::epilogue::Epilogue;
use crate::error::{argument, poisoned, raise};
use crate::graph::dtype;
use crate::tensor::{Borrowed, Place, read};
use postlude::args::{HostBuffer, SlotKind, slots};
use postlude::check::Role;
use postlude::cudarc::driver::{CudaContext, CudaStream};
use postlude::gemm::Planner;
use postlude::ir::graph::Constant;
use postlude::ir::{Operand, Order};
use postlude::plan::Problem;
use postlude::target::Target;
use postlude::tune::Autotune;
use postlude::{Args, DType, DeviceArgs, Gemm, HostArgs, IntoTensor, Layout, Operation, Plan, Shape, Tensor};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyTuple};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// An epilogue behind a product, or over a matrix, of given formats.
#[pyclass(frozen, module = "postlude._native")]
pub struct Product {
    epilogue: Epilogue,
    a: DType,
    /// `None` for a pointwise operation.
    b: Option<DType>,
    options: Options,
    gemms: Mutex<HashMap<Operation, Arc<Gemm>>>,
    planners: Mutex<HashMap<(usize, Operation), Arc<Planner>>>,
}

/// What a call may ask for beyond the epilogue.
#[derive(Clone, Copy, Default)]
struct Options {
    tf32: bool,
    fast_accumulation: bool,
    split_k: usize,
}

/// An argument of a call.
enum Given<'py> {
    Tensor(Borrowed, Bound<'py, PyAny>),
    Number(Constant),
}

/// A call's arguments, read.
struct Call<'py> {
    gemm: Arc<Gemm>,
    shape: Shape,
    place: Place,
    stream: u64,
    given: Vec<(String, Given<'py>, bool)>,
    origin: [i32; 3],
}

#[pymethods]
impl Product {
    #[new]
    #[pyo3(signature = (epilogue, a, b=None, tf32=false, fast_accumulation=false, split_k=0))]
    fn new(
        epilogue: &Epilogue,
        a: &str,
        b: Option<&str>,
        tf32: bool,
        fast_accumulation: bool,
        split_k: usize,
    ) -> PyResult<Product> {
        Ok(Product {
            epilogue: Epilogue(epilogue.0.clone()),
            a: dtype(a)?,
            b: b.map(dtype).transpose()?,
            options: Options { tf32, fast_accumulation, split_k },
            gemms: Mutex::default(),
            planners: Mutex::default(),
        })
    }

    /// The epilogue.
    #[getter]
    fn epilogue(&self) -> Epilogue {
        Epilogue(self.epilogue.0.clone())
    }

    /// Of each output the letters of its axes in memory's order, the bits of which a run is a multiple where elements are
    /// bits, whether it lies transposed, and PyTorch's name of its format.
    #[getter]
    fn output_shapes(&self) -> Vec<(String, usize, bool, &'static str)> {
        use postlude::ir::axes::{L, M, N};
        let outputs = self.epilogue.0.arguments().iter().filter_map(|argument| match argument.role {
            Role::Output(operand) => Some(operand),
            _ => None,
        });
        let described = outputs.map(|operand| {
            let transposed = operand.axes.is_matrix() && operand.order == Order::ColumnMajor;
            let order = if transposed { [(L, 'L'), (N, 'N'), (M, 'M')] } else { [(L, 'L'), (M, 'M'), (N, 'N')] };
            let letters = order.into_iter().filter(|(axis, _)| operand.axes.contains(*axis)).map(|(_, letter)| letter).collect();
            let packed = if operand.dtype.is_packed() { operand.dtype.run() } else { 0 };
            (letters, packed, transposed, crate::tensor::torch_name(operand.dtype))
        });
        described.collect()
    }

    /// Computes: on the tensors' GPU, or on the CPU. Returns the output, or a tuple of the outputs.
    #[pyo3(signature = (a, b, args, out=None, origin=(0, 0, 0)))]
    fn run<'py>(
        &self,
        a: &Bound<'py, PyAny>,
        b: Option<&Bound<'py, PyAny>>,
        args: &Bound<'py, PyDict>,
        out: Option<&Bound<'py, PyAny>>,
        origin: (i32, i32, i32),
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = a.py();
        let call = self.read(a, b, args, out, origin)?;
        match call.place {
            Place::Host => run_on_host(py, &call)?,
            Place::Cuda(_) => {
                let (planner, stream) = self.planner(&call)?;
                let mut args = device_args(&call, stream.context());
                plan(py, &planner, call.shape, &mut args, &stream)?.execute(&stream, &mut args).map_err(raise)?;
            }
        }
        let mut written = call.given.into_iter().filter(|(.., written)| *written).filter_map(|(_, given, _)| match given {
            Given::Tensor(_, object) => Some(object),
            Given::Number(_) => None,
        });
        match (written.next(), written.next()) {
            (Some(only), None) => Ok(only),
            (first, second) => {
                Ok(PyTuple::new(py, first.into_iter().chain(second).chain(written).collect::<Vec<_>>())?.into_any())
            }
        }
    }

    /// The plan in words: for the tensors' GPU, with what the compiler says; or for `target`, such as `sm_90a` with so many
    /// multiprocessors, without a GPU.
    #[pyo3(signature = (a, b, args, out=None, target=None, multiprocessors=132))]
    fn explain<'py>(
        &self,
        a: &Bound<'py, PyAny>,
        b: Option<&Bound<'py, PyAny>>,
        args: &Bound<'py, PyDict>,
        out: Option<&Bound<'py, PyAny>>,
        target: Option<&str>,
        multiprocessors: usize,
    ) -> PyResult<String> {
        let call = self.read(a, b, args, out, (0, 0, 0))?;
        match (target, call.place) {
            (None, Place::Cuda(_)) => {
                let (planner, stream) = self.planner(&call)?;
                Ok(plan(a.py(), &planner, call.shape, &mut device_args(&call, stream.context()), &stream)?.explain())
            }
            (target, _) => Ok(self.planned(&call, target, multiprocessors)?.explain()),
        }
    }

    /// The CUDA source of the kernel; `target` as in `explain`.
    #[pyo3(signature = (a, b, args, out=None, target=None, multiprocessors=132))]
    fn source<'py>(
        &self,
        a: &Bound<'py, PyAny>,
        b: Option<&Bound<'py, PyAny>>,
        args: &Bound<'py, PyDict>,
        out: Option<&Bound<'py, PyAny>>,
        target: Option<&str>,
        multiprocessors: usize,
    ) -> PyResult<String> {
        let call = self.read(a, b, args, out, (0, 0, 0))?;
        match (target, call.place) {
            (None, Place::Cuda(_)) => {
                let (planner, stream) = self.planner(&call)?;
                Ok(plan(a.py(), &planner, call.shape, &mut device_args(&call, stream.context()), &stream)?
                    .kernel()
                    .source
                    .text()
                    .to_owned())
            }
            (target, _) => Ok(self.planned(&call, target, multiprocessors)?.source().map_err(raise)?.text().to_owned()),
        }
    }

    /// Measures the tiles that fit on these tensors, takes the fastest from now on, and says what it measured.
    #[pyo3(signature = (a, b, args, out=None, seconds=10.0))]
    fn autotune<'py>(
        &self,
        a: &Bound<'py, PyAny>,
        b: Option<&Bound<'py, PyAny>>,
        args: &Bound<'py, PyDict>,
        out: Option<&Bound<'py, PyAny>>,
        seconds: f64,
    ) -> PyResult<String> {
        let py = a.py();
        let call = self.read(a, b, args, out, (0, 0, 0))?;
        if call.place == Place::Host {
            return Err(argument("`autotune` measures kernels: pass tensors of a GPU"));
        }
        let budget = Duration::try_from_secs_f64(seconds).map_err(|error| argument(error.to_string()))?;
        let (planner, stream) = self.planner(&call)?;
        let (mut args, shape) = (device_args(&call, stream.context()), call.shape);
        // The interpreter goes on meanwhile.
        let tuning = py.detach(|| planner.autotune(shape, &stream, &mut args, Autotune::new().budget(budget)));
        let tuning = tuning.map_err(raise)?;
        Ok(tuning.to_string())
    }
}

impl Product {
    /// Reads the arguments of a call, and makes the outputs that were not passed.
    fn read<'py>(
        &self,
        a: &Bound<'py, PyAny>,
        b: Option<&Bound<'py, PyAny>>,
        args: &Bound<'py, PyDict>,
        out: Option<&Bound<'py, PyAny>>,
        origin: (i32, i32, i32),
    ) -> PyResult<Call<'py>> {
        let py = a.py();
        let mut stream = None;
        let mut read = |name: &str, object: &Bound<'py, PyAny>| -> PyResult<Borrowed> {
            let tensor = read(name, object, |ordinal| current_stream(py, ordinal))?;
            if let (Place::Cuda(ordinal), None) = (tensor.place, stream) {
                stream = Some(current_stream(py, ordinal)?);
            }
            Ok(tensor)
        };
        let first = read("a", a)?;
        let second = b.map(|b| read("b", b)).transpose()?;
        let place = first.place;
        let (operation, shape) = self.operation(&first, second.as_ref())?;
        let batched = first.layout.extents().len() > 2 || second.as_ref().is_some_and(|b| b.layout.extents().len() > 2);
        let gemm = self.gemm(operation)?;
        let mut given = vec![("a".to_owned(), Given::Tensor(first, a.clone()), false)];
        if let (Some(second), Some(b)) = (second, b) {
            given.push(("b".to_owned(), Given::Tensor(second, b.clone()), false));
        }
        if self.b.is_none() && self.epilogue.0.checked().accumulator().is_none() {
            given.clear();
        }
        let is_update =
            |name: &str| self.epilogue.0.arguments().iter().any(|x| *x.name == *name && matches!(x.role, Role::Update(_)));
        for (name, value) in args.iter() {
            let name: String = name.extract()?;
            if value.is_none() {
                continue;
            }
            let wanted =
                self.epilogue.0.arguments().iter().find(|argument| *argument.name == *name).map(|argument| argument.role);
            let number = match wanted {
                Some(Role::Scalar(value_type)) => number(&value)?.map(|x| Constant::of(value_type, x)),
                _ => number(&value)?.map(Constant::from),
            };
            let (value, written) = match number {
                Some(number) => (Given::Number(number), false),
                None => (Given::Tensor(read(&name, &value)?, value), is_update(&name)),
            };
            given.push((name, value, written));
        }
        let outputs: Vec<(&str, Operand)> = self
            .epilogue
            .0
            .arguments()
            .iter()
            .filter_map(|argument| match argument.role {
                Role::Output(operand) => Some((&*argument.name, operand)),
                _ => None,
            })
            .collect();
        for (name, operand) in &outputs {
            let passed = match out {
                None => None,
                Some(out) => match out.cast::<PyDict>() {
                    Ok(named) => named.get_item(name)?,
                    Err(_) if outputs.len() == 1 => Some(out.clone()),
                    Err(_) => return Err(argument(format!("`out` names the outputs: {{\"{name}\": tensor, ...}}"))),
                },
            };
            let object = match passed {
                Some(object) => object,
                None => self.allocate(a, *operand, shape, batched, place == Place::Host)?,
            };
            given.push(((*name).to_owned(), Given::Tensor(read(name, &object)?, object), true));
        }
        check(place, &given)?;
        let stream = stream.unwrap_or_default();
        Ok(Call { gemm, shape, place, stream, given, origin: [origin.0, origin.1, origin.2] })
    }

    /// Operation and extents, from how the operands lie.
    fn operation(&self, a: &Borrowed, b: Option<&Borrowed>) -> PyResult<(Operation, Shape)> {
        let matrix = |name: &str, tensor: &Borrowed| -> PyResult<(usize, usize, usize, Order)> {
            let (extents, strides) = (tensor.layout.extents(), tensor.layout.strides());
            let order = tensor.layout.order().ok_or_else(|| {
                argument(format!("argument `{name}`: strides {strides:?} leave neither rows nor columns contiguous: pass a copy"))
            })?;
            match *extents {
                [rows, columns] => Ok((1, rows, columns, order)),
                [batch, rows, columns] => Ok((batch, rows, columns, order)),
                _ => Err(argument(format!("argument `{name}`: has {} axes, and needs two or three", extents.len()))),
            }
        };
        let (batch, m, k, order) = matrix("a", a)?;
        match (self.b, b) {
            (Some(format), Some(b)) => {
                let (batch_b, k_b, n, order_b) = matrix("b", b)?;
                let operation = Operation::mixed(self.a, format, Layout::of(order, order_b));
                if k_b != k {
                    return Err(argument(format!(
                        "argument `b`: has {k_b} rows, and `a` has {k} columns: they are the same axis K"
                    )));
                }
                Ok((operation, Shape::new(m, n, k).batched(if batch == 1 { batch_b } else { batch })))
            }
            (None, None) => Ok((Operation::Pointwise { dtype: self.a, order }, Shape::matrix(m, k).batched(batch))),
            (Some(_), None) => Err(argument("argument `b`: missing; a product has two operands")),
            (None, Some(_)) => Err(argument("argument `b`: a pointwise operation has one operand, `a`")),
        }
    }

    fn gemm(&self, operation: Operation) -> PyResult<Arc<Gemm>> {
        let mut gemms = self.gemms.lock().map_err(poisoned)?;
        let Options { tf32, fast_accumulation, split_k } = self.options;
        let make = || {
            let gemm = Gemm::of(operation, &self.epilogue.0);
            Arc::new(gemm.tf32(tf32).fast_accumulation(fast_accumulation).split_k(split_k))
        };
        Ok(gemms.entry(operation).or_insert_with(make).clone())
    }

    /// An output of the size that it needs.
    fn allocate<'py>(
        &self,
        beside: &Bound<'py, PyAny>,
        operand: Operand,
        shape: Shape,
        batched: bool,
        host: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        use postlude::ir::axes::{L, M, N};
        let along = |axis, extent| operand.axes.contains(axis).then_some(extent);
        let entries = along(L, shape.batch).filter(|_| batched);
        let (mut rows, mut columns) = (along(M, shape.m), along(N, shape.n));
        let transposed = operand.axes.is_matrix() && operand.order == Order::ColumnMajor;
        if transposed {
            (rows, columns) = (columns, rows);
        }
        if operand.dtype.is_packed() {
            columns = columns.map(|columns| columns.next_multiple_of(operand.dtype.run()) / 8);
        }
        let extents: Vec<usize> = entries.into_iter().chain(rows).chain(columns).collect();
        let tensor = device::empty(beside, &extents, operand.dtype, host)?;
        match (transposed, entries) {
            (false, _) => Ok(tensor),
            (true, None) => tensor.call_method1("transpose", (0, 1)),
            (true, Some(_)) if tensor.hasattr("swapaxes")? => tensor.call_method1("swapaxes", (1, 2)),
            (true, Some(_)) => tensor.call_method1("transpose", (1, 2)),
        }
    }

    /// The planner of a call for the tensors' GPU, and its stream.
    fn planner(&self, call: &Call<'_>) -> PyResult<(Arc<Planner>, Arc<CudaStream>)> {
        let Place::Cuda(ordinal) = call.place else { return Err(argument("no tensor is on a GPU")) };
        let (device, stream) = device::device(ordinal, call.stream)?;
        let mut planners = self.planners.lock().map_err(poisoned)?;
        let planner = planners.entry((ordinal, call.gemm.operation()));
        Ok((planner.or_insert_with(|| Arc::new(Planner::new(&call.gemm, &device))).clone(), stream))
    }

    /// The plan for a target, without a GPU.
    fn planned(&self, call: &Call<'_>, target: Option<&str>, multiprocessors: usize) -> PyResult<postlude::plan::KernelPlan> {
        let target = target.ok_or_else(|| argument("the tensors are on the CPU: name a `target`, such as \"sm_90a\""))?;
        let target: Target = target.parse().map_err(|error| argument(format!("{error}")))?;
        let kinds = slots(call.gemm.operation(), self.epilogue.0.checked(), call.shape);
        let mut problem = Problem::from(call.shape);
        for (name, given, _) in &call.given {
            let (Given::Tensor(tensor, _), Some(slot)) = (given, kinds.iter().find(|slot| *slot.name == **name)) else {
                continue;
            };
            if let SlotKind::Memory { matrix: true, .. } = slot.kind {
                let across = tensor.layout.strides().iter().rev().take(2).copied().max().unwrap_or_default();
                if across > 1 {
                    problem = problem.ld(name, across);
                }
            }
        }
        call.gemm.kernel_plan(target, multiprocessors, problem).map_err(raise)
    }
}

/// A Python number. A tensor is not one.
fn number(value: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
    let is_number = value.is_instance_of::<PyFloat>() || value.is_instance_of::<PyInt>() || value.is_instance_of::<PyBool>();
    if is_number { value.extract().map(Some) } else { Ok(None) }
}

/// What the borrow checker does in Rust: outputs are writable, on the right device, and overlap nothing.
fn check(place: Place, given: &[(String, Given<'_>, bool)]) -> PyResult<()> {
    let tensors = given.iter().filter_map(|(name, given, written)| match given {
        Given::Tensor(tensor, _) => Some((name, tensor, *written)),
        Given::Number(_) => None,
    });
    for (at, (name, tensor, written)) in tensors.clone().enumerate() {
        if tensor.place != place {
            return Err(argument(format!("argument `{name}`: is on {}, and `a` is on {place}: copy it there", tensor.place)));
        }
        if written && !tensor.writable {
            return Err(argument(format!(
                "argument `{name}`: is written, but its owner permits reading only: pass a writable one"
            )));
        }
        for (other, (known, theirs, _)) in tensors.clone().enumerate().filter(|_| written) {
            if other != at && tensor.overlaps(theirs) {
                return Err(argument(format!(
                    "argument `{name}`: is written, and shares memory with `{known}`: pass memory of its own"
                )));
            }
        }
    }
    Ok(())
}

/// The plan of a call. Compiling takes a while: the interpreter goes on meanwhile.
fn plan(
    py: Python<'_>,
    planner: &Planner,
    shape: Shape,
    args: &mut DeviceArgs<'_>,
    stream: &Arc<CudaStream>,
) -> PyResult<Arc<Plan>> {
    py.detach(|| planner.plan(shape, stream, args)).map_err(raise)
}

/// The arguments of a launch.
fn device_args<'a>(call: &'a Call<'_>, context: &'a Arc<CudaContext>) -> DeviceArgs<'a> {
    let mut args = DeviceArgs::new();
    for (name, given, written) in &call.given {
        args = match given {
            Given::Number(number) => args.scalar(name, *number),
            // SAFETY: Python's objects live as long as the call, their owner states extents and strides, and `check` has seen
            // that nothing written overlaps another argument. The launch goes into the stream on which the owner works.
            Given::Tensor(tensor, _) => unsafe {
                let Borrowed { address, dtype, layout, .. } = *tensor;
                if *written {
                    args.output(name, Tensor::from_raw_mut(context, address, dtype, layout))
                } else {
                    args.input(name, Tensor::from_raw(context, address, dtype, layout))
                }
            },
        };
    }
    args.origin(call.origin[0], call.origin[1], call.origin[2])
}

/// Computes on the CPU.
fn run_on_host(py: Python<'_>, call: &Call<'_>) -> PyResult<()> {
    let mut args: HostArgs<'_> = Args::new();
    for (name, given, written) in &call.given {
        args = match given {
            Given::Number(number) => args.scalar(name, *number),
            Given::Tensor(tensor, _) => {
                let first = if tensor.bytes() == 0 { std::ptr::NonNull::dangling().as_ptr() } else { tensor.address as *mut u8 };
                // SAFETY: Python's objects live as long as the call, their owner states extents and strides, and `check` has
                // seen that nothing written overlaps another argument.
                let tensor: Tensor<HostBuffer<'_>> = unsafe {
                    if *written {
                        Tensor::of_bytes_mut(tensor.dtype, std::slice::from_raw_parts_mut(first, tensor.bytes()))
                    } else {
                        Tensor::of_bytes(tensor.dtype, std::slice::from_raw_parts(first, tensor.bytes()))
                    }
                }
                .laid_out(tensor.layout);
                if *written { args.output(name, tensor) } else { args.input(name, tensor) }
            }
        };
    }
    let args = args.origin(call.origin[0], call.origin[1], call.origin[2]);
    let (gemm, shape) = (&call.gemm, call.shape);
    py.detach(|| gemm.reference(shape, args)).map_err(raise)
}
