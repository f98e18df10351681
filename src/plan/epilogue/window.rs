//! The keys that a function of scores leaves seen: conditions on coordinates, from which a tile knows the blocks of keys that
//! none of its queries sees.
//!
//! A result of `select(condition, score, -inf)` is hidden where the condition does not hold. A condition that compares the key,
//! or the distance of key and query, with what is the same for a whole tile bounds the keys that are seen. Only such comparisons
//! count, and only those that every seen key fulfils. Others, and additions of masks from memory, hide keys one by one.

use crate::dtype::ValueType;
use crate::ir::Coordinate;
use crate::ir::graph::Constant;
use crate::ir::op::{Condition, Signature};
use crate::plan::epilogue::program::{InstrKind, Phase, Program};
use serde::Serialize;

/// A bound of the keys that are seen, in every tile: `key >= value`, or `key <= value`. A relative one adds the query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct KeyBound {
    /// Whether the query is added.
    pub relative: bool,
    /// Whether it is a least key, not a largest one.
    pub least: bool,
    /// The step whose value counts, and how often: 1 or -1.
    pub step: Option<(usize, i64)>,
    /// What is added.
    pub plus: i64,
}

/// A sum of coordinates, a value of the tile, and a number.
#[derive(Clone, Copy, Default)]
struct Sum {
    key: i64,
    query: i64,
    step: Option<(usize, i64)>,
    plus: i64,
}

/// Numbers up to which the sum with a distance of keys and queries does not wrap.
const SMALL: i32 = 1 << 15;

/// The bounds of keys that a function's result leaves.
pub(super) fn bounds(program: &Program, result: usize) -> Vec<KeyBound> {
    let (mut found, mut step) = (Vec::new(), result);
    let hides = |step: usize| {
        let InstrKind::Constant(Constant::F32(bits)) = program.steps[step].kind else { return false };
        f32::from_bits(bits) == f32::NEG_INFINITY
    };
    while let InstrKind::Apply { op, args } = &program.steps[step].kind
        && op.row().signature == Signature::Select
    {
        let [condition, then, otherwise] = args[..] else { break };
        step = match (hides(then), hides(otherwise)) {
            (false, true) => then,
            (true, false) => otherwise,
            _ => break,
        };
        hold(program, condition, step == then, &mut found);
    }
    found
}

/// Adds the bounds that follow from a condition that holds, or does not.
fn hold(program: &Program, step: usize, holds: bool, found: &mut Vec<KeyBound>) {
    let InstrKind::Apply { op, args } = &program.steps[step].kind else { return };
    match (op.condition(), holds) {
        (Some(Condition::Both), true) | (Some(Condition::Either), false) if program.steps[step].value == ValueType::Bool => {
            args.iter().for_each(|arg| hold(program, *arg, holds, found));
        }
        (Some(Condition::Opposite), _) if program.steps[step].value == ValueType::Bool => hold(program, args[0], !holds, found),
        (Some(Condition::Compares(accepts)), _) => {
            let accepts = if holds { accepts } else { accepts.map(|accepted| !accepted) };
            let sides = [args[0], args[1]].map(|side| sum(program, side));
            if let [Some(left), Some(right)] = sides {
                found.extend(compared(left, right, accepts));
            }
        }
        _ => {}
    }
}

/// A value as a sum, if no sum in it can wrap.
fn sum(program: &Program, step: usize) -> Option<Sum> {
    let instr = &program.steps[step];
    if instr.value != ValueType::I32 {
        return None;
    }
    match &instr.kind {
        InstrKind::Coordinate(Coordinate::Column) => Some(Sum { key: 1, ..Sum::default() }),
        InstrKind::Coordinate(Coordinate::Row) => Some(Sum { query: 1, ..Sum::default() }),
        InstrKind::Constant(Constant::I32(x)) => Some(Sum { plus: i64::from(*x), ..Sum::default() }),
        _ if instr.phase == Phase::Tile => Some(Sum { step: Some((step, 1)), ..Sum::default() }),
        InstrKind::Apply { op, args } => {
            let [first, second] = op.sum_of()?;
            let (a, b) = (sum(program, args[0])?, sum(program, args[1])?);
            let both = Sum {
                key: first * a.key + second * b.key,
                query: first * a.query + second * b.query,
                step: None,
                plus: first * a.plus + second * b.plus,
            };
            // A difference of coordinates, or a coordinate, and a small number.
            let narrow =
                both.key.abs() <= 1 && both.query.abs() <= 1 && both.key + both.query != 2 && both.key + both.query != -2;
            let small = both.plus.abs() < i64::from(SMALL);
            (a.step.is_none() && b.step.is_none() && narrow && small).then_some(both)
        }
        _ => None,
    }
}

