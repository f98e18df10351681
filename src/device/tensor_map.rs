//! MappedTensor maps as the driver encodes them.
//!
//! The driver takes any strides that are multiples of 16 bytes: 0 for a shared batch, interleaved entries, overlapping
//! entries. On an H200 boxes of all of these read the right elements.

use crate::dtype::DType;
use crate::plan::{MapSource, Swizzle, TMA_UNIT, TensorMap, corners};
use crate::problem::{Convolution, Patches, Windows};
use cudarc::driver::DriverError;
use cudarc::driver::sys::{
    CUtensorMap, CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapInterleave, CUtensorMapL2promotion, CUtensorMapSwizzle,
    cuTensorMapEncodeIm2col, cuTensorMapEncodeTiled,
};

/// A tensor map in the parameter block.
pub(super) type Bytes = [u8; 128];

/// A tensor of a launch; extents and strides in elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct MappedTensor {
    pub address: u64,
    /// Elements of a run.
    pub inner: usize,
    /// Runs of a batch entry.
    pub outer: usize,
    pub batch: usize,
    /// From run to run; arbitrary if there is only one.
    pub ld: usize,
    /// From entry to entry; arbitrary if there is only one.
    pub batch_stride: usize,
    /// Bytes of an element.
    pub size: usize,
}

/// Images for an im2col map: the channels of a pixel, rows, pixels of a row and images, and runs from each to the next.
struct Pixels {
    channels: usize,
    extents: [usize; 3],
    runs: [usize; 3],
}

/// The most channels that a place along them is a number of 32 bits for.
const MOST_CHANNELS: usize = i32::MAX as usize;

/// Three extents, and the byte strides of all but the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Form {
    extents: [u64; 3],
    strides: [u64; 2],
}

/// The alignment of addresses and strides, in bytes.
pub(super) const UNIT: u64 = TMA_UNIT as u64;
const EXTENT_LIMIT: u64 = 1 << 32;
const STRIDE_LIMIT: u64 = 1 << 40;

impl MappedTensor {
    /// The description of the tensor, if there is one.
    fn form(&self) -> Option<Form> {
        let extents = [self.inner as u64, self.outer as u64, self.batch as u64];
        let bytes = |stride: usize| (stride as u64).checked_mul(self.size as u64);
        // A stride along an extent of 1 is never used, so any legal one will do.
        let strides =
            [if self.outer > 1 { bytes(self.ld)? } else { UNIT }, if self.batch > 1 { bytes(self.batch_stride)? } else { UNIT }];
        let described = extents.iter().all(|extent| (1..=EXTENT_LIMIT).contains(extent))
            && strides.iter().all(|stride| stride.is_multiple_of(UNIT) && *stride < STRIDE_LIMIT)
            && self.address.is_multiple_of(UNIT);
        described.then_some(Form { extents, strides })
    }

    /// The same tensor with bytes as elements, if its elements are integers of four bits.
    fn in_bytes_of(self, dtype: DType) -> MappedTensor {
        if !dtype.is_four_bits() {
            return self;
        }
        let MappedTensor { inner, ld, batch_stride, .. } = self;
        MappedTensor { inner: dtype.bytes(inner), ld: dtype.bytes(ld), batch_stride: dtype.bytes(batch_stride), ..self }
    }

    /// The map, or `None` if it cannot describe the tensor. The cache may fetch lines `in_pairs`.
    ///
    /// # Errors
    /// If the driver rejects arguments that its documentation allows.
    pub fn encode(&self, map: &TensorMap, in_pairs: bool) -> Result<Option<Bytes>, DriverError> {
        let Some(Form { extents, strides }) = self.in_bytes_of(map.dtype).form() else { return Ok(None) };
        let boxes = [map.box_inner as u32, map.box_outer as u32, 1];
        let mut encoded = CUtensorMap { opaque: [0; 16] };
        // SAFETY: `encoded` is a map object of the driver's own type and alignment; the arrays have as many elements as a
        // rank of 3 calls for. The driver computes the object and neither reads nor keeps the tensor's address.
        unsafe {
            cuTensorMapEncodeTiled(
                &mut encoded,
                element(map),
                3,
                self.address as *mut _,
                extents.as_ptr(),
                strides.as_ptr(),
                boxes.as_ptr(),
                [1; 3].as_ptr(),
                CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                swizzle(map.swizzle),
                promotion(strides[0], in_pairs),
                CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        }
        .result()?;
        Ok(Some(bytemuck::cast(encoded.opaque)))
    }
}

impl MappedTensor {
    /// The filters of a convolution, whose taps lie where others have a batch.
    pub fn of_filters(self, convolution: &Convolution) -> MappedTensor {
        let channels = convolution.channels_of_group();
        MappedTensor { inner: channels, batch: convolution.taps(), batch_stride: channels, ..self }
    }

