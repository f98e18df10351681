//! Typing rules: formats and shapes of outputs, as far as they follow from the inputs' types and constants.
//!
//! A rule reports what is wrong where it knows enough to, and leaves extents open where it does not.

use super::Site;
use super::pointwise::named_format;
use crate::network::fault::Fault;
use crate::network::format::Format;
use crate::network::meaning::{self, convolve, layout, pool};
use crate::network::tensor::Tensor;
use crate::network::types::{Dim, Type, broadcast};

type Typed = Result<Vec<Type>, Fault>;

fn known(format: Format, shape: &[usize]) -> Vec<Type> {
    vec![Type::new(format, shape)]
}

/// Extents of so many axes, none of which is known.
fn open(format: Format, rank: usize) -> Vec<Type> {
    vec![Type { format, dims: Some(vec![Dim::Unknown; rank]) }]
}

fn unshaped(format: Format) -> Vec<Type> {
    vec![Type::unshaped(format)]
}

/// The type of the first input.
pub(super) fn same(site: &Site<'_>) -> Typed {
    Ok(vec![site.input(0)?.clone()])
}

/// The first input's format, in a shape that depends on more than types.
pub(super) fn first_format(site: &Site<'_>) -> Typed {
    let x = site.input(0)?;
    Ok(vec![Type::unshaped(x.format); site.outputs])
}

/// Integers, in a shape that depends on more than types.
pub(super) fn indices(_: &Site<'_>) -> Typed {
    Ok(unshaped(Format::I64))
}

pub(super) fn matmul(site: &Site<'_>) -> Typed {
    let format = site.input(0)?.format;
    if site.input(1)?.format != format {
        return Err(Fault::Format(format!(
            "{} takes operands of one format, not {format} and {}",
            site.name,
            site.input(1)?.format
        )));
    }
    product(site, 1, format)
}

pub(super) fn matmul_integer(site: &Site<'_>) -> Typed {
    product(site, 1, Format::I32)
}

pub(super) fn qlinear_matmul(site: &Site<'_>) -> Typed {
    product(site, 3, site.input(7)?.format)
}

/// NumPy's product of the first input and another.
pub(super) fn product(site: &Site<'_>, other: usize, format: Format) -> Typed {
    let (Some(a), Some(b)) = (&site.input(0)?.dims, &site.input(other)?.dims) else { return Ok(unshaped(format)) };
    if a.is_empty() || b.is_empty() {
        return Err(Fault::Shape(format!("{} takes tensors of one axis or more", site.name)));
    }
    let inner = [&a[a.len() - 1], &b[b.len().saturating_sub(2)]];
    if let [Dim::Known(k), Dim::Known(rows)] = inner
        && k != rows
    {
        return Err(Fault::Shape(format!("{} times {}: K is {k} and {rows}", site.input(0)?, site.input(other)?)));
    }
    let mut dims = broadcast([&a[..a.len().saturating_sub(2)], &b[..b.len().saturating_sub(2)]])?;
    dims.extend((a.len() > 1).then(|| a[a.len() - 2].clone()));
    dims.extend((b.len() > 1).then(|| b[b.len() - 1].clone()));
    Ok(vec![Type { format, dims: Some(dims) }])
}

pub(super) fn gemm(site: &Site<'_>) -> Typed {
    let (a, b) = (site.input(0)?, site.input(1)?);
    let (Some(x), Some(y)) = (&a.dims, &b.dims) else { return Ok(unshaped(a.format)) };
    let ([x0, x1], [y0, y1]) = (x.as_slice(), y.as_slice()) else {
        return Err(Fault::Shape(format!("Gemm takes two matrices, not {a} and {b}")));
    };
    let (m, k) = if site.attributes.flag("transA") { (x1, x0) } else { (x0, x1) };
    let (rows, n) = if site.attributes.flag("transB") { (y1, y0) } else { (y0, y1) };
    if let (Dim::Known(k), Dim::Known(rows)) = (k, rows)
        && k != rows
    {
        return Err(Fault::Shape(format!("{a} times {b}: K is {k} and {rows}")));
    }
    if a.format != b.format || site.get(2).is_some_and(|c| c.format != a.format) {
        return Err(Fault::Format(format!("Gemm takes operands of one format, and is given {a} and {b}")));
    }
    if let Some(c) = site.get(2).and_then(|c| c.dims.as_ref()) {
        broadcast([c.as_slice(), &[m.clone(), n.clone()]])?;
    }
    Ok(vec![Type { format: a.format, dims: Some(vec![m.clone(), n.clone()]) }])
}

