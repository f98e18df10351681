//! Typing of products that ONNX lacks: those of eight bits, whose results have the format of the sums, and attention.

use super::{Site, typing};
use crate::network::fault::Fault;
use crate::network::format::Format;
use crate::network::types::{Dim, Type};

/// The format of sums of products.
fn sums(site: &Site<'_>) -> Result<Format, Fault> {
    let formats = [site.input(0)?.format, site.input(1)?.format];
    match formats {
        [Format::I8 | Format::U8, Format::I8 | Format::U8] => Ok(Format::I32),
        [Format::E4M3 | Format::E5M2, Format::E4M3 | Format::E5M2] => Ok(Format::F32),
        [a, b] => Err(Fault::Format(format!("{} takes integers of eight bits, or fp8 numbers, not {a} and {b}", site.name))),
    }
}

/// The type of a matrix whose axes are exchanged on demand.
fn turned(site: &Site<'_>, input: usize, mark: &str) -> Result<Type, Fault> {
    let mut of = site.input(input)?.clone();
    if let (true, Some(dims)) = (site.attributes.flag(mark), &mut of.dims) {
        match dims.as_mut_slice() {
            [_, _] => dims.reverse(),
            _ => return Err(Fault::attribute(mark, "transposes matrices alone")),
        }
    }
    Ok(of)
}

pub(super) fn matmul(site: &Site<'_>) -> Result<Vec<Type>, Fault> {
    let (a, b) = (turned(site, 0, "transA")?, turned(site, 1, "transB")?);
    typing::product(&Site { inputs: &[Some(&a), Some(&b)], ..*site }, 1, sums(site)?)
}

pub(super) fn conv(site: &Site<'_>) -> Result<Vec<Type>, Fault> {
    typing::convolution(site, 1, sums(site)?)
}

pub(super) fn attention(site: &Site<'_>) -> Result<Vec<Type>, Fault> {
    let [q, k, v] = [site.input(0)?, site.input(1)?, site.input(2)?];
    let format = q.format;
    if !matches!(format, Format::F16 | Format::BF16 | Format::F32) || k.format != format || v.format != format {
        return Err(Fault::Format(format!("{} takes f16, bf16 or f32, one format for all, not {q}, {k} and {v}", site.name)));
    }
    let (Some(a), Some(b), Some(c)) = (&q.dims, &k.dims, &v.dims) else { return Ok(vec![Type::unshaped(format)]) };
    let rank = a.len();
    let agree = |x: &Dim, y: &Dim| x.known().is_none() || y.known().is_none() || x == y;
    let fits = rank >= 2
        && b.len() == rank
        && c.len() == rank
        && a[..rank - 2].iter().zip(&b[..rank - 2]).all(|(x, y)| agree(x, y))
        && a[..rank - 2].iter().zip(&c[..rank - 2]).all(|(x, y)| agree(x, y))
        && agree(&a[rank - 1], &b[rank - 1])
        && agree(&b[rank - 2], &c[rank - 2]);
    if !fits {
        return Err(Fault::Shape(format!("{} takes [.., M, D], [.., K, D] and [.., K, N], not {q}, {k} and {v}", site.name)));
    }
    let mut dims = a.clone();
    dims[rank - 1] = c[rank - 1].clone();
    Ok(vec![Type { format, dims: Some(dims) }])
}
