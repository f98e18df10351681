//! The program: every value of an epilogue placed where it varies, regions as branches.
//!
//! A value that varies along neither M nor N is computed once per tile. A value that varies along N only is computed
//! once per thread and column strip, along M only once per row, and otherwise in the visit of a strip. [`Phase::of`] is
//! all there is to loop-invariant motion.
//!
//! # Regions
//!
//! A select becomes a branch if its condition is *positional* and the code that only its arms need costs enough. A
//! condition is positional if it consists of coordinates, scalars and constants, or is constant along a row. Where the
//! condition is uniform over a strip, one arm runs. A condition that varies along the strip runs an arm if any of its
//! elements needs it, and selects for each element. So no arm's code is duplicated, and only strips that the boundary
//! crosses evaluate both arms. Every other select stays a select, and so does one inside eight others that branch.

use crate::check::Checked;
use crate::dtype::ValueType;
use crate::ir::axes::{Axes, L, M, N, S};
use crate::ir::graph::{BuiltAt, Constant, Coordinate, Node, NodeId};
use crate::ir::op::Op;
use crate::ir::{CustomOp, Monoid, Operand, Reduction, SinkKind};
use crate::plan::epilogue::stage::{band, within_bands};
use crate::plan::{Item, OperandSum, PlannedCount, PlannedReduction, RowReduce, Stage};
use serde::Serialize;

/// How often a value is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Once per tile.
    Tile,
    /// Once per thread and strip of columns: an array over the strip.
    Column,
    /// Once per row.
    Row,
    /// For every strip of every row: an array over the strip.
    Visit,
}

impl Phase {
    /// Where a value that varies along these axes is computed. Batch entry and sequence are the same for a whole tile.
    pub fn of(axes: Axes) -> Phase {
        match axes.without(L.union(S)) {
            Axes::MN => Phase::Visit,
            M => Phase::Row,
            N => Phase::Column,
            _ => Phase::Tile,
        }
    }

    /// The phase of a value behind this many reductions along the row. A value that is otherwise computed once per tile
    /// is then computed for each row, and a value per column for each element.
    pub fn behind(stage: usize, axes: Axes) -> Phase {
        match Phase::of(axes) {
            Phase::Tile if stage > 0 => Phase::Row,
            Phase::Column if stage > 0 => Phase::Visit,
            phase => phase,
        }
    }

    /// Whether the value is an array over the strip.
    pub fn is_array(self) -> bool {
        matches!(self, Phase::Column | Phase::Visit)
    }
}

/// One value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Instr {
    /// Its type.
    pub value: ValueType,
    /// The phase that computes it.
    pub phase: Phase,
    /// How many reductions along the row lie behind it, one behind the other.
    #[serde(skip_serializing_if = "is_first")]
    pub stage: usize,
    /// How it is computed.
    pub kind: InstrKind,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_first(stage: &usize) -> bool {
    *stage == 0
}

/// How a value is computed. Numbers are indices into [`Program::steps`]; arguments are indices into
/// [`Checked::arguments`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum InstrKind {
    /// The mainloop passes it to the epilogue.
    Accumulator,
    /// A literal.
    Constant(#[serde(serialize_with = "constant_as_text")] Constant),
    /// From the coordinates of the element.
    Coordinate(Coordinate),
    /// From the parameter block.
    Scalar {
        /// Which argument.
        argument: usize,
    },
    /// From memory.
    Load {
        /// Which argument.
        argument: usize,
        /// How it lies in memory.
        operand: Operand,
    },
    /// From a table in memory.
    Gather {
        /// Which argument.
        argument: usize,
        /// The index: one operand.
        args: Vec<usize>,
    },
    /// A primitive of the table.
    Apply {
        /// Which.
        op: Op,
        /// Its operands.
        args: Vec<usize>,
    },
    /// The result of a reduction along the row, from one of the [`Stage`]s.
    Reduced,
    /// A custom primitive of the user.
    Custom {
        /// The primitive's name.
        name: String,
        /// Its spelling.
        cuda: String,
        /// Its operands.
        args: Vec<usize>,
    },
}

fn constant_as_text<S: serde::Serializer>(constant: &Constant, s: S) -> Result<S::Ok, S::Error> {
    s.collect_str(&constant.value())
}

