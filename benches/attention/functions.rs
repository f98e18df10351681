//! The functions of scores that are timed, with their arguments.

use crate::support::Result;
use postlude::Scores;
use postlude::cudarc::driver::{CudaSlice, CudaStream};
use postlude::prelude::*;
use std::sync::Arc;

/// A function of scores, as `peer.py` knows it, too.
#[derive(Clone, Copy, Debug)]
pub enum Function {
    /// Three quarters of the keys of a sequence are seen.
    Padding,
    /// A bias of each head times the distance of query and key.
    Alibi,
    /// `tanh(score / 20) * 20`.
    Cap,
    /// The 256 keys up to a query's own position.
    Window,
}

impl Function {
    pub const ALL: [Function; 4] = [Function::Padding, Function::Alibi, Function::Cap, Function::Window];

    pub fn name(self) -> &'static str {
        match self {
            Function::Padding => "padding",
            Function::Alibi => "alibi",
            Function::Cap => "cap",
            Function::Window => "window",
        }
    }
}

/// A function with what it reads.
pub struct Prepared {
    pub scores: Scores,
    function: Function,
    seen: CudaSlice<u8>,
    slopes: CudaSlice<f32>,
}

impl Prepared {
    pub fn new(function: Function, stream: &Arc<CudaStream>, sequences: usize, heads: usize, keys: usize) -> Result<Prepared> {
        let scores = match function {
            Function::Padding => Scores::build(|s| s.load("seen", Bool.over(N | S)).select(s.acc(), f32::NEG_INFINITY)),
            Function::Alibi => Scores::build(|s| s.acc() + s.load("slopes", F32.over(L)) * (s.column() - s.row()).cast(F32)),
            Function::Cap => Scores::build(|s| (s.acc() / 20.0).tanh() * 20.0),
            Function::Window => Scores::build(|s| {
                let back = s.row() - s.column();
                (back.ge(0) & back.lt(256)).select(s.acc(), f32::NEG_INFINITY)
            }),
        }?;
        let seen: Vec<u8> = (0..sequences * keys).map(|i| u8::from(i % keys < keys * 3 / 4)).collect();
        let slopes: Vec<f32> = (0..heads).map(|head| (-8.0 * (head + 1) as f32 / heads as f32).exp2()).collect();
        let (seen, slopes) = (stream.clone_htod(&seen)?, stream.clone_htod(&slopes)?);
        Ok(Prepared { scores, function, seen, slopes })
    }

    /// The arguments of a launch.
    pub fn arguments(&self) -> DeviceArgs<'_> {
        match self.function {
            Function::Padding => DeviceArgs::new().input("seen", &self.seen),
            Function::Alibi => DeviceArgs::new().input("slopes", &self.slopes),
            Function::Cap | Function::Window => DeviceArgs::new(),
        }
    }
}
