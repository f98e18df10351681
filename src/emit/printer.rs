//! The printer: values as statements, from the table's spellings.

use super::{Access, CountAccess, calls, coordinate, param, place};
use crate::check::Argument;
use crate::dtype::ValueType;
use crate::ir::graph::Constant;
use crate::ir::{Op, Operand};
use crate::plan::{
    Code, FieldValue, Instr, InstrKind, Item, KernelPlan, Phase, PlannedCount, PlannedScores, Program, Staging, Store,
    has_entries,
};
use crate::source::STEP_MARKER;

/// Stands where line numbers resume; [`render`](super::render) fills in which one.
pub(super) const RESUME: &str = "#line RESUME";

pub(super) struct Printer<'p> {
    pub(super) part: Part<'p>,
    program: &'p Program,
    /// The phase whose values are scalars, inside a loop over a strip's elements.
    element: Option<Phase>,
}

/// Whether any element of a strip may be at the label, where the visit is a template that is told.
const NEAR: &str = "NEAR";

/// The part of a plan that is printed: its epilogue, or its function of scores.
#[derive(Clone, Copy)]
pub(super) struct Part<'p> {
    pub program: &'p Program,
    pub code: &'p Code,
    pub arguments: &'p [Argument],
    /// The number of its first argument among the parameters, and of its first step in messages.
    pub first_argument: usize,
    pub first_step: usize,
    pub strip: usize,
    pub fast_math: bool,
    staging: Option<&'p Staging>,
    /// Whether its elements are scores.
    pub of_scores: bool,
    /// Whether the visit is told if any element of its strip may be at the label.
    knows_label: bool,
}

