//! A GPU: its context, what the driver says of it, and the modules that are loaded into it.

use super::{DeviceError, probe};
use crate::jit::{Cache, JitError, Memos, Options};
use crate::source::{Cubin, Source};
use crate::target::{Gpu, GpuModel, Target};
use cudarc::driver::sys::{CUdevice_attribute, CUfunction_attribute, CUresult};
use cudarc::driver::{CudaContext, CudaFunction, DriverError};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// A GPU to plan for: its context, its properties, and the modules loaded into it. Cheap to clone.
#[derive(Clone)]
pub struct Device {
    inner: Arc<Inner>,
}

struct Inner {
    context: Arc<CudaContext>,
    name: String,
    target: Target,
    gpu: Gpu,
    cache: Option<Cache>,
    /// Functions by the key of their binary. They stay loaded, because unloading a module would have to wait for its
    /// running kernels.
    functions: Mutex<HashMap<String, CudaFunction>>,
    /// Launches by the request that they were prepared for.
    launches: Memos,
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { target, gpu, .. } = &*self.inner;
        write!(f, "Device({}, {target}, {} multiprocessors)", self.ordinal(), gpu.multiprocessors)
    }
}

/// A short description of the device: `NVIDIA H200 (device 0, sm_90a, 132 multiprocessors)`.
impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        write!(f, "{name} (device {}, {}, {} multiprocessors)", self.ordinal(), self.target(), self.multiprocessors())
    }
}

impl Device {
    /// The GPU of that ordinal.
    ///
    /// # Errors
    /// If there is no driver or no such device.
    pub fn new(ordinal: usize) -> Result<Device, DeviceError> {
        probe::driver()?;
        Device::of(&CudaContext::new(ordinal).map_err(DeviceError::driver("open the device"))?)
    }

    /// The first GPU for which kernels are available: there is a compiler, or the process's kernel cache has kernels of
    /// one, or its mode is `deny` ([`Cache::usable`]). The error says whether driver, GPU or compiler is missing. A
    /// program prints it before it falls back to the CPU.
    ///
    /// # Errors
    /// If driver or GPU is missing, or both NVRTC and cached kernels are.
    pub fn find() -> Result<Device, DeviceError> {
        let device = Device::new(0)?;
        match device.cache().usable() {
            Ok(()) => Ok(device),
            Err(error) => Err(DeviceError::NoCompiler { device: device.to_string(), error }),
        }
    }

    /// The GPU of an existing context.
    ///
    /// # Errors
    /// If the driver does not report the device's properties.
    pub fn of(context: &Arc<CudaContext>) -> Result<Device, DeviceError> {
        Device::build(context, None)
    }

    /// The same device, with a kernel cache of its own instead of the process-wide one.
    ///
    /// # Errors
    /// If the driver does not report the device's properties.
    pub fn with_cache(&self, cache: Cache) -> Result<Device, DeviceError> {
        Device::build(self.context(), Some(cache))
    }

