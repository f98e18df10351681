//! Typing rules of operators that change extents by numbers: borders, and blocks of pixels.

use super::Site;
use super::typing::same_rank;
use crate::network::fault::Fault;
use crate::network::meaning;
use crate::network::types::{Dim, Type};

type Typed = Result<Vec<Type>, Fault>;

/// The shape with other extents where they follow from numbers; a number that fits nothing leaves them open.
fn of(site: &Site<'_>, change: impl FnOnce(&mut Vec<Dim>) -> Option<()>) -> Typed {
    let x = site.input(0)?;
    let Some(mut dims) = x.dims.clone() else { return same_rank(site) };
    match change(&mut dims) {
        Some(()) => Ok(vec![Type { format: x.format, dims: Some(dims) }]),
        None => same_rank(site),
    }
}

fn number(dim: &Dim) -> Option<usize> {
    if let Dim::Known(extent) = dim { Some(*extent) } else { None }
}

/// `Pad`.
pub(super) fn pad(site: &Site<'_>) -> Typed {
    of(site, |dims| {
        let pads = site.constant(1)?.sizes();
        let axes: Vec<usize> = match (site.get(3), site.constant(3)) {
            (Some(_), None) => return None,
            (_, Some(axes)) => {
                axes.sizes().iter().map(|axis| meaning::axis(*axis, dims.len()).ok()).collect::<Option<Vec<usize>>>()?
            }
            _ => (0..dims.len()).collect(),
        };
        for (i, axis) in axes.iter().enumerate() {
            let (before, behind) = (*pads.get(i)?, *pads.get(axes.len() + i)?);
            if (before, behind) != (0, 0) {
                let extent = i64::try_from(number(&dims[*axis])?).ok()?.checked_add(before)?.checked_add(behind)?;
                dims[*axis] = Dim::Known(usize::try_from(extent).ok()?);
            }
        }
        Some(())
    })
}

/// `DepthToSpace`, and `SpaceToDepth`.
fn blocks(site: &Site<'_>, to_space: bool) -> Typed {
    of(site, |dims| {
        let b = usize::try_from(site.attributes.int_or("blocksize", 0)).ok().filter(|b| (1..1 << 20).contains(b))?;
        let [_, c, h, w] = &mut dims[..] else { return None };
        let extents = [number(c)?, number(h)?, number(w)?];
        let divided = |extent: usize, by: usize| extent.is_multiple_of(by).then_some(extent / by);
        let times = |extent: usize, by: usize| extent.checked_mul(by);
        let [to_c, to_h, to_w] = if to_space {
            [divided(extents[0], b * b)?, times(extents[1], b)?, times(extents[2], b)?]
        } else {
            [times(extents[0], b * b)?, divided(extents[1], b)?, divided(extents[2], b)?]
        };
        (*c, *h, *w) = (Dim::Known(to_c), Dim::Known(to_h), Dim::Known(to_w));
        Some(())
    })
}

pub(super) fn depth_to_space(site: &Site<'_>) -> Typed {
    blocks(site, true)
}

pub(super) fn space_to_depth(site: &Site<'_>) -> Typed {
    blocks(site, false)
}