/// One store.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Store {
    /// Which argument.
    pub argument: usize,
    /// How it lies in memory.
    pub operand: Operand,
    /// The value.
    pub value: usize,
}

/// An epilogue whose values are placed in phases.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Program {
    /// Every live value, operands before users.
    pub steps: Vec<Instr>,
    /// The visit: values of [`Phase::Visit`] that are not loads or the accumulator.
    pub visit: Vec<Item>,
    /// The reductions along rows before the visit, stage by stage.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<Stage>,
    /// The stores, after everything in the visit.
    pub stores: Vec<Store>,
    /// The reductions, after the stores.
    pub reductions: Vec<PlannedReduction>,
    /// Columns that reductions before the visit take together, if these are not all of a row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub band: Option<usize>,
    /// The counts, after the reductions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<PlannedCount>,
    /// The sums of operands over K, which the mainloop computes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sums: Vec<OperandSum>,
    /// Where in the user's program each value was built.
    #[serde(skip)]
    pub built_at: Vec<BuiltAt>,
}

/// How deep branches nest. A select further inside stays a select. Diverged lanes meet again at hardware barriers, of
/// which there are sixteen, and ptxas 13.0 has miscompiled two kernels that nested 24 deep
/// (`docs/measurements/0038-ptxas-miscompiles.md`).
const DEEPEST_BRANCH: usize = 8;

/// A select becomes a branch from this many issue slots of one element on, both arms together, spelled exactly.
const BRANCH_PAYS: u32 = 12;

/// From this many issue slots of an element in the visit on, a Hopper kernel's code covers half of a tile's columns and
/// runs twice.
const SPLIT_FROM: u32 = 24;

/// Issue slots, spelled exactly, from which on a value of an element is dear: special functions are.
const DEAR: u32 = 6;

