//! Kernels that spill, and their alternatives.

use super::*;
use crate::build::recipes;
use crate::prelude::*;

/// Its first kernel spills; it rejects the next.
#[derive(Default)]
struct Spilling(AtomicU64);

impl Compile for Spilling {
    fn build(&self) -> Result<Build, JitError> {
        Ok(Build { identity: "C 1".into(), common: Vec::new() })
    }

    fn compile(&self, key: &CacheKey, source: &Source, target: Target, _: &[String], _: &AtomicBool) -> Result<Cubin, JitError> {
        if self.0.fetch_add(1, SeqCst) > 0 {
            return Err(JitError::InvalidSource { entry: source.entry().into(), why: "for this test" });
        }
        let mut cubin = made(key, source.entry(), target, "C 1");
        cubin.info.spill_store_bytes = 8;
        Ok(cubin)
    }
}

#[test]
fn a_kernel_that_spills_is_better_than_none() {
    let compiler = Arc::new(Spilling::default());
    let cache = Cache::in_memory().compiling_with(compiler.clone());
    let gemm = Gemm::new(F16, TN, &recipes::identity(F16).unwrap());
    let shape = Shape::new(4096, 4096, 4096);
    let (kernel, heard) = warnings(|| gemm.compile(&cache, Target::SM_80, 108, shape).unwrap());
    assert_eq!((kernel.cubin.info.spill_store_bytes, compiler.0.load(SeqCst)), (8, 2));
    assert!(matches!(&heard[..], [warning] if warning.contains("stays as it is")), "{heard:?}");
    let first = gemm.compile(&Cache::in_memory().compiling_with(compiler), Target::SM_80, 108, shape).unwrap_err().to_string();
    assert!(first.contains("for this test"), "{first}");
}
