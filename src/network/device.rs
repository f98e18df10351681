//! Running a fused network on a GPU: kernels compiled side by side, tensors in one arena, launches in order.

use super::fuse::{Access, FuseError, Fused, Kernel};
use super::graph::EdgeId;
use super::network::Network;
use super::replay::Replays;
use super::tensor::Tensor;
use crate::args::{IntoTensor, Tensor as ArgTensor};
use crate::device::{Device, DeviceArgs, DeviceError, Side};
use crate::error::Error;
use crate::gemm::{Plan, Wanted, precompile};
use crate::ir::name::{meant, word};
use crate::parallel::{self, both};
use crate::plan::Problem;
use crate::problem::Attention;
use cudarc::driver::{CudaSlice, CudaStream, CudaView, CudaViewMut, DriverError};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, mpsc};

/// Why a network does not run on a device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkPlanError {
    /// It could not be fused.
    #[error(transparent)]
    Fuse(#[from] FuseError),
    /// Nodes have no kernel: each with its operator, and the reason.
    #[error("{}", Nodes(.0))]
    Unserved(Vec<UnservedNode>),
    /// A kernel could not be planned, compiled or launched.
    #[error("kernel of nodes {}: {error}", word(nodes))]
    Kernel {
        /// Its nodes.
        nodes: String,
        /// What is wrong.
        error: Box<Error>,
    },
    /// An input is missing, unknown, or has another size.
    #[error("input {}: {why}", word(name))]
    Input {
        /// Its name.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// A node that no kernel serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnservedNode {
    /// Its name.
    pub node: String,
    /// Its operator.
    pub operator: String,
    /// Why no kernel serves it.
    pub why: String,
}

struct Nodes<'a>(&'a [UnservedNode]);

impl fmt::Display for Nodes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no kernel serves {} nodes of the network:", self.0.len())?;
        for UnservedNode { node, operator, why } in self.0.iter().take(50) {
            write!(f, "\n  {operator} {}: {why}", word(node))?;
        }
        write!(f, "\n  = help: run the network on the CPU with `Network::run`, or write it with operators that kernels have")
    }
}

/// A network on a device, ready to run again and again.
///
/// Tensors between kernels, and outputs, lie in an arena that belongs to the plan. So an output is valid until the next run.
pub struct NetworkPlan {
    // Fields are dropped in this order. Graphs go before their kernels.
    pub(super) replays: Replays,
    pub(super) fused: Fused,
    pub(super) plans: Vec<Plan>,
    /// Before the constants: its end waits for the last run, and the constants are freed behind it in the same stream.
    pub(super) arena: CudaSlice<u8>,
    constants: HashMap<EdgeId, CudaSlice<u8>>,
    /// Behind the plans, which own memory on it.
    pub(super) side: Option<Side>,
}

impl fmt::Debug for NetworkPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NetworkPlan({} kernels, {} bytes)", self.plans.len(), self.fused.memory().peak)
    }
}

pub(super) fn driver(what: &'static str) -> impl Fn(DriverError) -> NetworkPlanError {
    move |error| DeviceError::Driver { what, error }.into()
}

/// The problem of a kernel, with the strides of its arguments and the alignment of their addresses.
pub(super) fn problem(kernel: &Kernel) -> Problem {
    let mut problem = Problem::from(kernel.shape);
    for Access { name, dtype, offset, ld, batch_stride, .. } in &kernel.accesses {
        if kernel.gemm.epilogue().checked().argument(name).is_none() && !matches!(name.as_str(), "a" | "b" | Attention::KEYS) {
            continue;
        }
        // Every tensor begins at a multiple of more.
        problem = problem.align(name, 1 << (16 | (offset * dtype.size())).trailing_zeros());
        if let Some(ld) = ld {
            problem = problem.ld(name, *ld);
        }
        if let Some(stride) = batch_stride {
            problem = problem.batch_stride(name, *stride);
        }
    }
    problem
}