impl<'p> Part<'p> {
    pub(super) fn of_epilogue(plan: &'p KernelPlan) -> Part<'p> {
        let KernelPlan { program, code, arguments, staging, strip, fast_math, .. } = plan;
        let (strip, fast_math, staging) = (*strip, *fast_math, staging.as_ref());
        let [_, knows_label] = plan.visits_label();
        let of_scores = false;
        Part { program, code, arguments, first_argument: 0, first_step: 0, strip, fast_math, staging, of_scores, knows_label }
    }

    pub(super) fn of_scores(plan: &'p KernelPlan) -> Option<Part<'p>> {
        let PlannedScores { program, code, arguments, .. } = plan.scores.as_ref()?;
        let (first_argument, first_step) = (plan.arguments.len(), plan.program.steps.len());
        let (strip, fast_math) = (PlannedScores::STRIP, plan.fast_math);
        let [of_scores, knows_label] = [true, false];
        Some(Part {
            program,
            code,
            arguments,
            first_argument,
            first_step,
            strip,
            fast_math,
            staging: None,
            of_scores,
            knows_label,
        })
    }

    /// The number of an argument among the parameters.
    pub(super) fn number(&self, argument: usize) -> usize {
        self.first_argument + argument
    }

    /// Whether a launch may leave out something that is loaded.
    pub(super) fn is_optional(&self) -> bool {
        let default = |argument: usize| self.arguments[argument].need.default();
        let mut steps = self.program.steps.iter();
        steps.any(|step| matches!(step.kind, InstrKind::Load { argument, .. } if default(argument).is_some()))
    }
}

/// Lines with their indentation.
struct Lines {
    lines: Vec<String>,
    depth: usize,
}

impl Lines {
    fn push(&mut self, line: impl AsRef<str>) {
        self.lines.push(format!("{}{}", "    ".repeat(self.depth), line.as_ref()));
    }

    fn pragma(&mut self, line: &str) {
        self.lines.push(line.into());
    }

    /// A statement that the user had a hand in: the compiler's messages about it name its step.
    fn push_marked(&mut self, step: usize, line: impl AsRef<str>) {
        self.pragma(&format!("#line 1 \"{STEP_MARKER}{step}\""));
        self.push(line);
        self.pragma(RESUME);
    }

    fn open(&mut self, line: impl AsRef<str>) {
        self.push(line);
        self.depth += 1;
    }

    fn close(&mut self, line: &str) {
        self.depth -= 1;
        self.push(line);
    }
}

impl<'p> Printer<'p> {
    pub(super) fn new(part: Part<'p>) -> Printer<'p> {
        Printer { part, program: part.program, element: None }
    }

    /// What a reader of the source is told about a value: the number of its step and what it is.
    pub(super) fn note(&self, step: usize) -> String {
        let what = match &self.program.steps[step].kind {
            InstrKind::Accumulator => "acc",
            InstrKind::Constant(_) => "const",
            InstrKind::Coordinate(c) => c.name(),
            InstrKind::Scalar { .. } => "scalar",
            InstrKind::Load { .. } => "load",
            InstrKind::Gather { .. } => "gather",
            InstrKind::Reduced => "reduce",
            InstrKind::Apply { op, .. } => op.name(),
            InstrKind::Custom { name, .. } => name,
        };
        format!("%{step} {what}")
    }

    pub(super) fn declaration(&self, step: usize) -> String {
        let value = &self.program.steps[step];
        let array = if value.phase.is_array() { "[STRIP]" } else { "" };
        format!("{} v{step}{array};", value.value.cuda())
    }

    pub(super) fn base(&self, argument: usize, operand: Operand) -> String {
        let number = self.part.number(argument);
        if has_entries(operand) { format!("t.p{number}") } else { param(FieldValue::Pointer(number)) }
    }

    /// What an argument is where a launch leaves it out, if it may.
    pub(super) fn default(&self, argument: usize) -> Option<Constant> {
        self.part.arguments[argument].need.default()
    }

    /// A load, which the step has to be.
    pub(super) fn step_access(&self, step: usize) -> Access {
        let InstrKind::Load { argument, operand } = self.program.steps[step].kind else {
            unreachable!("step {step} is no load");
        };
        let staged_at = self.part.staging.as_ref().map_or(0, |s| s.of_load(step));
        place(self, format!("v{step}"), self.note(step), argument, operand, staged_at)
    }

    pub(super) fn store(&self, index: usize, store: &Store) -> Access {
        let staged_at = self.part.staging.as_ref().map_or(0, |s| s.of_store(index));
        let access = place(self, self.reference(store.value), format!("store {index}"), store.argument, store.operand, staged_at);
        Access { value_type: self.program.steps[store.value].value.cuda(), ..access }
    }

    /// A count, which has no leading dimension, but a length.
    pub(super) fn count(&self, index: usize, count: &PlannedCount) -> CountAccess {
        let [base, length] = [FieldValue::Pointer(count.argument), FieldValue::Length(count.argument)].map(param);
        CountAccess { value: self.reference(count.value), node: format!("count {index}"), base, length }
    }

    /// A value as an atomic expression; inside a loop over `i` where it is an array.
    pub(super) fn reference(&self, step: usize) -> String {
        let value = &self.program.steps[step];
        match (&value.kind, value.phase) {
            (InstrKind::Constant(c), _) => literal(*c),
            (InstrKind::Coordinate(c), _) => coordinate(*c, self.part.of_scores),
            (InstrKind::Scalar { argument }, _) if value.value == ValueType::Bool => {
                format!("({} != 0)", param(FieldValue::Scalar(self.part.number(*argument))))
            }
            (InstrKind::Scalar { argument }, _) => param(FieldValue::Scalar(self.part.number(*argument))),
            (InstrKind::Accumulator, _) => "acc[i]".into(),
            (InstrKind::Load { .. }, Phase::Visit) => format!("widen(f.v{step}.elements[i])"),
            (kind, phase) if self.element == Some(phase) && !matches!(kind, InstrKind::Load { .. }) => format!("e{step}"),
            (_, Phase::Tile) => format!("t.v{step}"),
            (_, Phase::Row) => format!("r.v{step}"),
            (_, Phase::Column) => format!("c.v{step}[i]"),
            (_, Phase::Visit) => format!("v{step}[i]"),
        }
    }

    /// The expression that computes a value from its operands.
    fn expression(&self, step: usize) -> String {
        let args = self.program.args(step);
        let atoms: Vec<String> = args.iter().map(|&a| self.reference(a)).collect();
        match &self.program.steps[step].kind {
            InstrKind::Apply { op, .. } => match self.spelling(*op, args) {
                spelling if self.takes_floats(args) && spelling == op.row().cuda && self.part.code.calls.contains(op) => {
                    format!("{}({})", calls::name(*op), atoms.join(", "))
                }
                spelling if self.part.knows_label && self.program.is_at_label(step) => {
                    format!("{NEAR} && {}", substitute(spelling, &atoms))
                }
                spelling => substitute(spelling, &atoms),
            },
            InstrKind::Gather { argument, .. } => {
                let [table, length] =
                    [FieldValue::Pointer, FieldValue::Length].map(|field| param(field(self.part.number(*argument))));
                format!("gather({table}, {length}, {})", atoms.join(", "))
            }
            InstrKind::Custom { cuda, .. } if self.part.code.calls_custom => {
                format!("{}({})", calls::custom_name(&self.part, cuda), atoms.join(", "))
            }
            InstrKind::Custom { cuda, .. } => format!("({})", substitute(cuda, &atoms)),
            _ => self.reference(step),
        }
    }

    /// Whether the first operand is an `f32`, for which the functions are that a kernel calls.
    fn takes_floats(&self, args: &[usize]) -> bool {
        args.first().is_some_and(|&a| self.program.steps[a].value == ValueType::F32)
    }

    fn spelling(&self, op: Op, args: &[usize]) -> &'static str {
        let first = args.first().map(|&a| self.program.steps[a].value);
        match op.row().fast {
            Some(fast) if self.part.fast_math && first == Some(ValueType::F32) => fast.cuda,
            _ => exact(op, first),
        }
    }

    /// The computed values of a phase other than the visit, behind so many reductions along the row, as assignments to
    /// its members.
    pub(super) fn phase(&self, phase: Phase, stage: usize) -> Vec<String> {
        let computed: Vec<usize> = self.computed(phase).filter(|&step| self.program.steps[step].stage == stage).collect();
        if phase == Phase::Column && self.part.code.column_unroll < self.part.strip {
            let items: Vec<Item> = computed.into_iter().map(Item::Instr).collect();
            return self.rolled(phase, &items, self.part.code.column_unroll);
        }
        let mut out = Lines { lines: Vec::new(), depth: 1 };
        if phase.is_array() && !computed.is_empty() {
            out.pragma("#pragma unroll");
            out.open("for (int i = 0; i < STRIP; ++i) {");
        }
        for &step in &computed {
            self.assign(step, &mut out);
        }
        if phase.is_array() && !computed.is_empty() {
            out.close("}");
        }
        out.lines
    }

    /// The same for what is reduced before the visit.
    pub(super) fn of_stages(&self) -> Printer<'p> {
        Printer { part: Part { knows_label: false, ..self.part }, program: self.program, element: self.element }
    }

    /// A visit of one strip, up to the stores or to what it reduces.
    pub(super) fn visit(&self, items: &[Item]) -> Vec<String> {
        if self.part.code.is_rolled(self.part.strip) {
            return self.rolled(Phase::Visit, items, self.part.code.visit_unroll);
        }
        let mut out = Lines { lines: Vec::new(), depth: 1 };
        self.block(items, &mut out);
        out.lines
    }

    /// The values of a phase that its code computes.
    fn computed(&self, phase: Phase) -> impl Iterator<Item = usize> + '_ {
        self.program.of_phase(phase).filter(move |&step| !self.program.is_given(step))
    }