pub(super) fn conv(site: &Site<'_>) -> Typed {
    let format = site.input(0)?.format;
    if site.input(1)?.format != format {
        return Err(Fault::Format(format!(
            "Conv takes an image and filters of one format, not {format} and {}",
            site.input(1)?.format
        )));
    }
    convolution(site, 1, format)
}

pub(super) fn conv_integer(site: &Site<'_>) -> Typed {
    convolution(site, 1, Format::I32)
}

pub(super) fn qlinear_conv(site: &Site<'_>) -> Typed {
    convolution(site, 3, site.input(7)?.format)
}

pub(super) fn convolution(site: &Site<'_>, filters: usize, format: Format) -> Typed {
    let (x, w) = (site.input(0)?, site.input(filters)?);
    let (Some(dims), Some(w)) = (&x.dims, w.shape()) else {
        return Ok(x.rank().map_or_else(|| unshaped(format), |rank| open(format, rank)));
    };
    // The number of images may be a symbol.
    let Some(rest) = dims.get(1..).and_then(|rest| rest.iter().map(Dim::known).collect::<Option<Vec<usize>>>()) else {
        return Ok(open(format, dims.len()));
    };
    let image: Vec<usize> = std::iter::once(1).chain(rest).collect();
    let shape = convolve::Extents::new(site.attributes, &image, &w)?.shape();
    let dims = std::iter::once(dims[0].clone()).chain(shape[1..].iter().copied().map(Dim::Known)).collect();
    Ok(vec![Type { format, dims: Some(dims) }])
}

pub(super) fn conv_transpose(site: &Site<'_>) -> Typed {
    let (x, w) = (site.input(0)?, site.input(1)?);
    let (Some(shape), Some(w)) = (x.shape(), w.shape()) else { return Ok(unshaped(x.format)) };
    if shape.len() < 3 || w.len() != shape.len() {
        return Err(Fault::Shape(format!("filters {w:?} do not fit an image {x}")));
    }
    let groups = usize::try_from(site.attributes.int_or("group", 1)).unwrap_or(0);
    let t = convolve::Transposed::new(site.attributes, &shape[2..], &w[2..])?;
    let channels = w[1].checked_mul(groups).ok_or_else(|| Fault::attribute("group", "is a positive number"))?;
    let out: Vec<usize> = [shape[0], channels].into_iter().chain(t.out).collect();
    Ok(known(x.format, &out))
}

pub(super) fn pool(site: &Site<'_>) -> Typed {
    let x = site.input(0)?;
    let mut types = match (&x.dims, x.dims.as_ref().and_then(|dims| dims.get(2..))) {
        (Some(dims), Some(spatial)) if spatial.iter().all(|dim| dim.known().is_some()) => {
            let image: Vec<usize> = dims.iter().map(|dim| dim.known().unwrap_or(1)).collect();
            let window = pool::window(site.attributes, &image)?;
            let out = dims[..2].iter().cloned().chain(window.out.into_iter().map(Dim::Known)).collect();
            vec![Type { format: x.format, dims: Some(out) }]
        }
        (Some(dims), _) => open(x.format, dims.len()),
        _ => unshaped(x.format),
    };
    types.extend((1..site.outputs).map(|_| Type { format: Format::I64, dims: types[0].dims.clone() }).collect::<Vec<_>>());
    Ok(types)
}

pub(super) fn global_pool(site: &Site<'_>) -> Typed {
    let x = site.input(0)?;
    let dims = x.dims.as_ref().map(|dims| {
        let one = |(axis, dim): (usize, &Dim)| if axis < 2 { dim.clone() } else { Dim::Known(1) };
        dims.iter().enumerate().map(one).collect()
    });
    Ok(vec![Type { format: x.format, dims }])
}

