//! Runs that repeat become CUDA graphs: one launch in place of one for each kernel.

use super::device::{NetworkPlan, NetworkPlanError};
use super::graph::EdgeId;
use crate::device::{Recorded, Side};
use cudarc::driver::{CudaSlice, CudaStream, DevicePtr, DevicePtrMut};
use std::collections::HashMap;
use std::sync::Arc;

/// Runs that are remembered: a program may turn through a few sets of inputs.
const MOST: usize = 8;

/// Kernels of a network from which on one launch is cheaper than several.
const WORTHWHILE: usize = 3;

/// How far a run has come on its way to a graph.
enum Stage {
    /// It was launched kernel by kernel once, so the program itself may record its stream.
    Launched,
    /// It was launched in the side stream, where its kernels have their memory beside the arena.
    Prepared,
    Recorded(Recorded),
    /// The driver did not record it.
    Failed,
}

/// A run by where it reads: the stream, and the address of each input.
struct Run {
    stream: Arc<CudaStream>,
    inputs: Vec<(EdgeId, u64)>,
    stage: Stage,
}

/// The runs of a network, the last one first.
#[derive(Default)]
pub(super) struct Replays {
    runs: Vec<Run>,
    /// Whether the program wants no graphs.
    off: bool,
}

impl Replays {
    /// Forgets all: the kernels are others now.
    pub fn clear(&mut self) {
        self.runs.clear();
    }
}

impl NetworkPlan {
    /// Whether runs that repeat become CUDA graphs, as they do by default: the host is done sooner.
    ///
    /// The third run on the same stream and the same memory is recorded, and later ones launch the graph. Eight such runs are
    /// remembered. A network of one or two kernels has no graph, nor has a stream that the program records, nor a per-thread
    /// default stream. Memory that a graph reads may be freed if no later run passes it.
    pub fn replay(&mut self, wanted: bool) {
        self.replays = Replays { off: !wanted, ..Replays::default() };
    }

    /// How many runs are recorded as CUDA graphs.
    pub fn recorded(&self) -> usize {
        self.replays.runs.iter().filter(|run| matches!(run.stage, Stage::Recorded(_))).count()
    }

    /// Launches the graph of a run, or its kernels, which are recorded when they have repeated.
    pub(super) fn run_or_replay(
        &mut self,
        stream: &Arc<CudaStream>,
        inputs: &[(&str, &CudaSlice<u8>)],
    ) -> Result<(), NetworkPlanError> {
        if self.replays.off || self.kernels().len() < WORTHWHILE || !Recorded::suits(stream) {
            return self.execute_kernels(stream, inputs, 0..usize::MAX);
        }
        let given = self.admitted(inputs)?;
        let mut addresses: Vec<(EdgeId, u64)> = given.iter().map(|(edge, memory)| (*edge, memory.device_ptr(stream).0)).collect();
        addresses.sort_unstable();
        if !self.replays.turn_to(stream, &addresses) {
            self.execute_kernels(stream, inputs, 0..usize::MAX)?;
            self.replays.remember(stream, addresses);
            return Ok(());
        }
        match self.replays.runs[0].stage {
            Stage::Recorded(_) => {}
            Stage::Failed => return self.execute_kernels(stream, inputs, 0..usize::MAX),
            Stage::Launched => {
                let prepared = self.prepare(stream, inputs, &given).is_ok();
                self.replays.runs[0].stage = if prepared { Stage::Prepared } else { Stage::Failed };
                // Without memory for the side stream, say, the kernels run as before.
                return if prepared { Ok(()) } else { self.execute_kernels(stream, inputs, 0..usize::MAX) };
            }
            Stage::Prepared => {
                let Some(side) = self.side.take() else { return self.execute_kernels(stream, inputs, 0..usize::MAX) };
                let graph = side.record(|| self.execute_in(stream, &side, inputs).is_ok());
                self.side = Some(side);
                self.replays.runs[0].stage = graph.map_or(Stage::Failed, Stage::Recorded);
            }
        }
        match &mut self.replays.runs[0].stage {
            Stage::Recorded(graph) => ordered(stream, &given, &mut self.arena, || Ok(graph.launch(stream)?)),
            _ => self.execute_kernels(stream, inputs, 0..usize::MAX),
        }
    }

    /// A run in the side stream, which allocates what kernels need there: a capture allocates nothing.
    fn prepare(
        &mut self,
        stream: &Arc<CudaStream>,
        inputs: &[(&str, &CudaSlice<u8>)],
        given: &HashMap<EdgeId, &CudaSlice<u8>>,
    ) -> Result<(), NetworkPlanError> {
        let side = match self.side.take() {
            Some(side) => side,
            None => Side::new(stream.context())?,
        };
        // The stream waits for what wrote the inputs, so that the side stream does. And it has to say when it read them.
        ordered(stream, given, &mut self.arena, || ());
        let done = side.between(stream, || self.execute_in(stream, &side, inputs));
        ordered(stream, given, &mut self.arena, || ());
        self.side = Some(side);
        done
    }

    /// Launches the kernels in the side stream.
    fn execute_in(
        &mut self,
        stream: &Arc<CudaStream>,
        side: &Side,
        inputs: &[(&str, &CudaSlice<u8>)],
    ) -> Result<(), NetworkPlanError> {
        self.each(inputs, 0..usize::MAX, &mut |_, plan, args| plan.execute_beside(stream, side.stream(), args))
    }
}

/// Calls `run`, whose work in the stream comes behind what wrote the inputs and used the arena, and before what uses them next.
fn ordered<R>(
    stream: &CudaStream,
    given: &HashMap<EdgeId, &CudaSlice<u8>>,
    arena: &mut CudaSlice<u8>,
    run: impl FnOnce() -> R,
) -> R {
    let _read: Vec<_> = given.values().map(|memory| memory.device_ptr(stream).1).collect();
    let _written = arena.device_ptr_mut(stream).1;
    run()
}

impl Replays {
    /// Puts the run on this stream and memory first. False if it is not remembered.
    fn turn_to(&mut self, stream: &Arc<CudaStream>, inputs: &[(EdgeId, u64)]) -> bool {
        let at = self.runs.iter().position(|run| *run.stream == **stream && run.inputs == inputs);
        if let Some(at) = at {
            self.runs[..=at].rotate_right(1);
        }
        at.is_some()
    }

    /// Remembers a run that was launched, first of all.
    fn remember(&mut self, stream: &Arc<CudaStream>, inputs: Vec<(EdgeId, u64)>) {
        self.runs.truncate(MOST - 1);
        self.runs.insert(0, Run { stream: stream.clone(), inputs, stage: Stage::Launched });
    }
}
