//! The memory of a fused network: where each tensor lies in one arena, and for how long.

use super::kernel::Kernel;
use super::{Fused, Step};
use crate::network::graph::EdgeId;
use std::collections::HashMap;

/// Bytes that every tensor's place is a multiple of.
pub(super) const ALIGNMENT: usize = 256;

/// Where a tensor lies in the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Bytes before it.
    pub offset: usize,
    /// Its bytes.
    pub bytes: usize,
    /// The first and the last step that uses it.
    pub life: (usize, usize),
}

/// The arena of a fused network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryPlan {
    /// The place of each tensor that steps compute.
    pub places: HashMap<EdgeId, Place>,
    /// Bytes of the arena.
    pub peak: usize,
    /// Bytes of all tensors together.
    pub sum: usize,
    /// Bytes of the tensors that are alive at the same time, at most: no arena is smaller.
    pub bound: usize,
}

/// Places the tensors that steps compute: the longest-lived and largest first, each in the smallest gap that holds it.
pub(super) fn plan(fused: &Fused) -> MemoryPlan {
    let mut lives: HashMap<EdgeId, (usize, usize)> = HashMap::new();
    for (at, step) in fused.steps.iter().enumerate() {
        for edge in fused.roots(step) {
            let life = lives.entry(edge).or_insert((at, at));
            life.1 = at;
        }
    }
    // What a caller gets lives to the end.
    for (_, edge) in fused.network.graph().outputs() {
        if let Some(life) = lives.get_mut(&fused.root(*edge)) {
            life.1 = fused.steps.len();
        }
    }
    let bytes = |edge: &EdgeId| fused.network.type_of(*edge).bytes().unwrap_or(0).next_multiple_of(ALIGNMENT);
    let mut tensors: Vec<(EdgeId, (usize, usize), usize)> = lives
        .into_iter()
        .filter(|(edge, _)| !Kernel::is_given(&fused.network, *edge))
        .map(|(edge, life)| (edge, life, bytes(&edge)))
        .collect();
    tensors.sort_by_key(|(edge, life, bytes)| (std::cmp::Reverse(*bytes), life.0, *edge));
    let mut plan = MemoryPlan::default();
    for (edge, life, bytes) in &tensors {
        let mut taken: Vec<(usize, usize)> = plan
            .places
            .values()
            .filter(|place| place.life.0 <= life.1 && life.0 <= place.life.1)
            .map(|place| (place.offset, place.offset + place.bytes))
            .collect();
        taken.sort_unstable();
        let (mut offset, mut best, mut end) = (None, usize::MAX, 0);
        for (from, to) in taken {
            if from >= end && from - end >= *bytes && from - end < best {
                (offset, best) = (Some(end), from - end);
            }
            end = end.max(to);
        }
        let offset = offset.unwrap_or(end);
        plan.places.insert(*edge, Place { offset, bytes: *bytes, life: *life });
        plan.peak = plan.peak.max(offset + bytes);
        plan.sum += bytes;
    }
    let alive = |at: usize| tensors.iter().filter(|(_, life, _)| life.0 <= at && at <= life.1).map(|(.., bytes)| bytes).sum();
    plan.bound = (0..=fused.steps.len()).map(alive).max().unwrap_or(0);
    plan
}

/// Bytes that the steps read and write, each tensor once a step.
pub(super) fn traffic(fused: &Fused) -> usize {
    let bytes = |edge: EdgeId| fused.network.type_of(edge).bytes().unwrap_or(0);
    let step = |step: &Step| fused.roots(step).into_iter().map(bytes).sum::<usize>();
    fused.steps.iter().map(step).sum()
}
