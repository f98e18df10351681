//! The epilogue of a layer with its derivative: what every kind of layer shares, whatever it multiplies.

use super::rewrite;
use crate::build::{Builder, Epilogue, Expr};
use crate::dtype::{DType, ValueType};
use crate::error::LinearError;
use crate::gemm::Gemm;
use crate::grad::{Pair, Reserve, Wrt};
use crate::ir::Operand;
use crate::ir::axes::N;
use crate::problem::Shape;
use std::sync::Arc;

/// The accumulator's gradient, dZ, among the outputs of a pair's backward epilogue.
pub(super) const DZ: &str = "grad_acc";

/// The scales of operands of eight bits: numbers in memory, which multiply.
pub(super) const X_SCALE: &str = "x_scale";
pub(super) const W_SCALE: &str = "w_scale";
pub(super) const DZ_SCALE: &str = "dz_scale";

/// The formats of the matrices that a layer multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Formats {
    pub x: DType,
    pub w: DType,
    pub dz: DType,
}

impl Formats {
    /// Transformer Engine's HYBRID: gradients need range more than bits.
    pub const HYBRID: Formats = Formats { x: DType::E4M3, w: DType::E4M3, dz: DType::E5M2 };

    fn all(dtype: DType) -> Formats {
        Formats { x: dtype, w: dtype, dz: dtype }
    }
}

/// An epilogue, its derivative, and the formats of a layer.
#[derive(Clone, Debug)]
pub(super) struct Trained {
    /// The format of results of products: Y, dX, and dW unless another is asked for.
    pub dtype: DType,
    pub formats: Formats,
    pub gradients: Option<DType>,
    pub epilogue: Epilogue,
    /// The pair's forward epilogue, behind a product of the layer's operands.
    pub forward: Epilogue,
    pub pair: Pair,
    /// The orders of Y and dZ.
    pub y: Operand,
    pub dz: Operand,
}

impl Trained {
    /// Y = f(Z + bias), stored as `y`, and its derivative by everything.
    #[track_caller]
    pub fn with_bias(dtype: DType, f: impl for<'g> FnOnce(&'g Builder, Expr<'g>) -> Expr<'g>) -> Result<Trained, LinearError> {
        multiplies(dtype)?;
        let epilogue =
            Epilogue::build_for_caller(file!(), |e| e.store("y", f(e, e.acc() + e.load("bias", dtype.over(N))), dtype))?;
        Trained::of(dtype, &epilogue, Wrt::all())
    }

    /// Any epilogue, and its derivative.
    pub fn of(dtype: DType, epilogue: &Epilogue, wrt: Wrt) -> Result<Trained, LinearError> {
        multiplies(dtype)?;
        let pair = epilogue.backward(wrt)?;
        // The gradient of an argument `acc` would have the name of the product's.
        if let Some(taken) = ["x", "w", "dy", "dz", "acc"].into_iter().find(|name| epilogue.checked().argument(name).is_some()) {
            return Err(LinearError::Name { name: taken });
        }
        let operand = |epilogue: &Epilogue, name: &str| epilogue.checked().argument(name).and_then(|(_, a)| a.role.operand());
        let y = operand(epilogue, pair.through()).ok_or(LinearError::NoGradient)?;
        let dz = operand(pair.backward(), DZ).ok_or(LinearError::NoGradient)?;
        if dz.dtype != dtype {
            return Err(LinearError::Format {
                what: "the gradient of the product".into(),
                got: dz.dtype,
                needs: dtype,
                cure: "say `.format(\"acc\", ..)` to `Wrt`",
            });
        }
        let (epilogue, forward, formats) = (epilogue.clone(), pair.forward().clone(), Formats::all(dtype));
        Ok(Trained { dtype, formats, gradients: None, epilogue, forward, pair, y, dz })
    }

    /// The same with operands of eight bits.
    pub fn hybrid(self) -> Result<Trained, LinearError> {
        let taken = |name: &&str| self.epilogue.checked().argument(name).is_some();
        if let Some(name) = [X_SCALE, W_SCALE, DZ_SCALE].iter().find(|name| taken(name)) {
            return Err(LinearError::Taken { name: (*name).into() });
        }
        if !matches!(self.dtype, DType::F32 | DType::F16 | DType::BF16) {
            return Err(LinearError::Operands(self.dtype));
        }
        let scales = [X_SCALE, W_SCALE];
        let [epilogue, forward] = [rewrite::scaled(&self.epilogue, scales)?, rewrite::scaled(&self.forward, scales)?];
        Ok(Trained { formats: Formats::HYBRID, epilogue, forward, ..self })
    }

