//! Errors: an exception for each stage, with the library's text.

use postlude::check::Diagnostics;
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyRuntimeError};
use pyo3::prelude::*;

create_exception!(postlude, Error, PyException, "The base of every error of this library.");
create_exception!(postlude, CheckError, Error, "The epilogue, or the document it was read from, breaks rules.");
create_exception!(postlude, GradError, Error, "The epilogue has no derivative.");
create_exception!(postlude, PlanError, Error, "No kernel exists for the problem.");
create_exception!(postlude, ArgumentError, Error, "Arguments do not fit; nothing ran.");
create_exception!(postlude, CompileError, Error, "The kernel could not be compiled.");
create_exception!(postlude, DeviceError, Error, "The device failed; nothing ran.");

/// The exception of an error.
pub fn raise(error: impl Into<postlude::Error>) -> PyErr {
    let error = error.into();
    let text = error.to_string();
    match error {
        postlude::Error::Check(_) | postlude::Error::Read(_) => CheckError::new_err(text),
        postlude::Error::Grad(_) | postlude::Error::Reserve(_) | postlude::Error::Linear(_) => GradError::new_err(text),
        postlude::Error::Plan(_) => PlanError::new_err(text),
        postlude::Error::Arguments(_) => ArgumentError::new_err(text),
        postlude::Error::Custom(_) | postlude::Error::Jit(_) | postlude::Error::Render(_) => CompileError::new_err(text),
        postlude::Error::Device(_) => DeviceError::new_err(text),
        _ => Error::new_err(text),
    }
}

/// The exception of a graph that breaks rules.
pub fn broken(faults: &Diagnostics) -> PyErr {
    CheckError::new_err(faults.to_string())
}

/// The exception of an argument of a call that names nothing.
pub fn argument(text: impl Into<String>) -> PyErr {
    ArgumentError::new_err(text.into())
}

/// The exception of a lock whose owner panicked.
pub fn poisoned<T>(_: T) -> PyErr {
    PyRuntimeError::new_err("another thread panicked while it used this object")
}

/// Adds the exceptions to the module.
pub fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("Error", py.get_type::<Error>())?;
    module.add("CheckError", py.get_type::<CheckError>())?;
    module.add("GradError", py.get_type::<GradError>())?;
    module.add("PlanError", py.get_type::<PlanError>())?;
    module.add("ArgumentError", py.get_type::<ArgumentError>())?;
    module.add("CompileError", py.get_type::<CompileError>())?;
    module.add("DeviceError", py.get_type::<DeviceError>())
}
