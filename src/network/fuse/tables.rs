//! What kernels read as tables, at indices that they compute: slices that indices name, and images with a border.

use super::kernel::Loads;
use super::view::View;
use crate::build::Expr;
use crate::dtype::DType;
use crate::network::format::Format;
use crate::network::graph::{EdgeId, Node};
use crate::network::network::Network;
use crate::network::operator::Table;
use crate::network::tensor::Tensor;
use std::collections::HashMap;

/// Whether a kernel serves a table.
pub(super) fn serves(network: &Network, node: &Node, table: Table, views: &HashMap<EdgeId, View>) -> Result<(), &'static str> {
    let input = |index: usize| node.inputs.get(index).copied().flatten();
    let format = |index: usize| input(index).map(|edge| network.type_of(edge).format);
    let known = input(0).and_then(|edge| views.get(&edge)).ok_or("the shape of its input is not known")?;
    if format(0).and_then(Format::dtype).is_none() {
        return Err("kernels do not have its formats");
    }
    if known.dims.iter().map(|(extent, stride)| extent * stride).sum::<usize>() + known.offset > i32::MAX as usize {
        return Err("kernels count elements of a table in 32 bits");
    }
    if table == Table::Border {
        let constant = node.attributes.text_or("mode", "constant") == "constant";
        let filling = input(2).is_none_or(|edge| network.value_of(edge).is_some_and(|tensor| tensor.len() == 1));
        return if constant && filling && pads(network, node, known.dims.len()).is_some() {
            Ok(())
        } else {
            Err("kernels pad with one number, by extents that are constants")
        };
    }
    let indices = input(1).and_then(|edge| views.get(&edge)).ok_or("the shape of its indices is not known")?;
    let whole = |view: &View| view.is_contiguous();
    match format(1) {
        Some(Format::I32 | Format::I64) if node.attributes.int_or("axis", 0) == 0 && whole(known) && whole(indices) => Ok(()),
        _ => Err("kernels gather slices of the first axis, by indices of 32 or 64 bits"),
    }
}

/// Elements before the first and behind the last of each axis; below 0 they are cut off.
fn pads(network: &Network, node: &Node, rank: usize) -> Option<Vec<[i64; 2]>> {
    let constant = |index: usize| node.inputs.get(index).copied().flatten().map(|edge| network.value_of(edge));
    let sizes = constant(1)??.sizes();
    let axes: Vec<usize> = match constant(3) {
        Some(axes) => axes?.sizes().iter().map(|a| crate::network::meaning::axis(*a, rank).ok()).collect::<Option<_>>()?,
        None => (0..rank).collect(),
    };
    let mut out = vec![[0; 2]; rank];
    for (i, axis) in axes.iter().enumerate() {
        out[*axis] = [*sizes.get(i)?, *sizes.get(axes.len() + i)?];
    }
    Some(out)
}

/// The value of a table's element.
pub(super) fn say<'g>(node: &Node, table: Table, loads: &Loads<'_, 'g>) -> Option<Expr<'g>> {
    match table {
        Table::Border => padded(node, loads),
        Table::Slices => gathered(node, loads),
    }
}

fn gathered<'g>(node: &Node, loads: &Loads<'_, 'g>) -> Option<Expr<'g>> {
    let (e, space) = (loads.builder, loads.space);
    let [table, indices] = [node.inputs[0]?, node.inputs[1]?].map(|edge| loads.parts.views.get(&edge));
    let (table, indices) = (table?, indices?);
    let format = loads.parts.network.type_of(node.inputs[1]?).format;
    // The axes of the indices come first, then those of a slice.
    let (slice, rank) = (&table.dims[1..], indices.dims.len());
    let flat = |dims: &[(usize, usize)]| dims.iter().map(|(extent, _)| (*extent, 0)).collect::<Vec<_>>();
    let named = View { dims: [indices.dims.clone(), flat(slice)].concat(), ..indices.clone() };
    let inside = View { dims: [flat(&indices.dims), slice.to_vec()].concat(), ..table.clone() };
    if named.dims.len() != space.shape.len() || rank > named.dims.len() {
        return None;
    }
    let index = match format {
        Format::I32 => loads.load(&named, DType::I32)?,
        // The low half of 64 bits, which lies first.
        _ => loads.element(&named, DType::I32, space.index(e, &named) * 2),
    };
    let rows = i32::try_from(table.dims[0].0).ok()?;
    let index = index.lt(0).select(index + rows, index);
    let place = index * i32::try_from(table.dims[0].1).ok()? + space.index(e, &inside);
    Some(loads.element(table, loads.parts.network.type_of(node.inputs[0]?).format.dtype()?, place))
}

fn padded<'g>(node: &Node, loads: &Loads<'_, 'g>) -> Option<Expr<'g>> {
    let (e, network) = (loads.builder, loads.parts.network);
    let view = loads.parts.views.get(&node.inputs[0]?)?;
    let dtype = network.type_of(node.inputs[0]?).format.dtype()?;
    let filling = node.inputs.get(2).copied().flatten().and_then(|edge| network.value_of(edge)).and_then(Tensor::only);
    let mut place = e.constant(i32::try_from(view.offset).ok()?);
    let mut inside: Option<Expr<'g>> = None;
    for (axis, [before, behind]) in pads(network, node, view.dims.len())?.into_iter().enumerate() {
        let (extent, stride) = view.dims[axis];
        let at = loads.space.coordinate(e, axis) - i32::try_from(before).ok()?;
        if before > 0 || behind > 0 {
            let within = at.ge(0) & at.lt(i32::try_from(extent).ok()?);
            inside = Some(inside.map_or(within, |inside| inside & within));
        }
        place += at * i32::try_from(stride).ok()?;
    }
    let value = loads.element(view, dtype, place);
    let border = match dtype.value_type() {
        crate::dtype::ValueType::I32 => e.constant(filling.unwrap_or(0.0) as i32),
        crate::dtype::ValueType::Bool => e.constant(filling.unwrap_or(0.0) != 0.0),
        _ => e.constant(filling.unwrap_or(0.0)),
    };
    Some(inside.map_or(value, |inside| inside.select(value, border)))
}