    /// Whether a value is kept for other phases. All are, but for those that live inside a loop over elements.
    pub(super) fn is_member(&self, step: usize) -> bool {
        let Instr { phase, kind, .. } = &self.program.steps[step];
        let is_rolled = *phase == Phase::Column && self.part.code.column_unroll < self.part.strip;
        !is_rolled || matches!(kind, InstrKind::Load { .. }) || self.program.leave(*phase)[step]
    }

    /// Values of a strip element by element: scalars inside a loop, of which only those are kept that something else uses.
    fn rolled(&self, phase: Phase, items: &[Item], unroll: usize) -> Vec<String> {
        let mut out = Lines { lines: Vec::new(), depth: 1 };
        let leaves = self.program.leave(phase);
        let mut inside = vec![false; leaves.len()];
        mark(items, &mut inside);
        let kept: Vec<usize> = self.computed(phase).filter(|&step| leaves[step] && inside[step]).collect();
        for &step in kept.iter().filter(|_| phase == Phase::Visit) {
            out.push(self.declaration(step));
        }
        let inner = Printer { part: self.part, program: self.program, element: Some(phase) };
        out.pragma(&format!("#pragma unroll {unroll}"));
        out.open("for (int i = 0; i < STRIP; ++i) {");
        inner.elements(items, &mut out);
        for step in kept {
            out.push(format!("{} = {};", self.reference(step), inner.reference(step)));
        }
        out.close("}");
        out.lines
    }

