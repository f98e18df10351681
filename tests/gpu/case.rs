//! One case: a kernel, a shape, how its arguments lie, and the run.

use crate::layout::{Buffer, Place, Rng};
use crate::memory::DeviceCopy;
use crate::rig::{Rig, rig};
use crate::verdict::{self, Limits};
use postlude::args::{HostArgs, IntoScalar, SlotKind, slots};
use postlude::check::Role;
use postlude::device::Device;
use postlude::dtype::ValueType;
use postlude::ir::{Constant, Order, Reduction, SinkKind};
use postlude::plan::{Mainloop, Problem};
use postlude::{DType, Gemm, Shape};
use std::collections::BTreeMap;

/// The kind of an input's elements.
pub type Fill = fn(&mut Rng, DType) -> f64;

fn operand(rng: &mut Rng, dtype: DType) -> f64 {
    let x = rng.element(dtype);
    if dtype == DType::F32 { DType::F16.round(x) } else { x }
}

/// A kernel and everything that a launch of it takes.
#[derive(Clone)]
pub struct Case {
    pub gemm: Gemm,
    pub shape: Shape,
    places: BTreeMap<String, Place>,
    pub scalars: BTreeMap<String, Constant>,
    pub origin: [i32; 3],
    fills: BTreeMap<String, Fill>,
    /// Arguments that the launch leaves out.
    left_out: Vec<String>,
    limits: Limits,
    seed: u64,
}

impl Case {
    pub fn new(gemm: &Gemm, shape: Shape) -> Case {
        // Fresh operands for every case: a seed of the shape.
        let seed = [shape.m, shape.n, shape.k, shape.batch].iter().fold(7u64, |s, x| s.wrapping_mul(0x0100_0193) ^ *x as u64);
        let (places, scalars, fills, left_out) = Default::default();
        Case { gemm: gemm.clone(), shape, places, scalars, origin: [0; 3], fills, left_out, limits: Limits::default(), seed }
    }

    pub fn offset(mut self, name: &str, elements: usize) -> Case {
        self.places.entry(name.into()).or_default().offset = elements;
        self
    }

    pub fn ld(mut self, name: &str, elements: usize) -> Case {
        self.places.entry(name.into()).or_default().ld = Some(elements);
        self
    }

    pub fn batch_stride(mut self, name: &str, elements: usize) -> Case {
        self.places.entry(name.into()).or_default().batch_stride = Some(elements);
        self
    }

    /// The number of elements of a table.
    pub fn length(mut self, name: &str, elements: usize) -> Case {
        self.places.entry(name.into()).or_default().length = Some(elements);
        self
    }

    pub fn scalar(mut self, name: &str, value: impl IntoScalar) -> Case {
        self.scalars.insert(name.into(), value.into_scalar());
        self
    }

    pub fn origin(self, row: i32, column: i32, batch: i32) -> Case {
        Case { origin: [row, column, batch], ..self }
    }

    /// Draws an input's elements otherwise than uniformly.
    pub fn fill(mut self, name: &str, fill: Fill) -> Case {
        self.fills.insert(name.into(), fill);
        self
    }

    /// Leaves arguments out of the launch.
    pub fn without(mut self, names: &[&str]) -> Case {
        self.left_out = names.iter().map(|name| (*name).to_owned()).collect();
        self
    }

    /// Widens the epilogue's own tolerance beyond one or two roundings.
    pub fn slack(mut self, factor: f64) -> Case {
        self.limits.slack = factor;
        self
    }

    /// Lets elements be anything where `f32` on the CPU is far off, too; they have to be few.
    pub fn steep(mut self) -> Case {
        self.limits.steep = true;
        self
    }

    pub fn seed(self, seed: u64) -> Case {
        Case { seed: self.seed ^ seed.wrapping_mul(0x9e37_79b9), ..self }
    }

    /// The arguments in host memory: inputs random, outputs poisoned, updates in place random too.
    pub fn buffers(&self) -> Vec<Buffer> {
        let checked = self.gemm.epilogue().checked();
        let mut rng = Rng(self.seed);
        let slots = slots(self.gemm.operation(), checked, self.shape).into_iter();
        let buffers = slots.filter(|slot| !self.left_out.iter().any(|name| **name == *slot.name)).filter_map(|slot| {
            let role = checked.argument(&slot.name).map(|(_, argument)| argument.role);
            let order = match (role, &slot.kind) {
                (Some(role), _) => role.operand().map_or(Order::RowMajor, |o| o.order),
                (None, SlotKind::Memory { order, .. }) => *order,
                (None, _) => Order::RowMajor,
            };
            let mut buffer = Buffer::new(&slot, order, self.places.get(&*slot.name).copied().unwrap_or_default())?;
            if !matches!(role, Some(Role::Output(_))) {
                let fill = self.fills.get(&*slot.name).copied();
                // Operands that the tensor cores need not round leave a bound that wrong elements cannot hide in.
                let fill = fill.unwrap_or(if role.is_none() { operand } else { |rng, dtype| rng.element(dtype) });
                let dtype = buffer.dtype;
                buffer.fill(|| fill(&mut rng, dtype));
            }
            Some(buffer)
        });
        buffers.collect()
    }

