//! What the cases run on: the GPU, or the CPU reference in its place.

use postlude::device::Device;
use postlude::jit::{self, Cache};
use postlude::target::{Gpu, Target};
use std::env;
use std::sync::OnceLock;

/// What runs the cases.
#[derive(Debug)]
pub enum Rig {
    /// A GPU, and a compiler.
    Gpu(Device),
    /// The CPU reference. Kernels are compiled where a cache is given.
    StandIn(Option<&'static Cache>),
}

impl Rig {
    /// What kernels are planned for.
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
