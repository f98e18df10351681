//! Reductions and scans along axes.

use crate::network::fault::Fault;
use crate::network::format::Format;
use crate::network::operator::Call;
use crate::network::tensor::{Tensor, broadcast_strides, dot, for_each_index};

/// The axes that a node reduces: its second input, or all; none, if it says so.
fn reduced_axes(call: &Call<'_>, rank: usize) -> Result<Vec<usize>, Fault> {
    match call.sizes(1) {
        Some(list) if !list.is_empty() => super::axes(&list, rank),
        _ if call.attributes.flag("noop_with_empty_axes") => Ok(Vec::new()),
        _ => Ok((0..rank).collect()),
    }
}

/// The shape with these axes reduced to 1, or left out.
pub(crate) fn reduced_shape(shape: &[usize], axes: &[usize], keep: bool) -> Vec<usize> {
    let extent = |(axis, extent): (usize, &usize)| match axes.contains(&axis) {
        true if keep => Some(1),
        true => None,
        false => Some(*extent),
    };
    shape.iter().enumerate().filter_map(extent).collect()
}

/// Combines the elements along axes, from a beginning, and finishes with the number of elements.
fn reduced(
    call: &Call<'_>,
    begin: f64,
    each: impl Fn(f64) -> f64,
    combine: impl Fn(f64, f64) -> f64,
    finish: impl Fn(f64, f64) -> f64,
) -> Result<Vec<Tensor>, Fault> {
    let x = call.input(0)?;
    let axes = reduced_axes(call, x.rank())?;
    if axes.is_empty() && call.attributes.flag("noop_with_empty_axes") && call.sizes(1).is_none_or(|list| list.is_empty()) {
        // Without axes the node is a function of each element.
        let numbers: Vec<f64> = x.numbers().into_iter().map(|x| finish(combine(begin, each(x)), 1.0)).collect();
        return Ok(vec![Tensor::of_numbers(x.format(), x.shape(), &numbers)?]);
    }
    let kept = reduced_shape(x.shape(), &axes, true);
    let along = broadcast_strides(&kept, x.shape());
    let mut out = vec![begin; kept.iter().product()];
    let mut numbers = x.numbers().into_iter();
    for_each_index(x.shape(), |index| {
        let at = &mut out[dot(index, &along)];
        *at = combine(*at, each(numbers.next().unwrap_or(0.0)));
    });
    let count: usize = axes.iter().map(|axis| x.shape()[*axis]).product();
    out.iter_mut().for_each(|x| *x = finish(*x, count as f64));
    let shape = reduced_shape(x.shape(), &axes, call.attributes.int_or("keepdims", 1) != 0);
    Ok(vec![Tensor::of_numbers(x.format(), &shape, &out)?])
}

pub(crate) fn sum(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    reduced(call, 0.0, |x| x, |a, b| a + b, |a, _| a)
}

pub(crate) fn mean(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    reduced(call, 0.0, |x| x, |a, b| a + b, |a, n| a / n)
}

pub(crate) fn product(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    reduced(call, 1.0, |x| x, |a, b| a * b, |a, _| a)
}

/// The smallest or largest number of a format, which no element is beyond.
fn end(call: &Call<'_>, largest: bool) -> Result<f64, Fault> {
    let format = call.input(0)?.format();
    let (least, most) = format.range();
    Ok(match (format.is_float(), largest) {
        (true, true) => f64::INFINITY,
        (true, false) => f64::NEG_INFINITY,
        (false, true) => most as f64,
        (false, false) => least as f64,
    })
}

pub(crate) fn max(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    reduced(call, end(call, false)?, |x| x, |a, b| if a.is_nan() || a >= b { a } else { b }, |a, _| a)
}

pub(crate) fn min(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    reduced(call, end(call, true)?, |x| x, |a, b| if a.is_nan() || a <= b { a } else { b }, |a, _| a)
}

pub(crate) fn l1(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    reduced(call, 0.0, f64::abs, |a, b| a + b, |a, _| a)
}

pub(crate) fn l2(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    reduced(call, 0.0, |x| x * x, |a, b| a + b, |a, _| a.sqrt())
}

pub(crate) fn sum_square(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    reduced(call, 0.0, |x| x * x, |a, b| a + b, |a, _| a)
}

pub(crate) fn log_sum(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    reduced(call, 0.0, |x| x, |a, b| a + b, |a, _| a.ln())
}