impl Network {
    /// Binds extents, fuses the network, compiles its kernels side by side or takes them from the cache, and copies its
    /// constants to the device. `compiled` is told of each kernel that is there, with the number of all.
    ///
    /// # Errors
    /// If an extent is not bound, nodes have no kernel (all of them), or a kernel does not compile.
    pub fn plan_with(
        &self,
        device: &Device,
        extents: &[(&str, usize)],
        compiled: impl Fn(usize) + Sync,
    ) -> Result<NetworkPlan, NetworkPlanError> {
        let fused = self.bind(extents).map_err(FuseError::from)?.fuse_for(device.target().has_cp_async_and_mma16())?;
        let unserved: Vec<UnservedNode> = fused
            .unserved()
            .map(|(node, why)| UnservedNode {
                node: node.name.to_string(),
                operator: node.operator_name().to_owned(),
                why: why.to_owned(),
            })
            .collect();
        if !unserved.is_empty() {
            return Err(NetworkPlanError::Unserved(unserved));
        }
        let wanted: Vec<Wanted> = fused
            .kernels()
            .map(|kernel| {
                let (gemm, target, gpu) = (kernel.gemm.clone(), device.target(), device.gpu());
                Wanted { gemm, target, gpu, problem: problem(kernel) }
            })
            .collect();
        let stream = device.context().default_stream();
        // Constants are copied while kernels are read and loaded.
        let (constants, plans) = both(|| constants(&fused, &stream), || plans(&fused, device, &wanted, &compiled));
        let (plans, constants) = (plans?, constants?);
        let arena = stream.alloc_zeros(fused.memory().peak.max(1)).map_err(driver("allocate the arena of a network"))?;
        stream.synchronize().map_err(driver("copy the constants of a network"))?;
        Ok(NetworkPlan { replays: Replays::default(), fused, plans, arena, constants, side: None })
    }

    /// [`plan_with`](Network::plan_with) without a listener.
    ///
    /// # Errors
    /// As `plan_with`.
    pub fn plan(&self, device: &Device, extents: &[(&str, usize)]) -> Result<NetworkPlan, NetworkPlanError> {
        self.plan_with(device, extents, |_| ())
    }
}

/// Compiles the kernels or reads them, and loads each as soon as it is there: the driver takes longer to load one than a file
/// takes to be read.
fn plans(
    fused: &Fused,
    device: &Device,
    wanted: &[Wanted],
    compiled: &(impl Fn(usize) + Sync),
) -> Result<Vec<Plan>, NetworkPlanError> {
    let kernels: Vec<&Kernel> = fused.kernels().collect();
    let (sender, there) = mpsc::channel();
    let sender = Mutex::new(Some(sender));
    let compile = || {
        // What waits for kernels ends when this sender is dropped.
        let Some(sender) = sender.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        precompile(device.cache(), wanted, 0, |at, _| {
            compiled(wanted.len());
            // Nobody listens after a panic.
            let _ = sender.send(at);
        });
    };
    let load = || {
        let mut plans: Vec<_> = kernels.iter().map(|_| None).collect();
        for at in there {
            let kernel = kernels[at];
            plans[at] = Some(kernel.gemm.plan(device, problem(kernel)).map_err(|error| failed(fused, kernel, error)));
        }
        plans.into_iter().flatten().collect()
    };
    both(compile, load).1
}

/// Copies what kernels read of the network's constants, and outputs that are constants, to the device, the smallest first. Other
/// threads compute those that nobody has read, the largest first.
fn constants(fused: &Fused, stream: &Arc<CudaStream>) -> Result<HashMap<EdgeId, CudaSlice<u8>>, NetworkPlanError> {
    let graph = fused.network().graph();
    let read = fused.kernels().flat_map(|kernel| &kernel.accesses).map(|access| access.edge);
    let outputs = graph.outputs().iter().map(|(_, edge)| fused.root(*edge));
    let edges: BTreeSet<EdgeId> = read.chain(outputs).collect();
    let mut wanted: Vec<(EdgeId, &Tensor)> = edges.into_iter().filter_map(|edge| Some((edge, graph.constant(edge)?))).collect();
    wanted.sort_by_key(|(_, tensor)| tensor.len());
    let compute = || {
        parallel::map(wanted.len(), parallel::cores(), |at| {
            wanted[wanted.len() - 1 - at].1.bytes();
        })
    };
    both(compute, || wanted.iter().map(|(edge, tensor)| Ok((*edge, upload(stream, tensor)?))).collect()).1
}

/// The memory of a tensor on the device.
fn upload(stream: &Arc<CudaStream>, tensor: &Tensor) -> Result<CudaSlice<u8>, NetworkPlanError> {
    // The driver cannot allocate zero bytes.
    let bytes = if tensor.is_empty() { &[0][..] } else { tensor.bytes() };
    stream.clone_htod(bytes).map_err(driver("copy a tensor to the device"))
}

fn failed(fused: &Fused, kernel: &Kernel, error: Error) -> NetworkPlanError {
    let names: Vec<&str> = kernel.nodes.iter().map(|id| &*fused.network().graph().node(*id).name).collect();
    NetworkPlanError::Kernel { nodes: names.join(", "), error: Box::new(error) }
}

/// A tensor of a launch in the arena.
struct Piece<'a> {
    edge: EdgeId,
    memory: CudaViewMut<'a, u8>,
}