    /// The arguments of the CPU reference.
    pub fn host<'a>(&self, buffers: &'a mut [Buffer]) -> HostArgs<'a> {
        let args = buffers.iter_mut().fold(HostArgs::new(), |args, buffer| {
            let (name, written) = (buffer.name.clone(), buffer.written);
            if written { args.output(&name, buffer.host()) } else { args.input(&name, buffer.host()) }
        });
        self.with_scalars(args)
    }

    pub fn with_scalars<B>(&self, args: postlude::Args<B>) -> postlude::Args<B> {
        let [row, column, batch] = self.origin;
        let args = self.scalars.iter().fold(args, |args, (name, value)| match *value {
            Constant::F32(bits) => args.scalar(name, f32::from_bits(bits)),
            Constant::F64(bits) => args.scalar(name, f64::from_bits(bits)),
            Constant::I32(x) => args.scalar(name, x),
            Constant::Bool(b) => args.scalar(name, b),
        });
        args.origin(row, column, batch)
    }

    /// The problem as a program would state it.
    pub fn problem(&self, buffers: &[Buffer]) -> Problem {
        buffers.iter().fold(self.shape.into(), |mut problem: Problem, b| {
            problem = problem.align(&b.name, b.alignment());
            if let Some(ld) = b.place.ld {
                problem = problem.ld(&b.name, ld);
            }
            match b.place.batch_stride {
                Some(stride) => problem.batch_stride(&b.name, stride),
                None => problem,
            }
        })
    }

    /// Runs it and compares.
    pub fn run(&self) {
        self.run_on(&self.buffers());
    }

    /// Runs it on these arguments and compares. Returns its outputs, unless there is no device.
    pub fn run_on(&self, given: &[Buffer]) -> Option<Vec<Buffer>> {
        let rig = rig()?;
        let problem = self.problem(given);
        let (target, multiprocessors) = rig.target();
        let plan = self.gemm.kernel_plan(target, multiprocessors, problem.clone()).unwrap_or_else(|e| panic!("{self}: {e}"));
        let got = match rig {
            Rig::Gpu(device) => self.launch(device, given, &problem),
            Rig::StandIn(cache) => {
                if let Some(cache) = cache {
                    self.gemm.compile(cache, target, multiprocessors, problem).unwrap_or_else(|e| panic!("{self}: {e}"));
                }
                let mut got = given.to_vec();
                self.gemm.reference(self.shape, self.host(&mut got)).unwrap_or_else(|e| panic!("{self}: {e}"));
                got
            }
        };
        let rounds = matches!(plan.mainloop(), Mainloop::Sm80 | Mainloop::Sm90a);
        let tf32 = rounds && ["a", "b"].iter().any(|name| self.fills.contains_key(*name));
        let double = self.gemm.operation().accumulator() == ValueType::F64;
        let coarse = plan.product().operation.dtype().size() == 1 && plan.mainloop() == Mainloop::Sm90a;
        // Copies of scaled weights are rounded to 16 bits.
        let copied = plan.product().repack.and_then(|repack| {
            repack.widened?.blocks.map(|_| if repack.dtype == DType::BF16 { 2f64.powi(-8) } else { 2f64.powi(-11) })
        });
        // An attention's weights are rounded to the format of the values, and their sum has weights that are not.
        let weights = self.gemm.operation().attention().map(|_| match self.gemm.operation().dtype() {
            DType::F16 => 2f64.powi(-10),
            _ => 2f64.powi(-7),
        });
        let copied = copied.or(weights).unwrap_or(0.0);
        let limits = Limits { copied, double, fast: plan.fast_math, tf32, coarse, ..self.limits };
        if let Err(why) = verdict::compare(self, given, &got, limits) {
            panic!("{self}\n{why}\n{}", plan.explain());
        }
        Some(got)
    }

    /// Runs it twice on the GPU; the results have to be equal.
    pub fn launch(&self, device: &Device, given: &[Buffer], problem: &Problem) -> Vec<Buffer> {
        let run = || -> Result<Vec<Buffer>, Box<dyn std::error::Error>> {
            let stream = device.context().new_stream()?;
            let mut results = Vec::new();
            for pass in 0..2 {
                let mut got = given.to_vec();
                let mut copy = DeviceCopy::of(&stream, given)?;
                copy.with(given, |args| {
                    let mut args = self.with_scalars(args);
                    // One pass plans for the real arguments, the other for a description of them.
                    let plan = match pass {
                        0 => self.gemm.plan_for(device, self.shape, &stream, &mut args)?,
                        _ => self.gemm.plan(device, problem.clone())?,
                    };
                    plan.execute(&stream, &mut args)
                })?;
                stream.synchronize()?;
                copy.download(&stream, &mut got)?;
                results.push(got);
            }
            let second = results.pop().unwrap_or_default();
            let sinks = self.gemm.epilogue().checked().graph().sinks();
            let in_any_order = |name: &str| {
                sinks.iter().any(|s| *s.name == *name && matches!(s.kind, SinkKind::Reduce(Reduction { atomic: true, .. })))
            };
            for (first, second) in results[0].iter().zip(&second).filter(|(first, _)| !in_any_order(&first.name)) {
                assert!(first.bytes == second.bytes, "{self}: two runs differ in `{}`", first.name);
            }
            Ok(second)
        };
        run().unwrap_or_else(|e| panic!("{self}: {e}"))
    }
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {}", self.gemm.operation(), self.shape)?;
        let places = self.places.iter().map(|(name, place)| format!("; {name}: {place:?}"));
        places
            .chain(self.scalars.iter().map(|(name, value)| format!("; {name} = {value:?}")))
            .try_for_each(|p| write!(f, "{p}"))?;
        write!(f, "; origin {:?}; without {:?}\n{}", self.origin, self.left_out, self.gemm.epilogue())
    }
}
