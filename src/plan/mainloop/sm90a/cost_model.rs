//! The numbers of the estimate of Hopper's tiles.
//!
//! Each GPU has two sets. The first is for operands whose rows begin at cache lines. An H200's was fitted to every tile
//! on 26 shapes, most of them powers of two, in short and in long slices, and its epilogues to a survey later. An H100's
//! was fitted to a survey. The second was fitted to a survey of arbitrary shapes on an H200, most of whose rows begin
//! anywhere; an H100 differs in the bandwidth of its memory. A short K at cache lines has a set of its own for both
//! GPUs, fitted to a survey on an H200 (`docs/measurements/0095-shallow-rings.md`). `tests/choices/fit.rs` compares all
//! with the surveys of both GPUs (`docs/measurements/0042-survey-of-tiles.md`,
//! `docs/measurements/0064-few-tiles.md`, `docs/measurements/0083-parts-of-lines.md`).

use crate::target::GpuModel;
use serde::Serialize;

/// Declares the models: a field for each number, with its value for an H200 and operands whose rows begin at cache lines,
/// for others there, and for both on an H100; and a list of all fields by name.
macro_rules! model {
    ($($(#[$doc:meta])* $name:ident:
       $h200:literal, $h200_across:literal, $h100:literal, $h100_across:literal, $short:literal;)*) => {
        /// The cost of Hopper's tiles: the numbers of the estimate, most of them in clock cycles.
        ///
        /// The form of the estimate is that of the kernel. `cargo xtask fit-tiles` fits the numbers to measured tiles.
        #[derive(Clone, Copy, Debug, PartialEq, Serialize)]
        pub struct CostModel {
            $($(#[$doc])* pub $name: f64,)*
        }

        impl CostModel {
            /// For an H200, if rows of both operands begin at multiples of 128 bytes: lines of the L2 cache.
            pub const H200: CostModel = CostModel { $($name: $h200,)* };

            /// For an H200, if they do not. Fetching then costs more, and more of it is exposed.
            pub const H200_ACROSS_LINES: CostModel = CostModel { $($name: $h200_across,)* };

            /// For an H100, if rows of both operands begin at multiples of 128 bytes.
            pub const H100: CostModel = CostModel { $($name: $h100,)* };

            /// For an H100, if they do not.
            pub const H100_ACROSS_LINES: CostModel = CostModel { $($name: $h100_across,)* };

            /// For a short K, on any GPU, if rows of both operands begin at multiples of 128 bytes.
            pub const SHORT: CostModel = CostModel { $($name: $short,)* };

            /// Every number with its name.
            pub fn parameters(&mut self) -> Vec<(&'static str, &mut f64)> {
                vec![$((stringify!($name), &mut self.$name),)*]
            }
        }
    };
}

impl CostModel {
    /// Estimated cycles of a nanosecond.
    pub const CYCLES: f64 = 1.4;

    /// The model for a GPU, and for whether rows of both operands begin at cache lines.
    pub const fn of(model: GpuModel, rows_begin_at_lines: bool) -> &'static CostModel {
        match (model, rows_begin_at_lines) {
            (GpuModel::H200, true) => &CostModel::H200,
            (GpuModel::H200, false) => &CostModel::H200_ACROSS_LINES,
            (GpuModel::H100, true) => &CostModel::H100,
            (GpuModel::H100, false) => &CostModel::H100_ACROSS_LINES,
        }
    }
}

model! {
    /// Factor for the products of a block with one consumer instead of two.
    single: 1.08, 1.249, 0.95, 1.249, 2.0;
    /// Factor for blocks with two consumers in a cluster, which wait for each other.
    clustered: 1.005, 1.125, 1.33, 1.125, 0.761;
    /// The same for blocks with one consumer.
    clustered_single: 1.05, 1.188, 1.16, 1.188, 1.26;
    /// Factor for clusters where sharing saves nothing: enough to rule them out.
    unshared: 1.3, 1.0, 1.3, 1.0, 2.17;
    /// Cycles that a cluster takes to start together.
    rendezvous: 250.0, 578.0, 1770.0, 578.0, 1176.0;
    /// Cycles of an epilogue before and after its elements: barriers, the way through shared memory.
    epilogue: 850.0, 1128.0, 672.0, 1128.0, 0.0522;
    /// The same for a block with one consumer.
    epilogue_single: 1100.0, 1663.0, 1386.0, 1663.0, 0.0963;
    /// Cycles of each chunk of an epilogue.
    chunk: 65.0, 312.6, 207.0, 312.6, 102.0;
    /// The same with direct store.
    chunk_direct: 180.0, 493.8, 881.0, 493.8, 23.0;
    /// Cycles of each chunk for every bit mask that is written and every reduction. The products that hide the epilogue
    /// lose the same cycles.
    besides: 30.0, 30.0, 30.0, 30.0, 30.0;
    /// The same for every matrix that is read, in chunks that exist because chunks are narrower than 64 columns.
    part_read: 20.0, 30.0, 30.0, 30.0, 93.2;
    /// The same for every matrix that is written, which is written in parts of lines then.
    part_written: 57.0, 0.0, 0.0, 0.0, 156.0;
    /// Factor for an epilogue that runs under the products of another tile.
    under_products: 3.2, 2.5, 2.5, 2.5, 3.2;
    /// Cycles that each chunk of a matrix that is read adds there.
    read: 100.0, 100.0, 100.0, 100.0, 100.0;
    /// Cycles of each chunk of a matrix that is read, where the epilogue waits for it.
    wait: 0.0, 0.0, 0.0, 0.0, 186.0;
    /// The factor of these cycles for chunks that find no place while a tile computes, as a share of all.
    starved: 0.0, 0.0, 0.0, 0.0, 1.75;
    /// The share by which an epilogue takes longer where accumulators take most registers.
    crowded: 0.0, 0.0, 0.0, 0.0, 3.49;
    /// Cycles until the results of an epilogue have left the buffers of the next epilogue's chunks.
    handover: 1000.0, 1000.0, 1000.0, 1000.0, 1000.0;
    /// Cycles until the products of a tile run again after an exposed epilogue.
    restart: 490.0, 0.0, 58.0, 0.0, 25.8;
    /// Issue slots of an element beside those of its own values: conversion, store, accumulator.
    element: 3.0, 20.33, 13.0, 20.33, 5.77;
    /// The share of the values' own cost that counts with fast math, because special-function instructions run beside
    /// others.
    fast: 0.3, 1.176, 0.3, 1.176, 0.0247;
    /// The cost up to which that share applies. Nothing heavier was measured, and heavier epilogues belong on tiles
    /// that leave them registers.
    fast_limit: 64.0, 64.0, 64.0, 64.0, 64.0;
    /// Cycles between the products of one tile and the next for each chunk with a delayed store.
    delayed_store: 150.0, 603.3, 746.0, 603.3, 0.0142;
    /// The least cycles of products that can hide a delayed chunk.
    delayed_block: 1024.0, 1025.0, 1024.0, 1025.0, 1311.0;
    /// Cycles of each block of K beside its products.
    block: 0.0, 2.437, 0.0, 2.437, 11.1;
    /// Factor for an epilogue of one consumer, relative to its share of two.
    alone: 1.4, 1.073, 0.862, 1.073, 0.598;
    /// The share of a ping-pong epilogue after which the next one ends, where products are shorter.
    paired: 1.0, 1.0, 1.0, 1.0, 0.392;
    /// Cycles of a launch before its first and after its last tile.
    launch: 4500.0, 1500.0, 4500.0, 1500.0, 1800.0;
    /// Cycles that are added where the next launch's blocks do not fit beside this launch's.
    launch_behind: 0.0, 1257.0, 0.0, 1257.0, 0.0;
    /// Bytes a cycle that all multiprocessors together fetch from L2.
    from_l2: 23000.0, 5445.0, 30710.0, 5445.0, 33540.0;
    /// Bytes a cycle from memory, where blocks request the same data more than once.
    from_memory: 5000.0, 4354.0, 2284.0, 3047.8, 20250.0;
    /// The share of that fetching which stays exposed.
    exposed: 0.0, 0.285, 0.029, 0.285, 1.67;
    /// The share of the epilogue's matrices that counts beside operands from L2.
    beside_operands: 0.0, 0.0, 0.0, 0.0, 1.05;
    /// The share by which products take longer for each tile that a ring lacks of two.
    ring: 0.0, 0.0, 0.0, 0.0, 0.0646;
    /// Bytes a cycle that one multiprocessor takes in.
    into_shared: 1000000000.0, 65.0, 64.2, 65.0, 1000000000.0;
    /// Bytes a cycle that all multiprocessors together take in at most, whatever clusters share.
    delivered: 8500.0, 1000000000.0, 1000000000.0, 1000000000.0, 7173.0;
    /// Factor for clusters along M, if K is contiguous in both operands.
    clustered_m: 1.0, 0.8914, 1.0, 0.8914, 1.24;
    /// The same for clusters along N.
    clustered_n: 1.0, 0.8523, 1.0, 0.8523, 1.02;
    /// The same for clusters along M in the other layouts.
    clustered_m_other: 1.0, 0.72, 1.0, 0.72, 0.921;
    /// The same for clusters along N in the other layouts.
    clustered_n_other: 1.0, 0.826, 1.0, 0.826, 0.811;
    /// The cycles from which a launch is long enough to run into the device's power limit, where such launches follow
    /// each other.
    powered: 200000.0, 635700.0, 123000.0, 635700.0, 218300.0;
    /// The relative cost of that limit for each element that a multiply-add reads from L2.
    read_from_l2: 3.0, 29.6, 16.0, 29.6, 8.56;
    /// The same for each element that it writes to shared memory.
    written_to_shared: 5.0, 0.0, 0.52, 0.0, 0.2;
}