impl Program {
    /// Places the values of a graph without calls.
    ///
    /// # Panics
    /// If the graph still has calls.
    pub fn of(checked: &Checked) -> Program {
        let graph = checked.graph();
        let (live, behind) = (graph.live(), graph.stages());
        let mut stages: Vec<Stage> = Vec::new();
        let mut places = vec![usize::MAX; graph.len()];
        let (mut steps, mut built_at) = (Vec::new(), Vec::new());
        let argument = |name: &str| checked.argument(name).map_or(usize::MAX, |(index, _)| index);
        let within = within_bands(checked);
        // Elements of operands have no value at an element of the output.
        let valued = |(id, node): &(NodeId, &Node)| live[id.index()] && !matches!(node, Node::Element(..));
        for (id, node) in graph.nodes().filter(valued) {
            let value = checked.type_of(id).value;
            let args = || node.args().iter().map(|a| places[a.index()]).collect();
            let kind = match node {
                Node::Accumulator(_) => InstrKind::Accumulator,
                Node::Constant(c) => InstrKind::Constant(*c),
                Node::Coordinate(c) => InstrKind::Coordinate(*c),
                Node::Scalar { name, .. } => InstrKind::Scalar { argument: argument(name) },
                Node::Load { name, operand, .. } => InstrKind::Load { argument: argument(name), operand: *operand },
                Node::Gather { name, .. } => InstrKind::Gather { argument: argument(name), args: args() },
                Node::Apply { op, .. } => InstrKind::Apply { op: *op, args: args() },
                Node::Custom { op, .. } => InstrKind::Custom { name: op.name().into(), cuda: op.cuda().into(), args: args() },
                Node::Call { function, .. } => unreachable!("`{}` was not inlined", function.name),
                Node::Element(..) => unreachable!("elements of operands have been left out"),
                Node::Reduce { monoid, args, over } => {
                    let (value, terms) = (checked.type_of(args[0]).value, checked.terms(*monoid, args));
                    let stage = behind[id.index()];
                    stages.resize_with(stages.len().max(stage), Stage::default);
                    let terms = terms.into_iter().map(|a| places[a.index()]).collect();
                    let whole = over.axes.is_matrix();
                    let reduction = RowReduce { step: steps.len(), terms, value, monoid: *monoid, whole, beside: None };
                    stages[stage - 1].reductions.push(reduction);
                    InstrKind::Reduced
                }
            };
            places[id.index()] = steps.len();
            let stage = behind[id.index()];
            steps.push(Instr { value, phase: Phase::behind(stage, within[id.index()]), stage, kind });
            built_at.push(graph.built_at(id));
        }
        let (mut stores, mut reductions, mut counts, mut sums) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for sink in graph.sinks() {
            let (argument, place) = (argument(&sink.name), |id: NodeId| places[id.index()]);
            if let (Node::Element(side, value), SinkKind::Reduce(reduction)) = (graph.node(sink.value()), sink.kind) {
                let Reduction { operand, accumulate, .. } = reduction;
                sums.push(OperandSum { argument, operand, side: *side, value: *value, accumulate });
                continue;
            }
            match sink.kind {
                SinkKind::Store(operand) => stores.push(Store { argument, operand, value: place(sink.value()) }),
                SinkKind::Bincount(_) => counts.push(PlannedCount { argument, value: place(sink.value()) }),
                SinkKind::Reduce(Reduction { monoid, atomic, accumulate, operand }) => {
                    let value = checked.type_of(sink.value()).value;
                    let terms = checked.terms(monoid, &sink.values).into_iter().map(place).collect();
                    let only_totals = false;
                    reductions.push(PlannedReduction {
                        argument,
                        operand,
                        terms,
                        value,
                        monoid,
                        atomic,
                        accumulate,
                        only_totals,
                    });
                }
            }
        }
        let only_totals = sums.is_empty() && reductions.iter().all(|reduction| reduction.operand.axes == Axes::NONE);
        reductions.iter_mut().for_each(|reduction| reduction.only_totals = only_totals);
        stages.iter_mut().for_each(Stage::merge);
        let band = band(checked);
        let mut program = Program { steps, visit: Vec::new(), stages, stores, reductions, band, counts, sums, built_at };
        program.visit = Regions::of(&program, &program.ends().collect::<Vec<_>>()).items();
        for stage in 0..program.stages.len() {
            let reductions = &program.stages[stage].reductions;
            let items = |of_label: bool| {
                let of = reductions.iter().filter(|reduction| program.takes_label(reduction) == of_label);
                let terms: Vec<usize> = of.flat_map(|reduction| reduction.terms.iter().copied()).collect();
                Regions::of(&program, &terms).items()
            };
            let [visit, at_label] = [false, true].map(items);
            (program.stages[stage].visit, program.stages[stage].at_label) = (visit, at_label);
        }
        program
    }

    /// The operands of a step.
    pub fn args(&self, step: usize) -> &[usize] {
        match &self.steps[step].kind {
            InstrKind::Gather { args, .. } | InstrKind::Apply { args, .. } | InstrKind::Custom { args, .. } => args,
            _ => &[],
        }
    }

    /// Whether the value is an expression that is repeated wherever it is used, and has no variable: constants,
    /// coordinates, scalars.
    pub fn is_inline(&self, step: usize) -> bool {
        matches!(self.steps[step].kind, InstrKind::Constant(_) | InstrKind::Coordinate(_) | InstrKind::Scalar { .. })
    }

    /// Whether no expression computes the value: a load, the accumulator, the result of a reduction.
    pub fn is_given(&self, step: usize) -> bool {
        matches!(self.steps[step].kind, InstrKind::Load { .. } | InstrKind::Accumulator | InstrKind::Reduced)
    }

