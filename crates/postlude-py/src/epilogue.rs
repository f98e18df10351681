//! Checked epilogues and their derivatives.

use crate::error::raise;
use crate::graph::dtype;
use postlude::Epilogue as Checked;
use postlude::check::Role;
use postlude::grad::Wrt;
use postlude::ir::axes::{L, M, N};
use pyo3::prelude::*;
use std::sync::Arc;

/// A checked epilogue. It can be printed, serialised, differentiated and run.
#[pyclass(frozen, eq, module = "postlude")]
#[derive(PartialEq)]
pub struct Epilogue(pub Arc<Checked>);

/// Name, role, format and axes of an argument.
type Described = (String, &'static str, &'static str, String, bool);

#[pymethods]
impl Epilogue {
    /// Reads the text form, which `str(epilogue)` writes.
    #[staticmethod]
    fn from_text(text: &str) -> PyResult<Epilogue> {
        Ok(Epilogue(Arc::new(text.parse::<Checked>().map_err(raise)?)))
    }

    /// Reads the JSON form, which `to_json` writes.
    #[staticmethod]
    fn from_json(json: &str) -> PyResult<Epilogue> {
        Ok(Epilogue(Arc::new(Checked::from_json(json, &postlude::build::registry()).map_err(raise)?)))
    }

    /// The graph as JSON: a versioned array of nodes.
    fn to_json(&self) -> String {
        self.0.to_json()
    }

    /// The graph in Graphviz's DOT language.
    fn to_dot(&self) -> String {
        self.0.to_dot()
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        let names: Vec<&str> = self.0.arguments().iter().map(|argument| &*argument.name).collect();
        format!("<postlude.Epilogue of {}>", names.join(", "))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        Ok((slf.getattr("from_json")?, (slf.get().to_json(),)))
    }

    /// The arguments in the order of first use: name, role (`scalar`, `table`, `input`, `output`, `update`), format, the
    /// letters of the axes, and whether a launch may leave it out.
    #[getter]
    fn arguments(&self) -> Vec<Described> {
        let described = self.0.arguments().iter().map(|argument| {
            let (role, format) = match argument.role {
                Role::Scalar(value) => ("scalar", value.name()),
                Role::Table(format) => ("table", format.name()),
                Role::Counts(format) => ("counts", format.name()),
                Role::Input(operand) => ("input", operand.dtype.name()),
                Role::Output(operand) => ("output", operand.dtype.name()),
                Role::Update(operand) => ("update", operand.dtype.name()),
            };
            let axes = argument.role.operand().map(|operand| operand.axes).unwrap_or_default();
            let letters = [(M, 'M'), (N, 'N'), (L, 'L')].into_iter().filter(|(axis, _)| axes.contains(*axis)).map(|(_, c)| c);
            let optional = argument.need != postlude::check::Need::Required;
            (argument.name.to_string(), role, format, letters.collect(), optional)
        });
        described.collect()
    }

    /// The epilogue that also saves what its derivative needs, the derivative, the names of the saved values, and the
    /// output whose gradient is the derivative's accumulator.
    ///
    /// `names` are the arguments whose gradient is asked for; `accumulator` asks for that of the product, in the given
    /// format. No gradient comes in through `detached` outputs, and `kept` ones may be read again.
    #[pyo3(signature = (names, accumulator=None, detached=Vec::new(), kept=Vec::new(), exact=false))]
    fn backward(
        &self,
        names: Vec<String>,
        accumulator: Option<&str>,
        detached: Vec<String>,
        kept: Vec<String>,
        exact: bool,
    ) -> PyResult<(Epilogue, Epilogue, Vec<String>, String)> {
        let mut wrt = match accumulator {
            Some(format) => Wrt::accumulator().format("acc", dtype(format)?),
            None => Wrt::arguments([]),
        };
        wrt = names.iter().fold(wrt, |wrt, name| wrt.and(name));
        wrt = detached.iter().fold(wrt, |wrt, name| wrt.detached(name));
        wrt = kept.iter().fold(wrt, |wrt, name| wrt.keeps(name));
        if exact {
            wrt = wrt.exact();
        }
        let pair = self.0.backward(wrt).map_err(raise)?;
        let saved = pair.reserve().values().iter().map(|value| value.name.to_string()).collect();
        let of = |epilogue: &Checked| Epilogue(Arc::new(epilogue.clone()));
        Ok((of(pair.forward()), of(pair.backward()), saved, pair.through().to_owned()))
    }
}