    /// The images of a convolution, in boxes of the pixels under one tap; or `None` if no map can describe them.
    ///
    /// # Errors
    /// If the driver rejects arguments that its documentation allows.
    pub fn encode_patches(&self, patches: &Patches, map: &TensorMap) -> Result<Option<Bytes>, DriverError> {
        let (images, Windows { image: [height, width], stride, .. }) = (patches.convolution.measures().images, patches.windows());
        let (lower, upper) = corners(patches);
        let pixels = Pixels { channels: patches.channels(), extents: [height, width, images], runs: [width, 1, width * height] };
        self.encode_pixels(pixels, [lower, upper], stride, map)
    }

    /// A matrix of a gradient of images that goes by remainders, in boxes of pixels of one remainder; or `None` if no map can
    /// describe it. All remainders have equally many pixels. The distance to a remainder's first pixel is added to the channel,
    /// so channels reach from the first pixel's to the last remainder's.
    ///
    /// # Errors
    /// If the driver rejects arguments that its documentation allows.
    pub fn encode_remainders(&self, patches: &Patches, map: &TensorMap) -> Result<Option<Bytes>, DriverError> {
        let (images, Windows { grid, spread, .. }) = (patches.convolution.measures().images, patches.windows());
        let ([height, width], [down, right]) = (grid, spread);
        let before = ((down - 1) * width + right - 1).checked_mul(self.ld);
        let channels = before.and_then(|before| before.checked_add(self.inner)).filter(|channels| *channels <= MOST_CHANNELS);
        let Some(channels) = channels else { return Ok(None) };
        let runs = [down * width, right, width * height];
        let pixels = Pixels { channels, extents: [height / down, width / right, images], runs };
        self.encode_pixels(pixels, [[0; 2]; 2], [1; 2], map)
    }

