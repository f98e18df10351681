//! Running a fused network on the CPU: each kernel by the reference, each other node by its meaning.

use super::{Fused, Kernel, Step};
use crate::args::{HostArgs, IntoTensor, Tensor as ArgTensor};
use crate::network::execute::RunError;
use crate::network::fault::Fault;
use crate::network::graph::{EdgeId, Source};
use crate::network::tensor::Tensor;
use std::collections::HashMap;

impl Fused {
    /// Computes the outputs on the CPU, kernel by kernel: what the kernels of a GPU mean.
    ///
    /// # Errors
    /// As [`Network::run`](crate::network::Network::run).
    pub fn run(&self, inputs: &[(&str, Tensor)]) -> Result<Vec<(String, Tensor)>, RunError> {
        let network = &self.network;
        network.admit(inputs)?;
        let mut memory: HashMap<EdgeId, Tensor> = HashMap::new();
        for (id, edge) in network.graph().edges() {
            let given = match &edge.source {
                Source::Input(_) => inputs.iter().find(|(name, _)| **name == *edge.name).map(|(_, tensor)| tensor.clone()),
                Source::Constant(tensor) => Some(tensor.clone()),
                Source::Node(..) => None,
            };
            memory.extend(given.map(|tensor| (id, tensor)));
        }
        for step in &self.steps {
            let (name, operator) = self.names(step);
            let fail = |fault| RunError::Node { node: name.clone(), operator: operator.clone(), fault };
            match step {
                Step::Kernel(kernel) => self.launch(kernel, &mut memory).map_err(fail)?,
                Step::Node { node, .. } => {
                    let node = network.graph().node(*node);
                    let inputs: Vec<Option<Tensor>> = node
                        .inputs
                        .iter()
                        .map(|edge| edge.map(|edge| self.seen(edge, &memory)).transpose())
                        .collect::<Result<_, _>>()
                        .map_err(fail)?;
                    let inputs: Vec<Option<&Tensor>> = inputs.iter().map(Option::as_ref).collect();
                    let results = node.evaluate(&inputs).map_err(fail)?;
                    memory.extend(node.outputs.iter().copied().zip(results));
                }
            }
        }
        let taken = network.graph().outputs().iter().map(|(name, edge)| {
            let fail = |fault| RunError::Node { node: name.to_string(), operator: "output".to_owned(), fault };
            Ok((name.to_string(), self.seen(*edge, &memory).map_err(fail)?))
        });
        taken.collect()
    }

    /// The nodes and operators of a step, in words.
    fn names(&self, step: &Step) -> (String, String) {
        let graph = self.network.graph();
        let nodes = match step {
            Step::Kernel(kernel) => kernel.nodes.clone(),
            Step::Node { node, .. } => vec![*node],
        };
        let join = |words: Vec<String>| words.join(", ");
        let names = nodes.iter().map(|id| graph.node(*id).name.to_string()).collect();
        (join(names), join(nodes.iter().map(|id| graph.node(*id).operator_name().to_owned()).collect()))
    }

    /// An edge as a tensor of its own.
    fn seen(&self, edge: EdgeId, memory: &HashMap<EdgeId, Tensor>) -> Result<Tensor, Fault> {
        let missing = || Fault::Value("a tensor was not computed".to_owned());
        let Some(view) = self.views.get(&edge) else { return memory.get(&edge).cloned().ok_or_else(missing) };
        let root = memory.get(&view.root).ok_or_else(missing)?;
        let strides: Vec<usize> = view.dims.iter().map(|(_, stride)| *stride).collect();
        let place = |index: &[usize]| view.offset + index.iter().zip(&strides).map(|(i, s)| i * s).sum::<usize>();
        root.gathered(&view.shape(), None, |index| Some(place(index)))
    }

    /// A kernel, by the reference.
    fn launch(&self, kernel: &Kernel, memory: &mut HashMap<EdgeId, Tensor>) -> Result<(), Fault> {
        let mut written: Vec<(EdgeId, Tensor)> = Vec::new();
        for access in kernel.accesses.iter().filter(|access| access.written) {
            let of = self.network.type_of(access.edge);
            // Other kernels may have written other parts of it.
            let known = memory.remove(&access.edge).map_or_else(|| Tensor::blank(of.format, &of.shape().unwrap_or_default()), Ok);
            written.push((access.edge, known?));
        }
        let mut outputs = written.iter_mut();
        let mut args = HostArgs::new();
        for access in &kernel.accesses {
            let strided = |mut tensor: ArgTensor<_>| {
                if let Some(ld) = access.ld {
                    tensor = tensor.ld(ld);
                }
                if let Some(stride) = access.batch_stride {
                    tensor = tensor.batch_stride(stride);
                }
                tensor
            };
            if access.written {
                let (_, tensor) = outputs.next().ok_or_else(|| Fault::Value("an output is lost".to_owned()))?;
                args = args.output(
                    &access.name,
                    strided(ArgTensor::of_bytes_mut(
                        access.dtype,
                        &mut tensor.bytes_mut()[access.offset * access.dtype.size()..],
                    )),
                );
            } else {
                let root = memory.get(&access.edge).ok_or_else(|| Fault::Value("a tensor was not computed".to_owned()))?;
                let bytes = root.bytes().get(access.offset * access.dtype.size()..).unwrap_or_default();
                args = args.input(&access.name, strided(ArgTensor::of_bytes(access.dtype, bytes)));
            }
        }
        kernel.gemm.reference(kernel.shape, args).map_err(|errors| Fault::Value(errors.to_string()))?;
        memory.extend(written);
        Ok(())
    }
}
