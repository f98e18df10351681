//! The monoids that the program defines, as structs.

use super::calls;
use super::printer::{exact, literal, substitute};
use crate::dtype::ValueType;
use crate::ir::custom_monoid::Body;
use crate::ir::{CustomMonoid, Monoid, Node, NodeId, Op};
use crate::plan::KernelPlan;
use serde::Serialize;

/// One monoid.
#[derive(Serialize)]
pub(super) struct OwnMonoid {
    name: String,
    /// The name that the program gave it.
    note: &'static str,
    /// The types of the state's words.
    words: Vec<&'static str>,
    /// Literals.
    identity: Vec<String>,
    /// The values of an element.
    parameters: String,
    lift: Expressions,
    combine: Expressions,
    result: Expressions,
    /// The type of the result.
    gives: &'static str,
}

/// The body of a function: statements, and what it returns.
#[derive(Serialize)]
struct Expressions {
    lines: Vec<String>,
    results: String,
}

/// The struct of a monoid in the kernel, over a type of value.
pub(super) fn name(plan: &KernelPlan, monoid: Monoid, value: ValueType) -> String {
    match monoid.row() {
        Some(row) => format!("{}<{}>", row.cuda, value.cuda()),
        None => {
            let first = plan.program.monoids().position(|(other, _)| other == monoid);
            format!("Own{}", first.unwrap_or_default())
        }
    }
}

/// Every monoid that the program defines and the plan uses, once.
pub(super) fn own(plan: &KernelPlan) -> Vec<OwnMonoid> {
    let mut found: Vec<(String, &'static CustomMonoid)> = Vec::new();
    for (monoid, value) in plan.program.monoids() {
        let Some(custom) = monoid.custom() else { continue };
        let name = name(plan, monoid, value);
        if found.iter().all(|(other, _)| *other != name) {
            found.push((name, custom));
        }
    }
    let called = if plan.code.calls_forks { &plan.code.calls[..] } else { &[] };
    found.into_iter().map(|(name, custom)| own_monoid(name, custom, called)).collect()
}

fn own_monoid(name: String, custom: &'static CustomMonoid, called: &[Op]) -> OwnMonoid {
    let expressions = |body: &Body, parameters: &[String]| expressions(body, parameters, called);
    let state = |of: &str| (0..custom.state().len()).map(|i| format!("{of}.s{i}")).collect::<Vec<_>>();
    let element: Vec<String> = (0..custom.takes().len()).map(|i| format!("x{i}")).collect();
    let parameters = custom.takes().iter().zip(&element).map(|(value, name)| format!("{} {name}", value.cuda()));
    OwnMonoid {
        name,
        note: custom.name(),
        words: custom.state().iter().map(|word| word.value_type().cuda()).collect(),
        identity: custom.state().iter().map(|word| literal(*word)).collect(),
        parameters: parameters.collect::<Vec<_>>().join(", "),
        lift: expressions(custom.lifted(), &element),
        combine: expressions(custom.combined(), &[state("a"), state("b")].concat()),
        result: expressions(custom.settled(), &state("s")),
        gives: custom.gives().cuda(),
    }
}

fn expressions(body: &Body, parameters: &[String], called: &[Op]) -> Expressions {
    let graph = body.graph();
    let reference = |id: NodeId| match graph.node(id) {
        Node::Constant(constant) => literal(*constant),
        Node::Apply { .. } => format!("e{}", id.index()),
        _ => parameters[id.index()].clone(),
    };
    let lines = body.computed().into_iter().filter_map(|id| {
        let Node::Apply { op, args } = graph.node(id) else { return None };
        let atoms: Vec<String> = args.iter().map(|a| reference(*a)).collect();
        let first = args.first().map(|a| graph.value_type(*a));
        let value = match first {
            Some(ValueType::F32) if called.contains(op) => format!("{}({})", calls::name(*op), atoms.join(", ")),
            _ => substitute(exact(*op, first), &atoms),
        };
        Some(format!("const {} {} = {value};", graph.value_type(id).cuda(), reference(id)))
    });
    Expressions { lines: lines.collect(), results: body.results().iter().map(|id| reference(*id)).collect::<Vec<_>>().join(", ") }
}