/// Extents that symbols and unknown ones may stand among, without those that are reduced.
fn without(dims: &[Dim], axes: &[usize], keep: bool) -> Vec<Dim> {
    let extent = |(axis, dim): (usize, &Dim)| match axes.contains(&axis) {
        true if keep => Some(Dim::Known(1)),
        true => None,
        false => Some(dim.clone()),
    };
    dims.iter().enumerate().filter_map(extent).collect()
}

pub(super) fn reduction(site: &Site<'_>) -> Typed {
    let x = site.input(0)?;
    let Some(dims) = &x.dims else { return Ok(unshaped(x.format)) };
    let keep = site.attributes.int_or("keepdims", 1) != 0;
    let axes = match (site.get(1), site.constant(1)) {
        (Some(_), None) => return Ok(if keep { open(x.format, dims.len()) } else { unshaped(x.format) }),
        (_, Some(axes)) if !axes.is_empty() => meaning::axes(&axes.sizes(), dims.len())?,
        _ if site.attributes.flag("noop_with_empty_axes") => return same(site),
        _ => (0..dims.len()).collect(),
    };
    Ok(vec![Type { format: x.format, dims: Some(without(dims, &axes, keep)) }])
}

pub(super) fn arg(site: &Site<'_>) -> Typed {
    let x = site.input(0)?;
    let Some(dims) = &x.dims else { return Ok(unshaped(Format::I64)) };
    let axis = meaning::axis(site.attributes.int_or("axis", 0), dims.len())?;
    let keep = site.attributes.int_or("keepdims", 1) != 0;
    Ok(vec![Type { format: Format::I64, dims: Some(without(dims, &[axis], keep)) }])
}

/// A row function, with numbers of each row as further outputs.
pub(super) fn norm(site: &Site<'_>) -> Typed {
    let x = site.input(0)?;
    let mut types = vec![x.clone()];
    if let Some(dims) = &x.dims {
        let axis = meaning::axis(site.attributes.int_or("axis", -1), dims.len())?;
        let axes: Vec<usize> = (axis..dims.len()).collect();
        let format = if x.format == Format::F64 { Format::F64 } else { Format::F32 };
        types.resize(site.outputs, Type { format, dims: Some(without(dims, &axes, true)) });
    } else {
        types.resize(site.outputs, Type::unshaped(Format::F32));
    }
    Ok(types)
}

pub(super) fn cast_type(site: &Site<'_>) -> Typed {
    Ok(vec![Type { format: named_format(site.attributes, "to")?, dims: site.input(0)?.dims.clone() }])
}

/// The first input's shape in the second's format.
pub(super) fn cast_like(site: &Site<'_>) -> Typed {
    Ok(vec![Type { format: site.input(1)?.format, dims: site.input(0)?.dims.clone() }])
}

pub(super) fn quantize(site: &Site<'_>) -> Typed {
    let format = match site.get(2) {
        Some(zero) => zero.format,
        None if site.attributes.get("output_dtype").is_some() => named_format(site.attributes, "output_dtype")?,
        None => Format::U8,
    };
    Ok(vec![Type { format, dims: site.input(0)?.dims.clone() }])
}

pub(super) fn dequantize(site: &Site<'_>) -> Typed {
    let format = match site.attributes.get("output_dtype") {
        Some(_) => named_format(site.attributes, "output_dtype")?,
        None => site.input(1)?.format,
    };
    Ok(vec![Type { format, dims: site.input(0)?.dims.clone() }])
}

pub(super) fn dynamic_quantize(site: &Site<'_>) -> Typed {
    let dims = site.input(0)?.dims.clone();
    Ok(vec![Type { format: Format::U8, dims }, Type::new(Format::F32, Vec::new()), Type::new(Format::U8, Vec::new())])
}

pub(super) fn transpose(site: &Site<'_>) -> Typed {
    let x = site.input(0)?;
    let Some(dims) = &x.dims else { return Ok(unshaped(x.format)) };
    let order = layout::permutation(site.attributes.ints("perm"), dims.len())?;
    Ok(vec![Type { format: x.format, dims: Some(order.into_iter().map(|axis| dims[axis].clone()).collect()) }])
}

