//! Tensors of ONNX files.

use super::OnnxError;
use super::messages;
use crate::network::fault::Fault;
use crate::network::format::Format;
use crate::network::tensor::{Tensor, count};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path};

/// ONNX's number of each format.
const NUMBERS: [(i32, Format); 15] = [
    (1, Format::F32),
    (2, Format::U8),
    (3, Format::I8),
    (4, Format::U16),
    (5, Format::I16),
    (6, Format::I32),
    (7, Format::I64),
    (9, Format::Bool),
    (10, Format::F16),
    (11, Format::F64),
    (12, Format::U32),
    (13, Format::U64),
    (16, Format::BF16),
    (17, Format::E4M3),
    (19, Format::E5M2),
];

/// ONNX's names of formats that networks do not have.
const OTHERS: [(i32, &str); 9] = [
    (8, "string"),
    (14, "complex64"),
    (15, "complex128"),
    (18, "float8e4m3fnuz"),
    (20, "float8e5m2fnuz"),
    (21, "uint4"),
    (22, "int4"),
    (23, "float4e2m1"),
    (24, "float8e8m0"),
];

/// The format of a number.
///
/// # Errors
/// If networks do not have it.
pub(super) fn format(number: i32) -> Result<Format, Fault> {
    let known = NUMBERS.iter().find(|(n, _)| *n == number).map(|(_, format)| *format);
    known.ok_or_else(|| {
        let name = OTHERS.iter().find(|(n, _)| *n == number).map_or_else(|| number.to_string(), |(_, name)| (*name).to_owned());
        Fault::Unsupported(format!("the format {name}"))
    })
}

/// ONNX's number of a format.
pub(super) fn number(format: Format) -> i32 {
    NUMBERS.iter().find(|(_, known)| *known == format).map_or(0, |(number, _)| *number)
}

/// The tensor of a message. `folder` is where files lie that it names.
pub(super) fn read(message: &messages::Tensor, folder: Option<&Path>) -> Result<Tensor, OnnxError> {
    let fail = |fault| OnnxError::Tensor { name: message.name.clone().unwrap_or_default(), fault };
    let format = format(message.data_type.unwrap_or(0)).map_err(fail)?;
    let shape: Result<Vec<usize>, _> = message.dims.iter().map(|extent| usize::try_from(*extent)).collect();
    let shape = shape.map_err(|_| fail(Fault::Shape(format!("{:?} is no shape", message.dims))))?;
    let expected = count(format, &shape).map_err(fail)? * format.size();
    let bytes = if message.data_location == Some(1) {
        external(message, folder, expected)?
    } else {
        match &message.raw_data {
            Some(bytes) => bytes.clone(),
            None => listed(message, format),
        }
    };
    Tensor::new(format, &shape, bytes).map_err(fail)
}

/// The elements of whichever list holds them.
fn listed(message: &messages::Tensor, format: Format) -> Vec<u8> {
    let low = |width: usize| message.int32_data.iter().flat_map(move |x| x.to_le_bytes()[..width].to_vec()).collect();
    match format {
        Format::F32 => message.float_data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        Format::F64 => message.double_data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        Format::I64 => message.int64_data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        Format::U64 => message.uint64_data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        Format::U32 => message.uint64_data.iter().flat_map(|x| x.to_le_bytes()[..4].to_vec()).collect(),
        // Narrow formats stand in the low bits of 32.
        other => low(other.size()),
    }
}

/// The elements in another file: a relative path that does not leave the folder.
fn external(message: &messages::Tensor, folder: Option<&Path>, expected: usize) -> Result<Vec<u8>, OnnxError> {
    let name = message.name.clone().unwrap_or_default();
    let entry = |key: &str| message.external_data.iter().find(|e| e.key.as_deref() == Some(key))?.value.as_deref();
    let wrong = |why: &str| OnnxError::External { name: name.clone(), why: why.to_owned() };
    let folder = folder.ok_or_else(|| wrong("the model was read from memory; read it with `Network::from_onnx_file`"))?;
    let location = Path::new(entry("location").ok_or_else(|| wrong("it names no file"))?);
    if location.components().any(|part| !matches!(part, Component::Normal(_) | Component::CurDir)) {
        return Err(wrong("its path leaves the model's folder"));
    }
    let number = |key: &str| match entry(key) {
        Some(text) => text.parse::<u64>().map(Some).map_err(|_| wrong("its offset or length is no number")),
        None => Ok(None),
    };
    let (offset, length) = (number("offset")?.unwrap_or(0), number("length")?);
    let io = |error: std::io::Error| wrong(&error.to_string());
    let mut file = File::open(folder.join(location)).map_err(io)?;
    let rest = file.metadata().map_err(io)?.len().saturating_sub(offset);
    // Nothing is allocated that the file does not hold.
    if length.is_some_and(|length| length != expected as u64) || rest < expected as u64 {
        return Err(wrong(&format!("the file does not hold its {expected} bytes there")));
    }
    file.seek(SeekFrom::Start(offset)).map_err(io)?;
    let mut bytes = vec![0; expected];
    file.read_exact(&mut bytes).map_err(io)?;
    Ok(bytes)
}
