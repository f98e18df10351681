//! Products whose operands have scales along K.

use super::Gemm;
use crate::build::Epilogue;
use crate::dtype::DType;
use crate::problem::{Blocks, Layout, Operation};

impl Gemm {
    /// D = epilogue(A B), where B are weights of eight or four bits with a scale for each group of K, and A is `F16` or `BF16`.
    ///
    /// Launches take the argument `b_scale` besides, and `b_zero` if the groups have zero points; [`Blocks`] says how they
    /// lie. [`quantize_weights`](crate::weights::quantize_weights) makes all three. Weights with one scale for each column need
    /// no groups: that is [`mixed`](Gemm::mixed), with the scale in the epilogue.
    ///
    /// Weights are widened on their way to the tensor cores, without loss, and sums of a group are scaled in `f32`. A few rows
    /// of A take as long as it takes to read the weights.
    pub fn grouped_weights(a: DType, b: DType, layout: Layout, groups: Blocks, epilogue: &Epilogue) -> Gemm {
        Gemm::of(Operation::Product { a, b, layout, scales: [None, Some(groups)] }, epilogue)
    }

    /// D = epilogue(A B), where A and B are `E4M3` or `E5M2` with a scale for each block of 128 elements of K, as DeepSeek's:
    /// blocks of one row of A, and of 128 columns of B (`[Blocks::groups(128), Blocks::squares(128)]`), or of one.
    ///
    /// Launches take the arguments `a_scale` and `b_scale` besides; [`Blocks`] says how they lie. The kernel adds up 128
    /// elements at a time in `f32` anyway, and multiplies their sum by both scales. The epilogue reads the scaled sum.
    ///
    /// ```
    /// # use postlude::prelude::*;
    /// use postlude::Blocks;
    /// use postlude::float8::F8E4M3;
    /// let epilogue = Epilogue::build(|e| e.store("d", e.acc(), F32))?;
    /// let (a, b, mut d) = ([F8E4M3::ONE; 256], [F8E4M3::ONE; 256], [0.0f32]);
    /// let args = HostArgs::new().input("a", &a).input("b", &b).output("d", &mut d);
    /// let args = args.input("a_scale", &[1.0f32, 0.5]).input("b_scale", &[2.0f32, 3.0]);
    /// let gemm = Gemm::block_scaled([E4M3, E4M3], TN, [Blocks::groups(128), Blocks::squares(128)], &epilogue);
    /// gemm.reference(Shape::new(1, 1, 256), args)?;
    /// assert_eq!(d, [128.0 * 2.0 + 128.0 * 1.5]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn block_scaled([a, b]: [DType; 2], layout: Layout, [of_a, of_b]: [Blocks; 2], epilogue: &Epilogue) -> Gemm {
        Gemm::of(Operation::Product { a, b, layout, scales: [Some(of_a), Some(of_b)] }, epilogue)
    }
}