pub(super) fn reshape(site: &Site<'_>) -> Typed {
    let x = site.input(0)?;
    let Some(to) = site.constant(1).map(Tensor::sizes) else { return Ok(unshaped(x.format)) };
    if let Some(shape) = x.shape() {
        return Ok(known(x.format, &layout::reshaped(&shape, &to, site.attributes.flag("allowzero"))?));
    }
    // One extent is open on either side: the known ones say what it is.
    let Some(dims) = &x.dims else { return Ok(open(x.format, to.len())) };
    let copied = |(axis, extent): (usize, &i64)| match extent {
        0 if !site.attributes.flag("allowzero") => dims.get(axis).cloned().unwrap_or(Dim::Unknown),
        -1 => Dim::Unknown,
        extent => usize::try_from(*extent).map_or(Dim::Unknown, Dim::Known),
    };
    let mut out: Vec<Dim> = to.iter().enumerate().map(copied).collect();
    let product = |dims: &[Dim]| dims.iter().filter_map(Dim::known).fold(1usize, usize::saturating_mul);
    let symbols = |dims: &[Dim]| dims.iter().filter(|dim| dim.known().is_none()).cloned().collect::<Vec<_>>();
    let (before, after) = (symbols(dims), symbols(&out));
    if before.len() == 1 && after.len() == 1 && after[0] == Dim::Unknown && product(dims) == product(&out) {
        out.iter_mut().filter(|dim| **dim == Dim::Unknown).for_each(|dim| *dim = before[0].clone());
    } else if let [Dim::Unknown, Dim::Symbol(_)] | [Dim::Symbol(_), Dim::Unknown] = after.as_slice()
        && before.len() == 1
        && after.contains(&before[0])
        && product(&out) > 0
    {
        let rest = product(dims) / product(&out);
        out.iter_mut().filter(|dim| **dim == Dim::Unknown).for_each(|dim| *dim = Dim::Known(rest));
    }
    Ok(vec![Type { format: x.format, dims: Some(out) }])
}

pub(super) fn flatten(site: &Site<'_>) -> Typed {
    let x = site.input(0)?;
    let Some(dims) = &x.dims else { return Ok(open(x.format, 2)) };
    let axis = layout::flatten_axis(site.attributes.int_or("axis", 1), dims.len())?;
    let product = |dims: &[Dim]| match dims {
        [dim] => dim.clone(),
        dims => dims.iter().try_fold(1usize, |a, dim| a.checked_mul(dim.known()?)).map_or(Dim::Unknown, Dim::Known),
    };
    Ok(vec![Type { format: x.format, dims: Some(vec![product(&dims[..axis]), product(&dims[axis..])]) }])
}

/// The extents as numbers in which an unknown one is 2: what is 1 is known.
fn marked(dims: &[Dim]) -> Vec<usize> {
    dims.iter().map(|dim| dim.known().unwrap_or(2)).collect()
}

pub(super) fn squeeze(site: &Site<'_>) -> Typed {
    let x = site.input(0)?;
    let Some(dims) = &x.dims else { return Ok(unshaped(x.format)) };
    let gone = match (site.get(1), site.constant(1)) {
        (_, Some(axes)) => meaning::axes(&axes.sizes(), dims.len())?,
        (Some(_), None) => return Ok(unshaped(x.format)),
        (None, None) if dims.iter().all(|dim| dim.known().is_some()) => {
            let shape = marked(dims);
            (0..dims.len()).filter(|axis| shape[*axis] == 1).collect()
        }
        _ => return Ok(unshaped(x.format)),
    };
    if let Some(axis) = gone.iter().find(|axis| dims[**axis].known().is_some_and(|extent| extent != 1)) {
        return Err(Fault::Shape(format!("axis {axis} of {x} is not 1, and cannot be squeezed")));
    }
    Ok(vec![Type { format: x.format, dims: Some(without(dims, &gone, false)) }])
}

pub(super) fn unsqueeze(site: &Site<'_>) -> Typed {
    let x = site.input(0)?;
    let (Some(dims), Some(axes)) = (&x.dims, site.constant(1)) else { return Ok(unshaped(x.format)) };
    let rank = dims.len() + axes.len();
    let new = meaning::axes(&axes.sizes(), rank)?;
    let mut rest = dims.iter();
    let next = |axis| if new.contains(&axis) { Some(Dim::Known(1)) } else { rest.next().cloned() };
    Ok(vec![Type { format: x.format, dims: (0..rank).map(next).collect() }])
}