    /// Whether operands are numbers over scales.
    pub fn is_scaled(&self) -> bool {
        self.formats != Formats::all(self.dtype)
    }

    /// An epilogue behind a product of two of the layer's matrices.
    pub fn behind(&self, epilogue: &Epilogue, scales: [&str; 2]) -> Result<Epilogue, LinearError> {
        if self.is_scaled() { rewrite::scaled(epilogue, scales) } else { Ok(epilogue.clone()) }
    }

    /// The names of the values that the forward step saves.
    pub fn saved(&self) -> Vec<Arc<str>> {
        self.pair.reserve().values().iter().map(|value| value.name.clone()).collect()
    }

    /// Host memory for them.
    pub fn reserve(&self, shape: Shape) -> Reserve<Vec<u8>> {
        self.pair.reserve().allocate(shape)
    }

    /// The pass that takes dY to dZ.
    pub fn activation_grad(&self) -> Result<Gemm, LinearError> {
        Ok(Gemm::pointwise(self.y.dtype.of_gradients(), self.y.order, &self.derivative()?))
    }

    /// The backward epilogue, with gradients of arguments in the requested format.
    pub fn derivative(&self) -> Result<Epilogue, LinearError> {
        let mut epilogue = self.pair.backward().clone();
        if let Some(dtype) = self.gradient_format()? {
            epilogue = rewrite::formats(&epilogue, |name| (name != DZ).then_some(dtype))?;
        }
        if self.is_scaled() { rewrite::quantized(&epilogue, DZ, self.formats.dz) } else { Ok(epilogue) }
    }

    /// The requested format, if a gradient can have it.
    pub fn gradient_format(&self) -> Result<Option<DType>, LinearError> {
        match self.gradients {
            Some(dtype) if dtype.value_type() != ValueType::F32 => Err(LinearError::Gradients(dtype)),
            format => Ok(format),
        }
    }

    /// The operand dW, in the requested format or that of the layer.
    pub fn filters(&self, w: Operand) -> Result<Operand, LinearError> {
        Ok(Operand { dtype: self.gradient_format()?.unwrap_or(self.dtype), ..w })
    }

    /// Whether the layer before makes what this one reads.
    pub fn follows(&self, previous: &Trained) -> Result<(), LinearError> {
        // A step stores Y in eight bits whatever its format is.
        if previous.y.dtype == self.dtype || self.is_scaled() {
            return Ok(());
        }
        let what = format!("`{}` of the layer before", previous.pair.through());
        let cure = "store it in the format of this layer's X and W, or convert it and use `dgrad`";
        Err(LinearError::Format { what, got: previous.y.dtype, needs: self.dtype, cure })
    }
}

/// Whether two layers agree about a quantity.
pub(super) fn same(what: &'static str, makes: usize, takes: usize) -> Result<(), LinearError> {
    if makes == takes { Ok(()) } else { Err(LinearError::Chain { what, makes, takes }) }
}

#[cfg(feature = "cuda")]
mod on_device {
    use super::Trained;
    use crate::device::DeviceError;
    use crate::error::Error;
    use crate::grad::Reserve;
    use crate::problem::Shape;
    use cudarc::driver::{CudaSlice, CudaStream};
    use std::sync::Arc;

    impl Trained {
        /// Device memory for the values that the forward step saves.
        pub fn reserve_on(&self, stream: &Arc<CudaStream>, shape: Shape) -> Result<Reserve<CudaSlice<u8>>, Error> {
            let plan = self.pair.reserve();
            // The driver cannot allocate zero bytes.
            let buffers = plan.sizes(shape).into_iter().map(|bytes| stream.alloc_zeros(bytes.max(1)));
            let buffers = buffers.collect::<Result<Vec<_>, _>>();
            let buffers = buffers.map_err(|error| DeviceError::Driver { what: "allocate a reserve", error })?;
            Ok(plan.over(shape, buffers)?)
        }
    }
}

/// The plain product, stored under a name.
pub(super) fn stored(name: &str, operand: Operand) -> Result<Epilogue, LinearError> {
    Ok(Epilogue::build(|e| e.store(name, e.acc(), operand))?)
}

/// Whether layers support a format.
fn multiplies(dtype: DType) -> Result<(), LinearError> {
    if dtype.value_type() == ValueType::F32 { Ok(()) } else { Err(LinearError::Operands(dtype)) }
}
