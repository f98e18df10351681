//! Minimum cuts: the cheapest set of vertices that lies on every path from a source to a use.
//!
//! Among several such sets it takes the one nearest to the uses, which leaves the least to compute again.

use std::collections::VecDeque;

/// More than any sum of weights.
pub(super) const NEVER: u64 = 1 << 40;

/// Vertices with weights, and the edges between them.
pub(super) struct Network {
    weights: Vec<u64>,
    edges: Vec<(usize, usize)>,
    sources: Vec<usize>,
    uses: Vec<usize>,
}

/// A directed edge and its remaining capacity. Its reverse is the next edge.
struct Arc {
    to: usize,
    left: u64,
}

impl Network {
    pub fn new(weights: Vec<u64>) -> Network {
        Network { weights, edges: Vec::new(), sources: Vec::new(), uses: Vec::new() }
    }

    pub fn edge(&mut self, from: usize, to: usize) {
        self.edges.push((from, to));
    }

    /// Marks a value that exists only in the forward pass.
    pub fn source(&mut self, vertex: usize) {
        self.sources.push(vertex);
    }

    /// Marks a value that the backward pass needs.
    pub fn needed(&mut self, vertex: usize) {
        self.uses.push(vertex);
    }

    /// The cut, in order of vertices; `None` if every cut contains a vertex of weight [`NEVER`].
    pub fn cut(&self) -> Option<Vec<usize>> {
        // Vertex v is an arc of its weight from 2v to 2v + 1. Edges and both ends have unlimited capacity.
        let count = self.weights.len();
        let (source, sink) = (2 * count, 2 * count + 1);
        let (mut arcs, mut leaving) = (Vec::new(), vec![Vec::new(); 2 * count + 2]);
        let mut add = |from: usize, to: usize, carries: u64| {
            leaving[from].push(arcs.len());
            arcs.push(Arc { to, left: carries });
            leaving[to].push(arcs.len());
            arcs.push(Arc { to: from, left: 0 });
        };
        self.weights.iter().enumerate().for_each(|(v, weight)| add(2 * v, 2 * v + 1, *weight));
        self.edges.iter().for_each(|(from, to)| add(2 * from + 1, 2 * to, NEVER));
        self.sources.iter().for_each(|v| add(source, 2 * v, NEVER));
        self.uses.iter().for_each(|v| add(2 * v + 1, sink, NEVER));
        let mut flow = 0;
        // Augments along shortest paths.
        loop {
            let mut reached_by: Vec<Option<usize>> = vec![None; leaving.len()];
            let mut queue = VecDeque::from([source]);
            while let Some(at) = queue.pop_front() {
                for &arc in &leaving[at] {
                    let to = arcs[arc].to;
                    if arcs[arc].left > 0 && to != source && reached_by[to].is_none() {
                        reached_by[to] = Some(arc);
                        queue.push_back(to);
                    }
                }
            }
            let path = || std::iter::successors(reached_by[sink], |arc| reached_by[arcs[arc ^ 1].to]);
            let Some(least) = path().map(|arc| arcs[arc].left).min() else { break };
            let path: Vec<usize> = path().collect();
            for arc in path {
                arcs[arc].left -= least;
                arcs[arc ^ 1].left += least;
            }
            flow += least;
            if flow >= NEVER {
                return None;
            }
        }
        // Vertices that still reach a use lie behind the cut.
        let mut behind = vec![false; leaving.len()];
        behind[sink] = true;
        let mut stack = vec![sink];
        while let Some(at) = stack.pop() {
            for &arc in &leaving[at] {
                let from = arcs[arc].to;
                if arcs[arc ^ 1].left > 0 && !behind[from] {
                    behind[from] = true;
                    stack.push(from);
                }
            }
        }
        Some((0..count).filter(|v| behind[2 * v + 1] && !behind[2 * v]).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 0 feeds 1 and 2, both feed 3; 1 and 3 are needed.
    fn diamond(weights: [u64; 4]) -> Option<Vec<usize>> {
        let mut network = Network::new(weights.to_vec());
        [(0, 1), (0, 2), (1, 3), (2, 3)].into_iter().for_each(|(from, to)| network.edge(from, to));
        network.source(0);
        [1, 3].into_iter().for_each(|v| network.needed(v));
        network.cut()
    }

    #[test]
    fn the_cheapest_set_is_found() {
        assert_eq!(diamond([16, 16, 16, 16]), Some(vec![0]));
        assert_eq!(diamond([16, 1, 16, 1]), Some(vec![1, 3]));
        assert_eq!(diamond([16, 1, 1, 16]), Some(vec![1, 2]));
        assert_eq!(diamond([NEVER, 16, 16, NEVER]), Some(vec![1, 2]));
        assert_eq!(diamond([NEVER, NEVER, 1, 1]), None);
    }

    #[test]
    fn among_equals_the_one_nearest_to_the_uses_is_taken() {
        let mut chain = Network::new(vec![16; 5]);
        (0..4).for_each(|v| chain.edge(v, v + 1));
        chain.source(0);
        chain.needed(3);
        assert_eq!(chain.cut(), Some(vec![3]));
        // If nothing is needed, nothing is cut.
        let mut idle = Network::new(vec![16; 2]);
        idle.edge(0, 1);
        idle.source(0);
        assert_eq!(idle.cut(), Some(vec![]));
    }

    #[test]
    fn what_costs_nothing_is_cut_only_where_it_helps() {
        // 0 -> 1 -> 2 is needed, and 1 -> 3 is not.
        let mut network = Network::new(vec![16, 0, 16, 0]);
        [(0, 1), (1, 2), (1, 3)].into_iter().for_each(|(from, to)| network.edge(from, to));
        network.source(0);
        network.needed(2);
        assert_eq!(network.cut(), Some(vec![1]));
    }
}
