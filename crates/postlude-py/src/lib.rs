//! Postlude for Python: the module `postlude._native`, over which `python/postlude` puts the builder and PyTorch's parts.

mod device;
mod epilogue;
mod error;
mod graph;
mod product;
mod tensor;

use pyo3::prelude::*;

/// The compiled part of `postlude`.
#[pymodule]
#[pyo3(name = "_native")]
fn native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    // PyTorch's wheels bring NVRTC along, into the environment of this interpreter.
    postlude::jit::search_environment(module.py().import("sys")?.getattr("prefix")?.extract()?);
    module.add_class::<graph::PyGraph>()?;
    module.add_class::<epilogue::Epilogue>()?;
    module.add_class::<product::Product>()?;
    module.add_function(wrap_pyfunction!(graph::methods, module)?)?;
    module.add_function(wrap_pyfunction!(graph::monoids, module)?)?;
    module.add_function(wrap_pyfunction!(device::gpu, module)?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    error::add(module)
}
