//! How arguments lie in memory, and what stands there: random elements, and poison in every byte around them.

use postlude::args::{HostBuffer, IntoTensor, Slot, SlotKind};
use postlude::dtype::ValueType;
use postlude::ir::Order;
use postlude::{DType, Tensor};

/// Elements behind the last one, which a kernel must not touch.
const TAIL: usize = 41;
/// The value of every byte outside of elements. It makes a NaN in every floating-point format.
pub const POISON: u8 = 0xFF;

/// Random numbers (SplitMix64).
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in [-1, 1).
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    /// An element for arithmetic: integers small enough to leave sums exact in `f32`.
    pub fn element(&mut self, dtype: DType) -> f64 {
        match dtype.value_type() {
            _ if dtype.is_four_bits() => (self.bits() % 16) as f64 - if dtype == DType::I4 { 8.0 } else { 0.0 },
            ValueType::I32 => (self.bits() % 201) as f64 - 100.0,
            ValueType::Bool => f64::from(u8::from(self.bits() & 1 == 1)),
            ValueType::F32 | ValueType::F64 => self.unit(),
        }
    }
}

/// The caller's layout of an argument; contiguous and aligned by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    /// Elements before the first; of a bit mask whole bytes.
    pub offset: usize,
    pub ld: Option<usize>,
    pub batch_stride: Option<usize>,
    /// Elements of a table.
    pub length: Option<usize>,
}

/// Elements of a table, unless said otherwise: some of the numbers that are drawn as indices lie outside.
const TABLE: usize = 61;

/// One argument in memory.
#[derive(Clone, Debug)]
pub struct Buffer {
    pub name: String,
    pub dtype: DType,
    pub place: Place,
    pub bytes: Vec<u8>,
    pub written: bool,
    /// Elements from the first to the last.
    pub len: usize,
    order: Order,
    outer: usize,
    inner: usize,
    entries: usize,
    ld: usize,
    batch_stride: usize,
}

impl Buffer {
    /// Memory for a slot, all poison; nothing for a scalar.
    pub fn new(slot: &Slot, order: Order, place: Place) -> Option<Buffer> {
        let (dtype, outer, inner, batch, written) = match slot.kind {
            SlotKind::Scalar(_) => return None,
            SlotKind::Table { dtype, written } => (dtype, 1, place.length.unwrap_or(TABLE), None, written),
            SlotKind::Memory { dtype, outer, inner, batch, written, .. } => (dtype, outer, inner, batch, written),
        };
        let ld = place.ld.unwrap_or(inner.max(1).next_multiple_of(dtype.run()));
        let batch_stride = place.batch_stride.unwrap_or(if batch.is_some() { outer * ld } else { 0 });
        let entries = batch.unwrap_or(1);
        let span = if outer == 0 || inner == 0 { 0 } else { (outer - 1) * ld + inner };
        let len = if span == 0 || entries == 0 { 0 } else { (entries - 1) * batch_stride + span };
        let bytes = vec![POISON; dtype.bytes(place.offset + len) + dtype.bytes(TAIL)];
        let name = slot.name.to_string();
        Some(Buffer { name, dtype, place, bytes, written, len, order, outer, inner, entries, ld, batch_stride })
    }

    /// Fills the elements, and only them.
    pub fn fill(&mut self, mut element: impl FnMut() -> f64) {
        for index in self.indices() {
            self.dtype.write(&mut self.bytes, index, element());
        }
    }

    /// The place of every element, entry after entry, each in the order it lies in.
    fn indices(&self) -> Vec<usize> {
        let entry = |l| (0..self.outer).flat_map(move |o| (0..self.inner).map(move |i| (l, o, i)));
        (0..self.entries).flat_map(entry).map(|(l, o, i)| self.place.offset + l * self.batch_stride + o * self.ld + i).collect()
    }

    /// The elements with their coordinates: batch entry, row, column.
    pub fn elements(&self) -> impl Iterator<Item = ([usize; 3], f64)> + '_ {
        let per_entry = (self.outer * self.inner).max(1);
        self.indices().into_iter().enumerate().map(move |(i, index)| {
            let (l, o, i) = (i / per_entry, i % per_entry / self.inner, i % self.inner);
            let (row, column) = if self.order == Order::RowMajor { (o, i) } else { (i, o) };
            ([l, row, column], self.dtype.read(&self.bytes, index))
        })
    }

    /// One element.
    pub fn at(&self, batch: usize, row: usize, column: usize) -> f64 {
        let (outer, inner) = if self.order == Order::RowMajor { (row, column) } else { (column, row) };
        self.dtype.read(&self.bytes, self.place.offset + batch * self.batch_stride + outer * self.ld + inner)
    }

    /// Bytes outside of elements that have changed, or that share a byte with the last elements of a run of bits and
    /// are not zero.
    pub fn strayed(&self) -> Vec<usize> {
        // The bits of each byte that belong to elements.
        let mut mine = vec![0u8; self.bytes.len()];
        for index in self.indices() {
            if self.dtype.is_packed() {
                mine[index / 8] |= 1 << (index % 8);
            } else {
                mine[index * self.dtype.size()..(index + 1) * self.dtype.size()].fill(0xff);
            }
        }
        let rest = |i: &usize| if mine[*i] == 0 { POISON } else { 0 };
        (0..mine.len()).filter(|i| self.bytes[*i] & !mine[*i] != rest(i)).collect()
    }

    /// As an argument of the CPU reference.
    pub fn host(&mut self) -> Tensor<HostBuffer<'_>> {
        let bytes = &mut self.bytes[self.dtype.bytes(self.place.offset)..self.dtype.bytes(self.place.offset + self.len)];
        let tensor = if self.written { Tensor::of_bytes_mut(self.dtype, bytes) } else { Tensor::of_bytes(self.dtype, bytes) };
        place(tensor, self.place)
    }

    /// Bytes that the first element's address is a multiple of, when the allocation's is of 256.
    pub fn alignment(&self) -> usize {
        1 << self.dtype.bytes(self.place.offset).trailing_zeros().min(8)
    }
}

/// Gives a tensor its strides.
pub fn place<B>(mut tensor: Tensor<B>, place: Place) -> Tensor<B> {
    if let Some(ld) = place.ld {
        tensor = tensor.ld(ld);
    }
    if let Some(batch_stride) = place.batch_stride {
        tensor = tensor.batch_stride(batch_stride);
    }
    tensor
}