    /// Every monoid with the type that it reduces: first those of the sinks, then those of reductions along rows.
    pub fn monoids(&self) -> impl Iterator<Item = (Monoid, ValueType)> + '_ {
        let inside = self.stages.iter().flat_map(|stage| &stage.reductions).map(|r| (r.monoid, r.value));
        self.reductions.iter().map(|r| (r.monoid, r.value)).chain(inside)
    }

    /// The steps that a phase computes, in order.
    pub fn of_phase(&self, phase: Phase) -> impl Iterator<Item = usize> + '_ {
        (0..self.steps.len()).filter(move |&s| self.steps[s].phase == phase && !self.is_inline(s))
    }

    /// What a phase loads: the step, the argument and the operand.
    pub(in crate::plan) fn loads_of(&self, phase: Phase) -> impl Iterator<Item = (usize, usize, Operand)> {
        self.of_phase(phase).filter_map(|step| match self.steps[step].kind {
            InstrKind::Load { argument, operand } => Some((step, argument, operand)),
            _ => None,
        })
    }

    /// Issue slots of one element in the visit, roughly: all arms together, in the spelling of exact or fast math.
    pub fn cost(&self, fast_math: bool) -> u32 {
        let visit = (0..self.steps.len()).filter(|&s| self.steps[s].phase == Phase::Visit);
        let steps = visit.map(|s| self.step_cost(s, fast_math));
        let inside = self.stages.iter().flat_map(|stage| &stage.reductions).map(|r| r.monoid.cost_inside());
        let counts = self.counts.iter().map(|_| PlannedCount::COST);
        steps.chain(self.reductions.iter().map(|r| r.monoid.cost())).chain(inside).chain(counts).sum()
    }

    /// Issue slots of one column that are not those of its elements, spelled exactly, and so many for each vector.
    pub(in crate::plan) fn cost_of_columns(&self, load: u32) -> u32 {
        let cost = |step| if self.is_given(step) { load } else { self.step_cost(step, false) };
        self.of_phase(Phase::Column).map(cost).sum()
    }

    /// Whether a Hopper kernel's code covers half of a tile's columns and runs twice. It does if the longest path
    /// through the visit, along the costlier arm of each branch, takes compilers long and runs out of registers. With
    /// reductions it would cost the registers that it saves.
    pub fn splits_epilogue(&self, fast_math: bool) -> bool {
        self.reductions.is_empty() && self.counts.is_empty() && self.longest_way(&self.visit, fast_math) >= SPLIT_FROM
    }

    /// Issue slots of one element that stages take before the visit, which computes the same values again.
    pub(in crate::plan) fn cost_of_stages(&self, fast_math: bool) -> u32 {
        self.stages.iter().map(|stage| self.longest_way(&stage.visit, fast_math)).sum()
    }

    /// Whether any reduction before the visit goes over all rows and columns, and whether all of them do.
    pub(in crate::plan) fn reduces_all(&self) -> [bool; 2] {
        let mut inside = self.stages.iter().flat_map(|stage| &stage.reductions);
        [inside.clone().any(|reduction| reduction.whole), inside.all(|reduction| reduction.whole)]
    }

    /// Whether what a stage computes of an element is dear enough to be kept for later stages, at a register an element.
    pub(crate) fn keeps(&self, stage: &Stage) -> bool {
        let dear = |item: &Item| match item {
            Item::Instr(step) | Item::Branch { select: step, .. } => self.step_cost(*step, false) >= DEAR,
        };
        stage.visit.iter().any(dear)
    }

    fn longest_way(&self, items: &[Item], fast_math: bool) -> u32 {
        let cost = |item: &Item| match item {
            Item::Instr(step) => self.step_cost(*step, fast_math),
            Item::Branch { select, then, otherwise } => {
                let arms = [then, otherwise].map(|arm| self.longest_way(arm, fast_math));
                self.step_cost(*select, fast_math) + arms[0].max(arms[1])
            }
        };
        items.iter().map(cost).sum()
    }

    fn step_cost(&self, step: usize, fast_math: bool) -> u32 {
        match &self.steps[step].kind {
            InstrKind::Apply { op, .. } => op.row().cost_of(fast_math),
            InstrKind::Custom { .. } => CustomOp::COST,
            InstrKind::Gather { .. } => Node::GATHER_COST,
            _ => 0,
        }
    }

    /// Whether each value depends only on coordinates and on values that are constant along a row.
    fn is_positional(&self) -> Vec<bool> {
        let mut positional = vec![false; self.steps.len()];
        for (index, step) in self.steps.iter().enumerate() {
            positional[index] = match &step.kind {
                InstrKind::Constant(_) | InstrKind::Coordinate(_) | InstrKind::Scalar { .. } => true,
                InstrKind::Accumulator => false,
                InstrKind::Reduced => true,
                InstrKind::Load { .. } | InstrKind::Gather { .. } => !step.phase.is_array(),
                InstrKind::Apply { args, .. } | InstrKind::Custom { args, .. } => args.iter().all(|&a| positional[a]),
            };
        }
        positional
    }
}

