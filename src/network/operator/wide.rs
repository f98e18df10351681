//! Typing of products of eight bits, whose results have the format of the sums.

use super::{Site, typing};
use crate::network::fault::Fault;
use crate::network::format::Format;
use crate::network::types::Type;

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