/// Of two logarithms, the logarithm of the sum.
fn log_add(a: f64, b: f64) -> f64 {
    let (low, high) = if a < b { (a, b) } else { (b, a) };
    if high.is_infinite() { high } else { high + (low - high).exp().ln_1p() }
}

pub(crate) fn log_sum_exp(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    reduced(call, f64::NEG_INFINITY, |x| x, log_add, |a, _| a)
}

/// The index of the best element along an axis.
fn best(call: &Call<'_>, better: impl Fn(f64, f64) -> bool) -> Result<Vec<Tensor>, Fault> {
    let x = call.input(0)?;
    let axis = super::axis(call.attributes.int_or("axis", 0), x.rank())?;
    let [outer, extent, inner] = super::around(x.shape(), axis);
    if extent == 0 {
        return Err(Fault::Shape(format!("{x} has no element along axis {axis}")));
    }
    let last = call.attributes.flag("select_last_index");
    let numbers = x.numbers();
    let mut out = Vec::with_capacity(outer * inner);
    for before in 0..outer {
        for behind in 0..inner {
            let at = |i: usize| numbers[(before * extent + i) * inner + behind];
            let wins = |i: usize, best: usize| better(at(i), at(best)) || last && at(i) == at(best);
            out.push((1..extent).fold(0, |best, i| if wins(i, best) { i } else { best }) as i128);
        }
    }
    let shape = reduced_shape(x.shape(), &[axis], call.attributes.int_or("keepdims", 1) != 0);
    Ok(vec![Tensor::of_integers(Format::I64, &shape, &out)?])
}

pub(crate) fn arg_max(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    best(call, |a, b| a > b)
}

pub(crate) fn arg_min(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    best(call, |a, b| a < b)
}

/// What elements come to along an axis up to each place.
fn scan(call: &Call<'_>, begin: f64, combine: impl Fn(f64, f64) -> f64) -> Result<Vec<Tensor>, Fault> {
    let x = call.input(0)?;
    let axis = call.sizes(1).and_then(|list| list.first().copied());
    let axis = super::axis(axis.ok_or_else(|| Fault::Value("the axis of a scan is empty".to_owned()))?, x.rank())?;
    let [outer, extent, inner] = super::around(x.shape(), axis);
    let (exclusive, reverse) = (call.attributes.flag("exclusive"), call.attributes.flag("reverse"));
    let mut numbers = x.numbers();
    for before in 0..outer {
        for behind in 0..inner {
            let mut total = begin;
            for step in 0..extent {
                let i = if reverse { extent - 1 - step } else { step };
                let at = &mut numbers[(before * extent + i) * inner + behind];
                let next = combine(total, *at);
                *at = if exclusive { total } else { next };
                total = next;
            }
        }
    }
    Ok(vec![Tensor::of_numbers(x.format(), x.shape(), &numbers)?])
}

pub(crate) fn cum_sum(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    scan(call, 0.0, |a, b| a + b)
}

pub(crate) fn cum_prod(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    scan(call, 1.0, |a, b| a * b)
}

/// `TopK`: the best elements along an axis, with their indices.
pub(crate) fn top_k(call: &Call<'_>) -> Result<Vec<Tensor>, Fault> {
    let x = call.input(0)?;
    let axis = super::axis(call.attributes.int_or("axis", -1), x.rank())?;
    let [outer, extent, inner] = super::around(x.shape(), axis);
    let k = call.sizes(1).and_then(|k| usize::try_from(*k.first()?).ok()).filter(|k| *k <= extent);
    let k = k.ok_or_else(|| Fault::Value(format!("k is not a number from 0 to {extent}")))?;
    let largest = call.attributes.int_or("largest", 1) != 0;
    let numbers = x.numbers();
    let mut shape = x.shape().to_vec();
    shape[axis] = k;
    let count = outer * k * inner;
    let (mut values, mut indices) = (vec![0.0; count], vec![0i128; count]);
    for before in 0..outer {
        for behind in 0..inner {
            let at = |i: usize| numbers[(before * extent + i) * inner + behind];
            let mut order: Vec<usize> = (0..extent).collect();
            order.sort_by(|a, b| if largest { at(*b).total_cmp(&at(*a)) } else { at(*a).total_cmp(&at(*b)) });
            for (place, i) in order.into_iter().take(k).enumerate() {
                let to = (before * k + place) * inner + behind;
                (values[to], indices[to]) = (at(i), i as i128);
            }
        }
    }
    Ok(vec![Tensor::of_numbers(x.format(), &shape, &values)?, Tensor::of_integers(Format::I64, &shape, &indices)?])
}
