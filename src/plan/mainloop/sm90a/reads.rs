//! How Hopper's mainloop reads operands: which it copies first, and which it leaves to others.

use crate::check::Checked;
use crate::dtype::{DType, ValueType};
use crate::ir::Node;
use crate::plan::launch::repack::Repack;
use crate::plan::mainloop::rules::Asked;
use crate::plan::{Mainloop, TMA_UNIT};
use crate::problem::{Layout, Operation, Shape};

/// Whether a product of tf32 is transposed because operands have K strided, if any has. Such an operand is best as A, which
/// passes through registers, and the larger of two is.
pub(super) fn turns(operation: Operation, shape: Shape) -> Option<bool> {
    match operation.k_contiguous() {
        _ if operation.multiplied() != DType::F32 => None,
        [true, true] => None,
        [false, false] => Some(shape.m < shape.n),
        [_, b] => Some(!b),
    }
}

/// Whether the copies pay that the operands of a product need, if any, where another mainloop needs none.
pub(super) fn pays_copies(asked: &Asked<'_>) -> bool {
    let Asked { mut operation, mut shape, mut alignment, preferences, .. } = *asked;
    if turns(operation, shape).is_some_and(|turns| preferences.transposed.unwrap_or(turns)) {
        (operation, shape) = (operation.transposed(), shape.transposed());
        alignment.reverse();
    }
    let (dtype, transposed) = (operation.multiplied(), Repack::transposes(Mainloop::Sm90a, operation, alignment));
    // Other tensor-core mainloops transpose no operands of eight bits either, and multiply no `f32` in full precision.
    let is_alone = match dtype {
        DType::F32 => !preferences.tf32,
        _ => transposed != [false; 2],
    };
    let copied = [0, 1].map(|i| alignment[i] < TMA_UNIT || transposed[i]);
    let copies = copied.contains(&true) && operation.patches().is_none() && operation.widened().is_none();
    !copies || is_alone || Repack::pays(shape, dtype.size(), alignment, copied)
}

/// Why operands of `f32` are not multiplied as tf32, if they are not.
pub(super) fn without_tf32(asked: &Asked<'_>) -> Option<String> {
    let Asked { operation, preferences, epilogue, .. } = *asked;
    if !preferences.tf32 {
        return Some("f32 operands keep full precision unless tf32 is asked for".into());
    }
    if operation.patches().is_some() && operation.layout() != Some(Layout::TN) {
        return Some("wgmma reads tf32 with K contiguous, and gradients of a convolution have K strided".into());
    }
    if epilogue.summed_operand().is_some() {
        return Some("operands arrive rounded to tf32, and the epilogue sums one in f32".into());
    }
    double(epilogue).map(|value| format!("its epilogues have no f64 values, and {value} is one: sm80 has them"))
}

/// The first value of an epilogue that is an `f64`, in the words of the listing.
pub(super) fn double(epilogue: &Checked) -> Option<String> {
    let graph = epilogue.graph();
    let (id, node) = graph.nodes().find(|(id, _)| epilogue.type_of(*id).value == ValueType::F64)?;
    Some(match node {
        Node::Scalar { name, .. } | Node::Load { name, .. } | Node::Gather { name, .. } => format!("`{name}`"),
        _ => format!("{id} of the epilogue, `{}`,", node.mnemonic()),
    })
}