pub(super) fn concat(site: &Site<'_>) -> Typed {
    let x = site.input(0)?;
    let all: Option<Vec<&Vec<Dim>>> = site.inputs.iter().map(|input| input.and_then(|t| t.dims.as_ref())).collect();
    let Some(all) = all else { return Ok(unshaped(x.format)) };
    let axis = meaning::axis(site.attributes.int_or("axis", 0), all[0].len())?;
    if let Some(other) = all.iter().find(|dims| dims.len() != all[0].len()) {
        return Err(Fault::Shape(format!("Concat takes tensors of as many axes, not {} and {}", all[0].len(), other.len())));
    }
    let mut out = all[0].clone();
    out[axis] = all.iter().try_fold(0usize, |sum, dims| sum.checked_add(dims[axis].known()?)).map_or(Dim::Unknown, Dim::Known);
    Ok(vec![Type { format: x.format, dims: Some(out) }])
}

pub(super) fn split(site: &Site<'_>) -> Typed {
    let x = site.input(0)?;
    let Some(dims) = &x.dims else { return first_format(site) };
    let axis = meaning::axis(site.attributes.int_or("axis", 0), dims.len())?;
    let asked = site.constant(1).map(Tensor::sizes);
    let with = |extent: Dim| {
        let mut part = dims.clone();
        part[axis] = extent;
        Type { format: x.format, dims: Some(part) }
    };
    if site.get(1).is_some() && asked.is_none() || dims[axis].known().is_none() {
        return Ok(vec![with(Dim::Unknown); site.outputs]);
    }
    let extents = layout::split_extents(dims[axis].known().unwrap_or(0), asked, site.outputs)?;
    Ok(extents.into_iter().map(|extent| with(Dim::Known(extent))).collect())
}

pub(super) fn slice(site: &Site<'_>) -> Typed {
    let x = site.input(0)?;
    let Some(dims) = &x.dims else { return Ok(unshaped(x.format)) };
    let list = |i: usize| site.constant(i).map(Tensor::sizes);
    let open_list = |i: usize| site.get(i).is_some() && site.constant(i).is_none();
    let (Some(starts), Some(ends), false) = (list(1), list(2), open_list(3) || open_list(4)) else {
        return Ok(open(x.format, dims.len()));
    };
    let slices = layout::slices(&marked(dims), &starts, &ends, list(3), list(4))?;
    let axes = list(3).unwrap_or_else(|| (0..starts.len() as i64).collect());
    let touched = meaning::axes(&axes, dims.len())?;
    let extent = |axis: usize| match (touched.contains(&axis), dims[axis].known()) {
        (true, None) => Dim::Unknown,
        (true, Some(_)) => Dim::Known(slices[axis].2),
        (false, _) => dims[axis].clone(),
    };
    Ok(vec![Type { format: x.format, dims: Some((0..dims.len()).map(extent).collect()) }])
}

pub(super) fn expand(site: &Site<'_>) -> Typed {
    let x = site.input(0)?;
    let (Some(dims), Some(to)) = (&x.dims, site.constant(1)) else { return Ok(unshaped(x.format)) };
    let to: Vec<Dim> = to.sizes().iter().map(|x| usize::try_from(*x).map_or(Dim::Unknown, Dim::Known)).collect();
    Ok(vec![Type { format: x.format, dims: Some(broadcast([dims.as_slice(), &to])?) }])
}

/// As many axes as the first input, whose extents depend on more than types.
pub(super) fn same_rank(site: &Site<'_>) -> Typed {
    let x = site.input(0)?;
    Ok(x.rank().map_or_else(|| unshaped(x.format), |rank| open(x.format, rank)))
}

pub(super) fn gather(site: &Site<'_>) -> Typed {
    let (x, indices) = (site.input(0)?, site.input(1)?);
    let (Some(dims), Some(at)) = (&x.dims, &indices.dims) else { return Ok(unshaped(x.format)) };
    let axis = meaning::axis(site.attributes.int_or("axis", 0), dims.len())?;
    let out = dims[..axis].iter().chain(at).chain(&dims[axis + 1..]).cloned().collect();
    Ok(vec![Type { format: x.format, dims: Some(out) }])
}

