//! The device of the cases: the GPU, or the CPU reference in its place.

use postlude::cudarc::driver::{CudaContext, CudaStream};
use postlude::device::Device;
use postlude::jit::{self, Cache};
use postlude::target::{Gpu, Target};
use std::env;
use std::sync::{Arc, OnceLock};

/// The device of the cases.
#[derive(Debug)]
pub enum Rig {
    /// A GPU, and a compiler.
    Gpu(Device),
    /// The CPU reference. Kernels are compiled where a cache is given.
    StandIn(Option<&'static Cache>),
}

impl Rig {
    /// The target of the kernels.
    pub fn target(&self) -> (Target, Gpu) {
        match self {
            Rig::Gpu(device) => (device.target(), device.gpu()),
            Rig::StandIn(_) => (Target::SM_90A, 132.into()),
        }
    }
}

/// The rig, or a word that there is none.
pub fn rig() -> Option<&'static Rig> {
    static RIG: OnceLock<Result<Rig, String>> = OnceLock::new();
    match RIG.get_or_init(open) {
        Ok(rig) => Some(rig),
        Err(why) if env::var_os("POSTLUDE_REQUIRE_GPU").is_some_and(|v| v == "1") => panic!("{why}"),
        Err(why) => {
            eprintln!("skipped: no GPU ({why})");
            None
        }
    }
}

/// The GPU, for tests that a stand-in makes no sense for.
pub fn gpu() -> Option<&'static Device> {
    match rig()? {
        Rig::Gpu(device) => Some(device),
        Rig::StandIn(_) => {
            eprintln!("skipped: no GPU (a stand-in)");
            None
        }
    }
}

fn open() -> Result<Rig, String> {
    match env::var("POSTLUDE_GPU_STAND_IN").as_deref() {
        Ok("compile") => return Ok(Rig::StandIn(Some(Cache::global()))),
        Ok(_) => return Ok(Rig::StandIn(None)),
        Err(_) => {}
    }
    let device = Device::new(0).map_err(|e| e.to_string())?;
    let compiler = jit::compiler().map_err(|e| e.to_string())?;
    eprintln!("{device:?}, {}", compiler.identity);
    Ok(Rig::Gpu(device))
}

/// A device whose context orders no streams by events, and a stream of it, for tests that capture. `None` without a GPU.
pub fn capturing() -> Option<(Device, Arc<CudaStream>)> {
    let context = CudaContext::new(gpu()?.ordinal()).unwrap();
    // SAFETY: everything of this context happens on one stream, in order, or is waited for.
    unsafe { context.disable_event_tracking() };
    Some((Device::of(&context).unwrap(), context.new_stream().unwrap()))
}