    /// The values of one element, inside the loop. A region is a branch that each element takes for itself.
    fn elements(&self, items: &[Item], out: &mut Lines) {
        for item in items {
            match item {
                Item::Instr(step) => {
                    out.push(format!("{} e{step};", self.program.steps[*step].value.cuda()));
                    self.assign(*step, out);
                }
                Item::Branch { select, then, otherwise } => {
                    let args = self.program.args(*select);
                    let result = self.reference(*select);
                    out.push(format!("{} {result};", self.program.steps[*select].value.cuda()));
                    out.open(format!("if ({}) {{ // {}", self.reference(args[0]), self.note(*select)));
                    self.elements(then, out);
                    out.push(format!("{result} = {};", self.reference(args[1])));
                    out.close("} else {");
                    out.depth += 1;
                    self.elements(otherwise, out);
                    out.push(format!("{result} = {};", self.reference(args[2])));
                    out.close("}");
                }
            }
        }
    }

    fn block(&self, items: &[Item], out: &mut Lines) {
        let mut rest = items;
        while let Some((first, after)) = rest.split_first() {
            match first {
                Item::Instr(_) => {
                    // A run of plain values shares one loop over the strip.
                    let run = rest.iter().map_while(|item| if let Item::Instr(s) = item { Some(*s) } else { None });
                    let run: Vec<usize> = run.collect();
                    self.run(&run, out);
                    rest = &rest[run.len()..];
                }
                Item::Branch { select, then, otherwise } => {
                    self.branch(*select, then, otherwise, out);
                    rest = after;
                }
            }
        }
    }

    fn run(&self, steps: &[usize], out: &mut Lines) {
        for &step in steps {
            out.push(self.declaration(step));
        }
        self.each(out, |out| {
            for &step in steps {
                self.assign(step, out);
            }
        });
    }

    fn assign(&self, step: usize, out: &mut Lines) {
        let line = format!("{} = {}; // {}", self.reference(step), self.expression(step), self.note(step));
        if matches!(self.program.steps[step].kind, InstrKind::Custom { .. }) && !self.part.code.calls_custom {
            out.push_marked(self.part.first_step + step, line);
        } else {
            out.push(line);
        }
    }

    fn each(&self, out: &mut Lines, body: impl FnOnce(&mut Lines)) {
        out.pragma("#pragma unroll");
        out.open("for (int i = 0; i < STRIP; ++i) {");
        body(out);
        out.close("}");
    }

