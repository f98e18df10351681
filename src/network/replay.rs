//! Runs that repeat become CUDA graphs: one launch in place of one for each kernel.

use super::device::{NetworkPlan, NetworkPlanError};
use super::graph::EdgeId;
use crate::device::Recorded;
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr};
use std::collections::HashMap;
use std::sync::Arc;

/// Runs on the same memory before the one that is recorded. The first allocates what kernels need beside the arena.
const BEFORE: usize = 2;

/// Runs that are remembered: a program may turn through a few sets of inputs.
const MOST: usize = 8;

/// Kernels of a network from which on one launch is cheaper than several.
const WORTHWHILE: usize = 3;

/// A run by where it reads: the stream, and the address of each input.
struct Run {
    stream: Arc<CudaStream>,
    inputs: Vec<(EdgeId, u64)>,
    /// How often it was launched kernel by kernel.
    count: usize,
    graph: Option<Recorded>,
    /// Whether recording has failed.
    fails: bool,
}

/// The runs of a network, the last one first.
#[derive(Default)]
pub(super) struct Replays {
    runs: Vec<Run>,
    /// Whether the program wants graphs.
    on: bool,
}

impl Replays {
    /// Forgets all: the kernels are others now.
    pub fn clear(&mut self) {
        self.runs.clear();
    }
}

impl NetworkPlan {
    /// Whether runs that repeat become CUDA graphs. They do not by default, because this has not run on a GPU yet.
    ///
    /// The third run on the same stream and the same memory is recorded, and later ones launch the graph: the host is done
    /// sooner. It has to be a stream of the program's own, and the context may not order streams by events
    /// (`CudaContext::disable_event_tracking`): otherwise each run launches the kernels. Memory that a graph reads may be
    /// freed if no later run passes it.
    pub fn replay(&mut self, wanted: bool) {
        self.replays = Replays { on: wanted, ..Replays::default() };
    }

    /// How many runs are recorded as CUDA graphs.
    pub fn recorded(&self) -> usize {
        self.replays.runs.iter().filter(|run| run.graph.is_some()).count()
    }

    /// Launches the graph of a run, or its kernels, which are recorded when they have repeated.
    pub(super) fn run_or_replay(
        &mut self,
        stream: &Arc<CudaStream>,
        inputs: &[(&str, &CudaSlice<u8>)],
    ) -> Result<(), NetworkPlanError> {
        if !self.replays.on || self.kernels().len() < WORTHWHILE || !Recorded::is_possible(stream) {
            return self.execute_kernels(stream, inputs, 0..usize::MAX);
        }
        let given = self.admitted(inputs)?;
        let run = self.replays.run(stream, &given);
        if let Some(graph) = &mut run.graph {
            return Ok(graph.launch()?);
        }
        run.count += 1;
        if run.count <= BEFORE || run.fails {
            return self.execute_kernels(stream, inputs, 0..usize::MAX);
        }
        let mut graph = Recorded::of(stream, || self.execute_kernels(stream, inputs, 0..usize::MAX).is_ok());
        let launched = graph.as_mut().is_some_and(|graph| graph.launch().is_ok());
        let run = &mut self.replays.runs[0];
        (run.graph, run.fails) = (graph.filter(|_| launched), !launched);
        if launched { Ok(()) } else { self.execute_kernels(stream, inputs, 0..usize::MAX) }
    }
}

impl Replays {
    /// The run on this stream and memory, first of all from now on.
    fn run(&mut self, stream: &Arc<CudaStream>, given: &HashMap<EdgeId, &CudaSlice<u8>>) -> &mut Run {
        let mut inputs: Vec<(EdgeId, u64)> = given.iter().map(|(edge, memory)| (*edge, memory.device_ptr(stream).0)).collect();
        inputs.sort_unstable();
        match self.runs.iter().position(|run| Arc::ptr_eq(&run.stream, stream) && run.inputs == inputs) {
            Some(at) => self.runs[..=at].rotate_right(1),
            None => {
                self.runs.truncate(MOST - 1);
                self.runs.insert(0, Run { stream: stream.clone(), inputs, count: 0, graph: None, fails: false });
            }
        }
        &mut self.runs[0]
    }
}