/// The blocks of the visit as a tree: block 0 is the visit itself, and every other block is an arm of a select.
struct Regions<'p> {
    program: &'p Program,
    /// For each block, its parent and depth.
    blocks: Vec<(usize, usize)>,
    /// For each select that branches, its two blocks.
    arms: Vec<Option<[usize; 2]>>,
    /// For each step of the visit, the block that computes it.
    home: Vec<Option<usize>>,
}

impl<'p> Regions<'p> {
    /// The blocks for the values that some ends need.
    fn of(program: &'p Program, ends: &[usize]) -> Regions<'p> {
        let positional = program.is_positional();
        let candidate =
            |s: usize| program.is_select(s) && program.steps[s].phase == Phase::Visit && positional[program.args(s)[0]];
        let mut branching: Vec<bool> = (0..program.steps.len()).map(candidate).collect();
        // Place everything as if each candidate branched, then keep the branches that pay and place again. An arm that
        // does not pay returns its values to the block around it.
        let all = Regions::place(program, ends, &branching);
        for (select, branches) in branching.iter_mut().enumerate() {
            if let Some(arms) = all.arms[select] {
                let inside = |block: usize| arms.iter().any(|&arm| all.is_inside(block, arm));
                let cost: u32 = (0..program.steps.len())
                    .filter(|&s| all.home[s].is_some_and(inside))
                    .map(|s| program.step_cost(s, false))
                    .sum();
                *branches = cost >= BRANCH_PAYS;
            }
        }
        Regions::place(program, ends, &branching)
    }

    fn place(program: &'p Program, ends: &[usize], branching: &[bool]) -> Regions<'p> {
        let count = program.steps.len();
        let mut this = Regions { program, blocks: vec![(0, 0)], arms: vec![None; count], home: vec![None; count] };
        ends.iter().for_each(|&value| this.home[value] = Some(0));
        // Users come after their operands, so a backward walk has seen every use of a step when it reaches the step.
        for step in (0..count).rev() {
            if program.steps[step].phase != Phase::Visit {
                continue;
            }
            let Some(home) = this.home[step] else { continue };
            let depth = this.blocks[home].1 + 1;
            if branching[step] && depth <= DEEPEST_BRANCH {
                let first = this.blocks.len();
                this.blocks.extend([(home, depth), (home, depth)]);
                this.arms[step] = Some([first, first + 1]);
            }
            for (position, &arg) in program.args(step).iter().enumerate() {
                let used_in = match (this.arms[step], position) {
                    (Some(arms), 1 | 2) => arms[position - 1],
                    _ => home,
                };
                this.home[arg] = Some(this.home[arg].map_or(used_in, |other| this.common(other, used_in)));
            }
        }
        this
    }

    fn common(&self, mut a: usize, mut b: usize) -> usize {
        while a != b {
            if self.blocks[a].1 >= self.blocks[b].1 {
                a = self.blocks[a].0;
            } else {
                b = self.blocks[b].0;
            }
        }
        a
    }

    fn is_inside(&self, mut block: usize, of: usize) -> bool {
        while block != of {
            if block == 0 {
                return false;
            }
            block = self.blocks[block].0;
        }
        true
    }

    fn items(&self) -> Vec<Item> {
        // One list a block, filled in the order of steps. A branch takes its arms' lists, which are complete by then.
        let mut lists: Vec<Vec<Item>> = vec![Vec::new(); self.blocks.len()];
        for (index, step) in self.program.steps.iter().enumerate() {
            let computed = matches!(step.kind, InstrKind::Gather { .. } | InstrKind::Apply { .. } | InstrKind::Custom { .. });
            let (Phase::Visit, true, Some(home)) = (step.phase, computed, self.home[index]) else { continue };
            let item = match self.arms[index] {
                None => Item::Instr(index),
                Some([then, otherwise]) => Item::Branch {
                    select: index,
                    then: std::mem::take(&mut lists[then]),
                    otherwise: std::mem::take(&mut lists[otherwise]),
                },
            };
            lists[home].push(item);
        }
        std::mem::take(&mut lists[0])
    }
}