    /// A map of images, in boxes of pixels that follow each other inside of these corners, so many steps apart.
    fn encode_pixels(
        &self,
        pixels: Pixels,
        corners: [[i64; 2]; 2],
        steps: [usize; 2],
        map: &TensorMap,
    ) -> Result<Option<Bytes>, DriverError> {
        let Pixels { channels, extents: [height, width, images], runs } = pixels;
        let extents = [channels, width, height, images].map(|extent| extent as u64);
        let strides = runs.map(|runs| (self.ld as u64).checked_mul(runs as u64)?.checked_mul(self.size as u64));
        let [Some(line), Some(pixel), Some(image)] = strides else { return Ok(None) };
        // A stride along an extent of 1 is never used, and may be too large.
        let strides = [pixel, if height > 1 { line } else { pixel }, if images > 1 { image } else { pixel }];
        let described = extents.iter().all(|extent| (1..=EXTENT_LIMIT).contains(extent))
            && strides.iter().all(|stride| stride.is_multiple_of(UNIT) && *stride < STRIDE_LIMIT)
            && self.address.is_multiple_of(UNIT);
        if !described {
            return Ok(None);
        }
        // Down comes first in the library, and to the right in the driver.
        let [lower, upper] = corners.map(|[y, x]| [x as i32, y as i32]);
        let steps = [1, steps[1] as u32, steps[0] as u32, 1];
        let mut encoded = CUtensorMap { opaque: [0; 16] };
        // SAFETY: `encoded` is a map object of the driver's own type and alignment; extents and steps have four elements, strides
        // three and corners two, as a rank of 4 calls for. The driver computes the object and neither reads nor keeps the
        // tensor's address.
        unsafe {
            cuTensorMapEncodeIm2col(
                &mut encoded,
                element(map),
                4,
                self.address as *mut _,
                extents.as_ptr(),
                strides.as_ptr(),
                lower.as_ptr(),
                upper.as_ptr(),
                map.box_inner as u32,
                map.box_outer as u32,
                steps.as_ptr(),
                CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                swizzle(map.swizzle),
                CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        }
        .result()?;
        Ok(Some(bytemuck::cast(encoded.opaque)))
    }
}

/// The L2 promotion: bytes that L2 fetches at a time. Runs that begin inside a line of 128 bytes touch two lines a box
/// row. Fetching those in pairs brings in lines that are not needed: 5000^3 takes 1.15 to 1.5 times as long.
fn promotion(stride: u64, in_pairs: bool) -> CUtensorMapL2promotion {
    if in_pairs && stride.is_multiple_of(128) {
        CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B
    } else {
        CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B
    }
}

fn element(map: &TensorMap) -> CUtensorMapDataType {
    match map.dtype {
        DType::F16 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        DType::BF16 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        // Tensor cores multiply it as tf32. They would cut off the bits that such maps round, to nearest even.
        DType::F32 => match map.source {
            MapSource::Operand(_) | MapSource::Patches | MapSource::Filters => {
                CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32
            }
            MapSource::Argument(_) | MapSource::Remainders(_) => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        },
        DType::F64 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
        DType::I32 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_INT32,
        // Numbers of up to eight bits, and bits, are moved as bytes.
        DType::E4M3
        | DType::E5M2
        | DType::I8
        | DType::U8
        | DType::I4
        | DType::U4
        | DType::Bool
        | DType::Bits8
        | DType::Bits128 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT8,
    }
}

fn swizzle(swizzle: Swizzle) -> CUtensorMapSwizzle {
    match swizzle {
        Swizzle::None => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
        Swizzle::B32 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_32B,
        Swizzle::B64 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_64B,
        Swizzle::B128 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: MappedTensor = MappedTensor { address: 256, inner: 13, outer: 70, batch: 3, ld: 16, batch_stride: 1200, size: 2 };

    #[test]
    fn strides_are_bytes() {
        assert_eq!(GOOD.form(), Some(Form { extents: [13, 70, 3], strides: [32, 2400] }));
        assert_eq!(MappedTensor { size: 4, ..GOOD }.form(), Some(Form { extents: [13, 70, 3], strides: [64, 4800] }));
    }

    #[test]
    fn shared_and_interleaved_entries_are_described() {
        let strides = |tensor: MappedTensor| tensor.form().map(|form| form.strides);
        assert_eq!(strides(MappedTensor { batch_stride: 0, ..GOOD }), Some([32, 0]));
        assert_eq!(strides(MappedTensor { ld: 4096, batch_stride: 16, ..GOOD }), Some([8192, 32]));
    }

    #[test]
    fn a_stride_that_leads_nowhere_does_not_matter() {
        for ld in [0, 1, 13, usize::MAX] {
            assert!(MappedTensor { outer: 1, ld, ..GOOD }.form().is_some(), "{ld}");
            assert!(MappedTensor { outer: 2, ld, ..GOOD }.form().is_none() || ld == 0, "{ld}");
            assert!(MappedTensor { batch: 1, batch_stride: ld, ..GOOD }.form().is_some(), "{ld}");
        }
        let row = MappedTensor { outer: 1, batch: 1, ..GOOD }.form();
        assert_eq!(row, Some(Form { extents: [13, 1, 1], strides: [16, 16] }));
    }

    #[test]
    fn what_the_engine_cannot_reach_is_not_described() {
        let no = [
            MappedTensor { address: 264, ..GOOD },
            MappedTensor { ld: 13, ..GOOD },
            MappedTensor { batch_stride: 1201, ..GOOD },
            MappedTensor { inner: 0, ..GOOD },
            MappedTensor { outer: 0, ..GOOD },
            MappedTensor { batch: 0, ..GOOD },
            MappedTensor { outer: (1 << 32) + 1, ..GOOD },
            MappedTensor { ld: 1 << 39, ..GOOD },
            MappedTensor { batch_stride: usize::MAX & !15, ..GOOD },
        ];
        for tensor in no {
            assert_eq!(tensor.form(), None, "{tensor:?}");
        }
        assert!(MappedTensor { outer: 1 << 32, ld: (1 << 39) - 8, ..GOOD }.form().is_some());
    }
}
