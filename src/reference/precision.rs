//! The arithmetic of an evaluation.

/// The arithmetic in which an epilogue is evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Precision {
    /// The meaning of the graph: `f32` accumulation, and every primitive rounded to `f32`.
    F32,
    /// The oracle: `f64` throughout, one rounding at each store. Integers still wrap at 32 bits.
    F64,
}