/// Cuts the arena into the places of a launch's tensors, in order of their offsets, and calls with all of them. `begin` is
/// where `rest` begins.
fn cut<R>(
    rest: &mut CudaViewMut<'_, u8>,
    begin: usize,
    places: &[(EdgeId, usize, usize)],
    pieces: Vec<Piece<'_>>,
    then: &mut dyn FnMut(Vec<Piece<'_>>) -> R,
) -> R {
    let Some(((edge, offset, bytes), further)) = places.split_first() else { return then(pieces) };
    let (_, mut own) = rest.split_at_mut(offset - begin);
    let (memory, mut behind) = own.split_at_mut(*bytes);
    let mut pieces: Vec<Piece<'_>> = pieces;
    pieces.push(Piece { edge: *edge, memory });
    cut(&mut behind, offset + bytes, further, pieces, then)
}

/// With the strides of an access.
fn strided<B>(mut tensor: ArgTensor<B>, access: &Access) -> ArgTensor<B> {
    if let Some(ld) = access.ld {
        tensor = tensor.ld(ld);
    }
    if let Some(stride) = access.batch_stride {
        tensor = tensor.batch_stride(stride);
    }
    tensor
}

impl NetworkPlan {
    /// What was fused, and where tensors lie.
    pub fn fused(&self) -> &Fused {
        &self.fused
    }

    /// The plans of the kernels, in order.
    pub fn kernels(&self) -> &[Plan] {
        &self.plans
    }

    /// Launches the kernels on inputs in device memory, each as bytes: as many as its tensor has, at an address that is a
    /// multiple of 16, as fresh memory is. Waits for nothing, and may be captured into a CUDA graph once it has run on
    /// the stream.
    ///
    /// Runs that repeat become a CUDA graph unless [`replay`](NetworkPlan::replay) says otherwise.
    ///
    /// # Errors
    /// If an input is missing, unknown or has another size; nothing was launched then. If a launch fails.
    pub fn execute(&mut self, stream: &Arc<CudaStream>, inputs: &[(&str, &CudaSlice<u8>)]) -> Result<(), NetworkPlanError> {
        self.run_or_replay(stream, inputs)
    }

    /// [`execute`](NetworkPlan::execute) for some of the kernels, which find what the last run left: to time them one by one.
    ///
    /// # Errors
    /// As `execute`.
    pub fn execute_kernels(
        &mut self,
        stream: &Arc<CudaStream>,
        inputs: &[(&str, &CudaSlice<u8>)],
        which: Range<usize>,
    ) -> Result<(), NetworkPlanError> {
        let run = &mut |_: usize, plan: &mut Plan, args: &mut DeviceArgs<'_>| plan.execute(stream, args);
        self.each(inputs, which, run)
    }

    /// Calls `run` with some of the kernels, in order: with the number, the plan and the arguments of each.
    ///
    /// # Errors
    /// As [`execute`](NetworkPlan::execute), or what `run` returns.
    pub(super) fn each(
        &mut self,
        inputs: &[(&str, &CudaSlice<u8>)],
        which: Range<usize>,
        run: &mut dyn FnMut(usize, &mut Plan, &mut DeviceArgs<'_>) -> Result<(), Error>,
    ) -> Result<(), NetworkPlanError> {
        let given = self.admitted(inputs)?;
        let NetworkPlan { fused, plans, constants, arena, .. } = self;
        for (at, (kernel, plan)) in fused.kernels().zip(plans).enumerate().filter(|(at, _)| which.contains(at)) {
            let mut places: Vec<(EdgeId, usize, usize)> = kernel
                .accesses
                .iter()
                .filter_map(|access| fused.memory().places.get(&access.edge).map(|at| (access.edge, at.offset, at.bytes)))
                .collect();
            places.sort_unstable_by_key(|(edge, offset, _)| (*offset, *edge));
            places.dedup();
            let mut launch = |mut pieces: Vec<Piece<'_>>| {
                // What is written is borrowed apart from what is read.
                let (mut written, read): (Vec<Piece<'_>>, Vec<Piece<'_>>) =
                    pieces.drain(..).partition(|piece| kernel.accesses.iter().any(|a| a.written && a.edge == piece.edge));
                let memory = |edge: EdgeId| -> Option<CudaView<'_, u8>> {
                    let own = read.iter().find(|piece| piece.edge == edge).map(|piece| piece.memory.as_view());
                    own.or_else(|| constants.get(&edge).or(given.get(&edge).copied()).map(|slice| slice.slice(..)))
                };
                let views: Vec<Option<CudaView<'_, u8>>> = kernel
                    .accesses
                    .iter()
                    .map(|access| memory(access.edge)?.try_slice(access.offset * access.dtype.size()..))
                    .collect();
                let mut args = DeviceArgs::new();
                for (access, view) in kernel.accesses.iter().zip(&views) {
                    if let (false, Some(view)) = (access.written, view) {
                        args = args.input(&access.name, strided(ArgTensor::of_device_bytes(access.dtype, view), access));
                    }
                }
                // A kernel may write a part of a tensor.
                let mut parts: Vec<(&Access, CudaViewMut<'_, u8>)> = Vec::new();
                for piece in &mut written {
                    let access = kernel.accesses.iter().find(|access| access.written && access.edge == piece.edge);
                    let part = access.map(|access| (access, piece.memory.try_slice_mut(access.offset * access.dtype.size()..)));
                    parts.extend(part.and_then(|(access, part)| Some((access, part?))));
                }
                for (access, part) in &mut parts {
                    args = args.output(&access.name, strided(ArgTensor::of_device_bytes(access.dtype, part), access));
                }
                run(at, plan, &mut args)
            };
            let mut whole = arena.slice_mut(..);
            cut(&mut whole, 0, &places, Vec::new(), &mut launch).map_err(|error| failed(fused, kernel, error))?;
        }
        Ok(())
    }

    /// The inputs by their edges, if they are those of the network.
    pub(super) fn admitted<'a>(
        &self,
        inputs: &[(&str, &'a CudaSlice<u8>)],
    ) -> Result<HashMap<EdgeId, &'a CudaSlice<u8>>, NetworkPlanError> {
        let network = self.fused.network();
        let graph = network.graph();
        let wrong = |name: &str, why: String| NetworkPlanError::Input { name: name.to_owned(), why };
        for (name, _) in inputs {
            if !network.inputs().any(|(known, _)| known == *name) {
                let near = meant(name, network.inputs().map(|(name, _)| name));
                return Err(wrong(name, format!("the network has none of that name{near}")));
            }
        }
        let mut out = HashMap::new();
        for edge in graph.inputs() {
            let (name, of) = (&graph.edge(*edge).name, network.type_of(*edge));
            let given = inputs.iter().find(|(given, _)| **given == **name).map(|(_, memory)| *memory);
            let given = given.ok_or_else(|| wrong(name, format!("it is missing; it is {of}")))?;
            // The driver allocates at least a byte for a tensor without elements.
            if Some(given.len()) != of.bytes() && of.bytes() != Some(0) {
                return Err(wrong(name, format!("{} bytes are not {of}", given.len())));
            }
            out.insert(*edge, given);
        }
        Ok(out)
    }

    /// An output of the last run, as bytes. `None` if it is an input, which is not copied.
    pub fn output(&self, name: &str) -> Option<CudaView<'_, u8>> {
        let network = self.fused.network();
        let (_, edge) = network.graph().outputs().iter().find(|(known, _)| **known == *name)?;
        let (view, of) = (self.fused.view(*edge)?, network.type_of(*edge));
        let (begin, bytes) = (view.offset * of.format.size(), of.bytes()?);
        match self.fused.memory().places.get(&view.root) {
            Some(place) => self.arena.try_slice(place.offset + begin..place.offset + begin + bytes),
            None => self.constants.get(&view.root)?.try_slice(begin..begin + bytes),
        }
    }

    /// Runs the network on tensors in host memory: copies them there, launches, copies the outputs back and waits. For
    /// first steps and tests; the copies take longer than the kernels.
    ///
    /// # Errors
    /// As [`execute`](NetworkPlan::execute), or if the device has no memory left.
    pub fn run(
        &mut self,
        stream: &Arc<CudaStream>,
        inputs: &[(&str, Tensor)],
    ) -> Result<Vec<(String, Tensor)>, NetworkPlanError> {
        let mut memory = Vec::new();
        for (name, tensor) in inputs {
            memory.push((*name, upload(stream, tensor)?));
        }
        let borrowed: Vec<(&str, &CudaSlice<u8>)> = memory.iter().map(|(name, memory)| (*name, memory)).collect();
        self.execute(stream, &borrowed)?;
        let network = self.fused.network().clone();
        let mut outputs = Vec::new();
        for ((name, of), (_, edge)) in network.outputs().zip(network.graph().outputs()) {
            let (root, begin) = self.fused.view(*edge).map_or((*edge, 0), |view| (view.root, view.offset * of.format.size()));
            let passed = || {
                let (_, memory) = borrowed.iter().find(|(given, _)| **given == *network.graph().edge(root).name)?;
                memory.try_slice(begin..begin + of.bytes()?)
            };
            let missing = || NetworkPlanError::Input { name: name.to_owned(), why: "the output has no memory".to_owned() };
            let view = self.output(name).or_else(passed).ok_or_else(missing)?;
            let bytes = stream.clone_dtoh(&view).map_err(driver("copy an output to the host"))?;
            let tensor = Tensor::new(of.format, &of.shape().unwrap_or_default(), bytes);
            let wrong = |fault: super::fault::Fault| NetworkPlanError::Input { name: name.to_owned(), why: fault.to_string() };
            outputs.push((name.to_owned(), tensor.map_err(wrong)?));
        }
        Ok(outputs)
    }
}