    /// A region: see [`Program`](crate::plan::Program) for when a select becomes one.
    fn branch(&self, select: usize, then: &[Item], otherwise: &[Item], out: &mut Lines) {
        let args = self.program.args(select);
        let (condition, arms) = (args[0], [(then, args[1]), (otherwise, args[2])]);
        let note = self.note(select);
        out.push(self.declaration(select));
        if !self.program.steps[condition].phase.is_array() {
            for (i, (items, value)) in arms.into_iter().enumerate() {
                if i == 0 {
                    out.open(format!("if ({}) {{ // {note}", self.reference(condition)));
                } else {
                    out.depth -= 1;
                    out.open("} else {");
                }
                self.block(items, out);
                self.each(out, |out| out.push(format!("v{select}[i] = {};", self.reference(value))));
            }
            out.close("}");
            return;
        }
        // The condition varies along the strip: an arm runs if an element wants it, and no arm's code stands twice.
        let value_type = self.program.steps[select].value.cuda();
        out.push(format!("bool any{select} = false, all{select} = true; // {note}"));
        // With a value in either arm: undefined ones stay live from the kernel's start, and cost registers without end.
        out.push(format!("{value_type} first{select}[STRIP] = {{}}, second{select}[STRIP] = {{}};"));
        self.each(out, |out| {
            out.push(format!("any{select} |= {};", self.reference(condition)));
            out.push(format!("all{select} &= {};", self.reference(condition)));
        });
        for ((items, value), (guard, name)) in
            arms.into_iter().zip([(format!("any{select}"), "first"), (format!("!all{select}"), "second")])
        {
            out.open(format!("if ({guard}) {{"));
            self.block(items, out);
            self.each(out, |out| out.push(format!("{name}{select}[i] = {};", self.reference(value))));
            out.close("}");
        }
        self.each(out, |out| {
            out.push(format!("v{select}[i] = {} ? first{select}[i] : second{select}[i];", self.reference(condition)));
        });
    }
}

/// Marks the values that some items compute.
fn mark(items: &[Item], inside: &mut [bool]) {
    for item in items {
        match item {
            Item::Instr(step) => inside[*step] = true,
            Item::Branch { select, then, otherwise } => {
                inside[*select] = true;
                [then, otherwise].into_iter().for_each(|arm| mark(arm, inside));
            }
        }
    }
}

/// The exact spelling of a primitive whose first operand is of this type.
pub(super) fn exact(op: Op, first: Option<ValueType>) -> &'static str {
    op.row().spelling(first)
}

/// A constant as a literal that reads back bit for bit.
pub(super) fn literal(constant: Constant) -> String {
    match constant {
        Constant::Bool(b) => b.to_string(),
        Constant::I32(i32::MIN) => "(-2147483647 - 1)".into(),
        Constant::I32(x) if x < 0 => format!("({x})"),
        Constant::I32(x) => x.to_string(),
        Constant::F32(bits) => {
            let x = f32::from_bits(bits);
            match x {
                _ if !x.is_finite() => format!("__uint_as_float(0x{bits:08x}u)"),
                _ if x.is_sign_negative() => format!("({x:?}f)"),
                _ => format!("{x:?}f"),
            }
        }
        Constant::F64(bits) => {
            let x = f64::from_bits(bits);
            match x {
                _ if !x.is_finite() => format!("__longlong_as_double(0x{bits:016x}ll)"),
                _ if x.is_sign_negative() => format!("({x:?})"),
                _ => format!("{x:?}"),
            }
        }
    }
}

/// Puts the operands in the place of `$0`, `$1`, ...
pub(super) fn substitute(spelling: &str, atoms: &[String]) -> String {
    let mut out = String::with_capacity(spelling.len() + 16);
    let mut rest = spelling;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let digits = rest[at + 1..].bytes().take_while(u8::is_ascii_digit).count();
        let index: usize = rest[at + 1..at + 1 + digits].parse().unwrap_or(usize::MAX);
        out.push_str(atoms.get(index).map_or("", String::as_str));
        rest = &rest[at + 1 + digits..];
    }
    out + rest
}