    fn build(context: &Arc<CudaContext>, cache: Option<Cache>) -> Result<Device, DeviceError> {
        // A program's own context may come from an older driver.
        probe::driver()?;
        let attribute = |which| context.attribute(which).map_err(DeviceError::driver("read an attribute of the device"));
        let major = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let multiprocessors = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let target = Target::of_device((major.unsigned_abs(), minor.unsigned_abs()));
        let multiprocessors = usize::try_from(multiprocessors).unwrap_or(1).max(1);
        // Only Hopper's tiles have a model for each GPU. Kilohertz and bits; both edges of the clock move data. A driver that
        // does not tell leaves the default model.
        let told = |which| context.attribute(which).map_or(0, |told| u64::from(told.unsigned_abs()));
        let clock = told(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
        let width = told(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
        let bandwidth = 2 * 1000 * clock * width / 8;
        let model = if target.has_wgmma() { GpuModel::of_bandwidth(bandwidth) } else { GpuModel::default() };
        let gpu = Gpu { multiprocessors, model };
        let name = context.name().map_err(DeviceError::driver("tell the device's name"))?;
        let (functions, launches) = Default::default();
        let context = context.clone();
        Ok(Device { inner: Arc::new(Inner { context, name, target, gpu, cache, functions, launches }) })
    }

    /// Its context.
    pub fn context(&self) -> &Arc<CudaContext> {
        &self.inner.context
    }

    /// Its ordinal.
    pub fn ordinal(&self) -> usize {
        self.inner.context.ordinal()
    }

    /// The driver's name for it.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The target of its kernels.
    pub fn target(&self) -> Target {
        self.inner.target
    }

    /// The number of multiprocessors.
    pub fn multiprocessors(&self) -> usize {
        self.inner.gpu.multiprocessors
    }

    /// What plans for it depend on beside the target: its multiprocessors, and the model of its tiles.
    pub fn gpu(&self) -> Gpu {
        self.inner.gpu
    }

    /// The kernel cache it compiles through.
    pub fn cache(&self) -> &Cache {
        self.inner.cache.as_ref().unwrap_or_else(|| Cache::global())
    }

    /// Launches that own no memory, so plans may share them.
    pub(crate) fn launches(&self) -> &Memos {
        &self.inner.launches
    }

    /// Loads a binary, or finds it loaded. If the driver rejects one from the disk, it is compiled again. If that is
    /// impossible, binaries of older compilers are tried, the newest first.
    pub(crate) fn load(
        &self,
        cubin: &Arc<Cubin>,
        shared_memory: usize,
        source: &Source,
    ) -> Result<(CudaFunction, Arc<Cubin>), LoadError> {
        let mut cubin = cubin.clone();
        loop {
            let error = match self.function(&cubin, shared_memory) {
                Ok(function) => return Ok((function, cubin)),
                Err(DeviceError::Driver { error, .. }) if is_refusal(error) => error,
                Err(other) => return Err(LoadError::Device(other)),
            };
            let replaced = self.cache().replace(&cubin, source, &cubin.info.target, &Options::new());
            match replaced.map_err(LoadError::Jit)?.filter(|other| other.bytes != cubin.bytes) {
                Some(other) => cubin = other,
                None => return Err(LoadError::Device(DeviceError::Driver { what: "load the kernel", error })),
            }
        }
    }

    fn function(&self, cubin: &Cubin, shared_memory: usize) -> Result<CudaFunction, DeviceError> {
        let mut functions = self.inner.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = functions.get(&cubin.info.key) {
            return Ok(function.clone());
        }
        let image = cudarc::nvrtc::Ptx::from_binary(cubin.bytes.to_vec());
        let module = self.inner.context.load_module(image).map_err(DeviceError::driver("load the kernel"))?;
        let function = module.load_function(&cubin.info.entry).map_err(DeviceError::driver("find the kernel in its module"))?;
        allow_shared_memory(&function, shared_memory)?;
        functions.insert(cubin.info.key.clone(), function.clone());
        Ok(function)
    }
}

/// Why a binary was not loaded.
pub(crate) enum LoadError {
    Jit(JitError),
    Device(DeviceError),
}

/// Whether the driver rejects the image itself, as opposed to lacking memory for it.
fn is_refusal(error: DriverError) -> bool {
    matches!(
        error.0,
        CUresult::CUDA_ERROR_INVALID_IMAGE
            | CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU
            | CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION
            // The driver takes bytes that are not an image for PTX.
            | CUresult::CUDA_ERROR_INVALID_PTX
            | CUresult::CUDA_ERROR_JIT_COMPILER_NOT_FOUND
            | CUresult::CUDA_ERROR_NOT_FOUND
    )
}

/// Shared memory that a kernel may use without opting in.
const DEFAULT_SHARED_MEMORY: usize = 48 * 1024;

fn allow_shared_memory(function: &CudaFunction, bytes: usize) -> Result<(), DeviceError> {
    if bytes <= DEFAULT_SHARED_MEMORY {
        return Ok(());
    }
    let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    function.set_attribute(attribute, bytes).map_err(DeviceError::driver("reserve shared memory"))
}