pub(super) fn gather_elements(site: &Site<'_>) -> Typed {
    Ok(vec![Type { format: site.input(0)?.format, dims: site.input(1)?.dims.clone() }])
}

pub(super) fn shape_of(site: &Site<'_>) -> Typed {
    let Some(rank) = site.input(0)?.rank() else { return Ok(open(Format::I64, 1)) };
    let (start, end) = layout::shape_range(site.attributes, rank);
    Ok(known(Format::I64, &[end.saturating_sub(start)]))
}

pub(super) fn size_of(_: &Site<'_>) -> Typed {
    Ok(known(Format::I64, &[]))
}

/// The type of what a meaning without inputs computes.
pub(super) fn constant(site: &Site<'_>) -> Typed {
    let call = super::Call { name: site.name, attributes: site.attributes, inputs: &[], outputs: 1 };
    meaning::index::constant(&call).map(|tensors| tensors.iter().map(Type::of).collect())
}

pub(super) fn constant_of_shape(site: &Site<'_>) -> Typed {
    let format = site.attributes.tensor("value").map_or(Format::F32, Tensor::format);
    let Some(shape) = site.constant(0) else { return Ok(unshaped(format)) };
    let dims = shape.sizes().iter().map(|x| usize::try_from(*x).map_or(Dim::Unknown, Dim::Known)).collect();
    Ok(vec![Type { format, dims: Some(dims) }])
}

pub(super) fn one_hot(site: &Site<'_>) -> Typed {
    Ok(unshaped(site.input(2)?.format))
}

pub(super) fn eye_like(site: &Site<'_>) -> Typed {
    let x = site.input(0)?;
    let named = site.attributes.get("dtype").is_some();
    let format = if named { named_format(site.attributes, "dtype")? } else { x.format };
    Ok(vec![Type { format, dims: x.dims.clone() }])
}

pub(super) fn range(site: &Site<'_>) -> Typed {
    Ok(open(site.input(0)?.format, 1))
}

/// A loss: one number, or one for each target.
pub(super) fn loss(site: &Site<'_>) -> Typed {
    let x = site.input(0)?;
    let each = site.attributes.text_or("reduction", "mean") == "none";
    let dims = if each { site.input(1)?.dims.clone() } else { Some(Vec::new()) };
    let mut types = vec![Type { format: x.format, dims }];
    types.resize(site.outputs, x.clone());
    Ok(types)
}

/// `TopK`: elements in the first input's format, and indices.
pub(super) fn top_k(site: &Site<'_>) -> Typed {
    let x = site.input(0)?;
    let Some(dims) = &x.dims else { return Ok(vec![Type::unshaped(x.format), Type::unshaped(Format::I64)]) };
    let axis = meaning::axis(site.attributes.int_or("axis", -1), dims.len())?;
    let mut out = dims.clone();
    let k = site.constant(1).and_then(|k| usize::try_from(*k.sizes().first()?).ok());
    out[axis] = k.map_or(Dim::Unknown, Dim::Known);
    Ok([x.format, Format::I64].map(|format| Type { format, dims: Some(out.clone()) }).to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Attributes;
    use crate::network::meaning::reduce;
    use crate::network::operator::Operator;

    #[test]
    fn a_symbol_survives_a_reshape() {
        let (x, to) = (Type::new(Format::F32, ("batch", 128, 768)), Tensor::indices(&[-1, 128, 12, 64]));
        let types = [Some(&x), None];
        let attributes = Attributes::new();
        let site = Site { name: "Reshape", attributes: &attributes, inputs: &types, constants: &[None, Some(&to)], outputs: 1 };
        let row = Operator::named("Reshape").unwrap();
        assert_eq!(row.types(&site).unwrap()[0].to_string(), "f32[batch,128,12,64]");
        let to = Tensor::indices(&[0, -1]);
        let site = Site { constants: &[None, Some(&to)], ..site };
        assert_eq!(row.types(&site).unwrap()[0].to_string(), "f32[batch,98304]");
    }

    #[test]
    fn reductions_keep_or_drop_axes() {
        assert_eq!(reduce::reduced_shape(&[2, 3, 4], &[1], true), [2, 1, 4]);
        assert_eq!(reduce::reduced_shape(&[2, 3, 4], &[0, 2], false), [3]);
    }
}
