//! Operations: computed storage as a node of candle's graph, and the way back.

use crate::fused::{Differentiated, Given};
use crate::storage::Output;
use candle_core::{CpuStorage, CudaStorage, CustomOp3, DType, Error, Layout, Result, Shape, Storage, Tensor};
use std::sync::{Arc, Mutex, PoisonError};

/// Storage that was computed already: candle's operations hand theirs in when they are applied.
struct Computed {
    storage: Mutex<Option<Storage>>,
    shape: Shape,
}

impl Computed {
    fn take(&self) -> Result<Storage> {
        let taken = self.storage.lock().unwrap_or_else(PoisonError::into_inner).take();
        taken.ok_or_else(|| Error::msg("an operation of Postlude was applied twice"))
    }

    fn cpu(&self) -> Result<(CpuStorage, Shape)> {
        match self.take()? {
            Storage::Cpu(storage) => Ok((storage, self.shape.clone())),
            _ => Err(Error::msg("the operands are on the CPU, and the result is not")),
        }
    }

    fn cuda(&self) -> Result<(CudaStorage, Shape)> {
        match self.take()? {
            Storage::Cuda(storage) => Ok((storage, self.shape.clone())),
            _ => Err(Error::msg("the operands are on a GPU, and the result is not")),
        }
    }
}

/// A product whose gradients the derived epilogue computes.
struct Product {
    computed: Computed,
    pair: Arc<Differentiated>,
    given: Vec<(String, Given)>,
    /// What the forward epilogue saved, by name.
    saved: Vec<(String, Tensor)>,
    /// The arguments that lie in the third operand one after another, and the shape of each.
    packed: Vec<(String, Shape)>,
}

impl CustomOp3 for Product {
    fn name(&self) -> &'static str {
        "postlude"
    }

    fn cpu_fwd(
        &self,
        _: &CpuStorage,
        _: &Layout,
        _: &CpuStorage,
        _: &Layout,
        _: &CpuStorage,
        _: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        self.computed.cpu()
    }

    fn cuda_fwd(
        &self,
        _: &CudaStorage,
        _: &Layout,
        _: &CudaStorage,
        _: &Layout,
        _: &CudaStorage,
        _: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        self.computed.cuda()
    }

    fn bwd(
        &self,
        a: &Tensor,
        b: &Tensor,
        third: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let (dz, others) = self.pair.gradients(gradient, &self.given, &self.saved)?;
        let dz = dz.to_dtype(a.dtype())?;
        // A matrix that the batch shares has the sum of its entries' gradients.
        let summed = |gradient: Tensor, of: &Tensor| if gradient.rank() > of.rank() { gradient.sum(0) } else { Ok(gradient) };
        let da = if a.track_op() { Some(summed(product(&dz, &b.t()?)?, a)?) } else { None };
        let db = if b.track_op() { Some(summed(product(&a.t()?, &dz)?, b)?) } else { None };
        let parts = self.packed.iter().map(|(name, shape)| {
            let found = others.iter().find(|(other, _)| other == name);
            let (_, gradient) = found.ok_or_else(|| Error::msg(format!("argument `{name}` has no gradient")))?;
            gradient.reshape(shape)?.flatten_all()?.to_dtype(third.dtype())
        });
        let parts = parts.collect::<Result<Vec<_>>>()?;
        Ok((da, db, if parts.is_empty() { None } else { Some(Tensor::cat(&parts, 0)?) }))
    }
}

/// Candle's product of operands in any layout. On a GPU candle takes whole matrices alone: others are copied first. On the
/// CPU candle has none of `bf16`: it is computed in `f32`, as elsewhere.
fn product(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    match (a.device().is_cpu(), a.dtype()) {
        (false, _) => whole(a)?.broadcast_matmul(&whole(b)?),
        (true, DType::BF16) => a.to_dtype(DType::F32)?.broadcast_matmul(&b.to_dtype(DType::F32)?)?.to_dtype(a.dtype()),
        (true, _) => a.broadcast_matmul(b),
    }
}

/// The same numbers without gaps: a copy, unless the rows or the columns lie one after another.
fn whole(tensor: &Tensor) -> Result<Tensor> {
    if tensor.t()?.is_contiguous() { Ok(tensor.clone()) } else { tensor.contiguous() }
}

/// Tensors as candle can put them together: in one format, which holds the numbers of each.
fn of_one_format(tensors: &[Tensor]) -> Result<Vec<Tensor>> {
    let mut formats = tensors.iter().map(Tensor::dtype);
    let first = formats.next().unwrap_or(DType::F32);
    let (mut alike, mut doubles) = (true, first == DType::F64);
    for format in formats {
        alike &= format == first;
        doubles |= format == DType::F64;
    }
    let common = match (alike, doubles) {
        (true, _) => first,
        (false, true) => DType::F64,
        (false, false) => DType::F32,
    };
    tensors.iter().map(|tensor| tensor.to_dtype(common)).collect()
}

/// The result of a product as a node of candle's graph.
pub(crate) fn node(
    (a, b): (&Tensor, &Tensor),
    result: Output,
    pair: Arc<Differentiated>,
    given: &[(String, Given)],
    saved: Vec<(String, Tensor)>,
) -> Result<Tensor> {
    let tracked = given.iter().filter_map(|(name, given)| match given {
        Given::Tensor(tensor) if tensor.track_op() => Some((name, tensor)),
        _ => None,
    });
    let packed = tracked.clone().map(|(name, tensor)| (name.clone(), tensor.shape().clone())).collect();
    // Candle's operations have three operands. Further variables share the third one, which carries their gradients only.
    let flat = tracked.map(|(_, tensor)| tensor.flatten_all()).collect::<Result<Vec<_>>>()?;
    let third = match &flat[..] {
        [] => a.clone(),
        [only] => only.clone(),
        all => Tensor::cat(&of_one_format(all)?, 0)?,
    };
    let computed = Computed { storage: Mutex::new(Some(result.storage)), shape: result.shape };
    // The operation keeps values alone: a history in it would keep the graph alive in a circle.
    let given = given.iter().map(|(name, given)| (name.clone(), given.detached())).collect();
    a.apply_op3(b, &third, Product { computed, pair, given, saved, packed })
}