/// The bounds that follow from a comparison, whose result is accepted if the left side is less, equal, greater.
fn compared(left: Sum, right: Sum, [less, equal, greater]: [bool; 3]) -> Vec<KeyBound> {
    let (key, query) = (left.key - right.key, left.query - right.query);
    let step = match (left.step, right.step) {
        (None, None) => None,
        (Some((step, by)), None) => Some((step, by)),
        (None, Some((step, by))) => Some((step, -by)),
        (Some(_), Some(_)) => return Vec::new(),
    };
    if !matches!((key, query), (1, 0 | -1) | (-1, 0 | 1)) {
        return Vec::new();
    }
    // key * (key - query) + step + plus is less than 0, 0, or greater.
    let plus = left.plus - right.plus;
    let [less, greater] = if key == 1 { [less, greater] } else { [greater, less] };
    let value = step.map(|(step, by)| (step, -key * by));
    let bound = |least: bool, more: i64| KeyBound { relative: query != 0, least, step: value, plus: -key * plus + more };
    let mut found = Vec::new();
    if !less {
        found.push(bound(true, if equal { 0 } else { 1 }));
    }
    if !greater {
        found.push(bound(false, if equal { 0 } else { -1 }));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{Builder, Expr};
    use crate::dtype::DType::{F32, I32};
    use crate::ir::axes::{L, N, S};
    use crate::problem::Scores;

    fn found(build: impl for<'g> FnOnce(&'g Builder) -> Expr<'g>) -> Vec<KeyBound> {
        let scores = Scores::build(build).unwrap();
        let program = Program::of(&crate::pass::fold(scores.inlined()));
        bounds(&program, program.stores[0].value)
    }

    fn hidden<'g>(condition: Expr<'g>, s: &'g Builder) -> Expr<'g> {
        condition.select(s.acc(), f32::NEG_INFINITY)
    }

    #[test]
    fn windows_are_bounds() {
        let bound = |relative, least, plus| KeyBound { relative, least, step: None, plus };
        assert_eq!(found(|s| hidden(s.column().le(s.row()), s)), [bound(true, false, 0)]);
        assert_eq!(found(|s| hidden(s.row().gt(s.column()), s)), [bound(true, false, -1)]);
        assert_eq!(found(|s| hidden((s.row() - s.column()).lt(256), s)), [bound(true, true, -255)]);
        assert_eq!(found(|s| hidden((s.column() - s.row()).ge(-256), s)), [bound(true, true, -256)]);
        assert_eq!(found(|s| hidden(s.column().gt(s.row() - 16), s)), [bound(true, true, -15)]);
        assert_eq!(found(|s| hidden(s.column().lt(7), s)), [bound(false, false, 6)]);
        assert_eq!(found(|s| hidden(s.column().eq(7), s)), [bound(false, true, 7), bound(false, false, 7)]);
        assert_eq!(found(|s| hidden((s.row() - s.column()).gt(4).not(), s)), [bound(true, true, -4)]);
        assert_eq!(
            found(|s| {
                let back = s.row() - s.column();
                hidden(back.ge(0) & back.lt(9) & s.acc().gt(0.0), s)
            }),
            [bound(true, false, 0), bound(true, true, -8)]
        );
        // Hidden where the condition holds, and a mask behind another one.
        assert_eq!(
            found(|s| {
                let inner = s.column().ge(5).select(f32::NEG_INFINITY, s.acc() * 2.0);
                (s.column() - s.row()).lt(-3).select(f32::NEG_INFINITY, inner)
            }),
            [bound(true, true, -3), bound(false, false, 4)]
        );
    }

    #[test]
    fn values_of_a_tile_are_bounds() {
        let of_step = |build: fn(&Builder) -> Expr<'_>, relative, least, by, plus| {
            let [KeyBound { step: Some((_, times)), relative: is_relative, least: is_least, plus: more }] = found(build)[..]
            else {
                panic!("one bound")
            };
            assert_eq!((is_relative, is_least, times, more), (relative, least, by, plus));
        };
        of_step(|s| hidden((s.row() - s.column()).lt(s.scalar("window", I32)), s), true, true, -1, 1);
        of_step(|s| hidden(s.column().lt(s.load("lengths", I32.over(S))), s), false, false, 1, -1);
        of_step(|s| hidden(s.column().ge(s.load("begin", I32.over(L)) * 2), s), false, true, 1, 0);
    }

    #[test]
    fn what_hides_keys_one_by_one_bounds_nothing() {
        let none = |build: fn(&Builder) -> Expr<'_>| assert_eq!(found(build), []);
        none(|s| hidden(s.column().le(s.row()) | s.column().lt(3), s));
        none(|s| hidden((s.column() % 2).eq(0), s));
        none(|s| hidden(s.column().lt(s.load("ends", I32.over(N))), s));
        none(|s| hidden((s.row() + s.column()).lt(5), s));
        none(|s| hidden(s.row().lt(5), s));
        none(|s| hidden(s.column().gt(s.row() - 1_000_000), s)); // near the largest row the difference could wrap
        none(|s| hidden(s.column().gt(s.row() - s.scalar("window", I32)), s));
        none(|s| s.column().le(s.row()).select(s.acc(), -1e4));
        none(|s| s.acc() + s.column().le(s.row()).select(0.0, f32::NEG_INFINITY));
        none(|s| s.acc() + s.load("mask", F32.over(N)));
    }
}
