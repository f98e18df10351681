//! Products: each gradient is a product of the other operand and the incoming gradient.

use super::tape::{Found, Step, Tape};
use crate::network::attribute::Attributes;
use crate::network::fault::Fault;
use crate::network::graph::EdgeId;
use crate::network::types::Dim;

/// A vector with another axis of extent 1.
fn with_axis(tape: &mut Tape, x: EdgeId, axis: i64) -> Result<EdgeId, Fault> {
    let axes = tape.indices(&[axis]);
    tape.binary("Unsqueeze", x, axes)
}

/// `MatMul` of operands of any number of axes.
pub(crate) fn matmul(tape: &mut Tape, step: &Step<'_>) -> Found {
    let (own_a, own_b) = (step.input(0)?, step.input(1)?);
    let (mut a, mut b, mut g) = (own_a, own_b, step.gradient()?);
    // Vectors are matrices of one row, or of one column.
    let (row, column) = (tape.rank(a)? == 1, tape.rank(b)? == 1);
    if column {
        (b, g) = (with_axis(tape, b, 1)?, with_axis(tape, g, -1)?);
    }
    if row {
        (a, g) = (with_axis(tape, a, 0)?, with_axis(tape, g, -2)?);
    }
    let mut found = vec![None, None];
    if step.wants(0) {
        let turned = tape.transposed(b)?;
        let full = tape.binary("MatMul", g, turned)?;
        let summed = tape.sum_like(full, a)?;
        found[0] = Some(tape.shaped(summed, own_a)?);
    }
    if step.wants(1) {
        let (inner, columns) = (last(tape, a)?, last(tape, g)?);
        let full = match (inner, columns) {
            // Weights that the batch shares: its entries are further rows of one product.
            (Dim::Known(inner), Dim::Known(columns)) if tape.rank(b)? == 2 && tape.rank(a)? > 2 && inner * columns > 0 => {
                let (rows, gradients) = (tape.reshaped(a, &[-1, inner as i64])?, tape.reshaped(g, &[-1, columns as i64])?);
                let turned = tape.transposed(rows)?;
                tape.binary("MatMul", turned, gradients)?
            }
            _ => {
                let turned = tape.transposed(a)?;
                tape.binary("MatMul", turned, g)?
            }
        };
        let summed = tape.sum_like(full, b)?;
        found[1] = Some(tape.shaped(summed, own_b)?);
    }
    Ok(found)
}

fn last(tape: &Tape, x: EdgeId) -> Result<Dim, Fault> {
    Ok(tape.dims(x)?.last().cloned().unwrap_or(Dim::Unknown))
}

/// `Gemm`: alpha A' B' + beta C.
pub(crate) fn gemm(tape: &mut Tape, step: &Step<'_>) -> Found {
    let (a, b, g) = (step.input(0)?, step.input(1)?, step.gradient()?);
    let of = &step.node.attributes;
    let (turns_a, turns_b) = (of.flag("transA"), of.flag("transB"));
    let alpha = of.float_or("alpha", 1.0) as f32;
    let product = |tape: &mut Tape, [x, y]: [EdgeId; 2], [turns_x, turns_y]: [bool; 2]| {
        let turns = Attributes::new().with("transA", i64::from(turns_x)).with("transB", i64::from(turns_y));
        tape.apply("Gemm", &[x, y], turns.with("alpha", alpha))
    };
    let mut found = vec![None; step.node.inputs.len()];
    if step.wants(0) {
        found[0] = Some(match turns_a {
            false => product(tape, [g, b], [false, !turns_b])?,
            true => product(tape, [b, g], [turns_b, true])?,
        });
    }
    if step.wants(1) {
        found[1] = Some(match turns_b {
            false => product(tape, [a, g], [!turns_a, false])?,
            true => product(tape, [g, a], [true, turns_a])?,
        });
    }
    if step.wants(2) {
        let scaled = tape.scaled(g, of.float_or("beta", 1.0))?;
        found[2] = Some(tape.sum_like(scaled, step.input(2)?)?);
    }
    Ok(found)
}

/// `Einsum`: each operand's gradient is the sum over the others and the incoming gradient, by the letters that they have.
pub(crate) fn einsum(tape: &mut Tape, step: &Step<'_>) -> Found {
    let equation: String = step.node.attributes.text_or("equation", "").chars().filter(|c| !c.is_whitespace()).collect();
    let (left, right) = equation.split_once("->").ok_or_else(|| step.lacks("whose equation does not say the result"))?;
    let terms: Vec<&str> = left.split(',').collect();
    let repeats = |term: &&str| term.chars().enumerate().any(|(i, c)| term.chars().skip(i + 1).any(|other| other == c));
    if equation.contains('.') || terms.len() != step.node.inputs.len() || terms.iter().any(repeats) || repeats(&right) {
        return Err(step.lacks("whose equation has an ellipsis or repeats a letter in a term"));
    }
    let mut found = vec![None; terms.len()];
    for input in (0..terms.len()).filter(|input| step.wants(*input)) {
        let others = (0..terms.len()).filter(|other| *other != input);
        let (mut words, mut operands) = (vec![right], vec![step.gradient()?]);
        for other in others {
            words.push(terms[other]);
            operands.push(step.input(other)?);
        }
        // A letter that nothing else has was summed alone: the gradient is the same along it.
        let known: Vec<char> = terms[input].chars().filter(|c| words.iter().any(|word| word.contains(*c))).collect();
        let equation = format!("{}->{}", words.join(","), known.iter().collect::<String>());
        let sum = tape.apply("Einsum", &operands, Attributes::new().with("equation", equation))?;
        let own = step.input(input)?;
        let places: Vec<i64> =
            terms[input].chars().enumerate().filter(|(_, c)| !known.contains(c)).map(|(i, _)| i as i64).collect();
        // The rule of its types leaves the shape of the sum open: it is that of the operand, less what is the same along it.
        let shape = tape.shape(own)?;
        let kept: Vec<i64> = (0..shape.len()).filter(|i| !places.contains(&(*i as i64))).map(|i| shape[i] as i64).collect();
        let sum = tape.reshaped(sum, &kept)?;
        found[input] = Some(if places.is_empty() {
            sum
        } else {
            let axes = tape.indices(&places);
            let sum = tape.binary("Unsqueeze", sum, axes)?;
            tape.stretched(sum, own)?
        });
    }
    Ok(found)
}
