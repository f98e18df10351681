//! Paddle's operator, whole: its steps run like any other.

use super::step::{Names, Step};
use crate::check::Argument;
use crate::compat::paddle;
use crate::gemm::Gemm;

/// A step of [`fused_gemm_epilogue`](paddle) or of its gradient, whose operands are called `x`, `y` and `dout`; the epilogue's own
/// names are `bias`, `d`, `aux` and `bgrad`.
///
/// ```
/// use postlude::compat::paddle::{Activation, FusedGemmEpilogue};
/// use postlude::layer::Step;
/// use postlude::prelude::*;
/// let operator = FusedGemmEpilogue { trans_x: false, trans_y: true, activation: Activation::Relu, dtype: F32 };
/// let forward = Step::from(operator.forward(&[1, 2], &[3, 2], &[3], false)?);
/// let (x, y, bias, mut out) = ([1.0f32, 2.0], [1.0f32, 0.0, 0.0, 1.0, -1.0, -1.0], [0.5f32; 3], [0.0f32; 3]);
/// let args = HostArgs::new().input("x", &x).input("y", &y).input("bias", &bias).output("d", &mut out);
/// forward.reference(args)?;
/// assert_eq!(out, [1.5, 2.5, 0.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl From<paddle::Product> for Step {
    fn from(step: paddle::Product) -> Step {
        let name = |tensor| match tensor {
            paddle::TensorName::X => "x",
            paddle::TensorName::Y => "y",
            paddle::TensorName::DOut => "dout",
        };
        // What a forward step writes there the next gradient follows from.
        let written = |(_, argument): (usize, &Argument)| argument.role.is_written().then(|| argument.name.clone());
        let reserve = step.epilogue.checked().argument("aux").and_then(written);
        Step::new(
            Gemm::of(step.operation, &step.epilogue),
            step.shape,
            Names::new(name(step.a), Some(name(step.b))).lying(step.strides),
        )
        .saves(reserve.into_iter().collect())
    }
}
