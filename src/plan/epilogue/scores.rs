//! The function of an attention's scores, with its values placed in phases: the program of a kernel's first product.

use crate::check::Argument;
use crate::ir::Operand;
use crate::pass;
use crate::plan::code::{Code, Copies};
use crate::plan::epilogue::program::Program;
use crate::plan::epilogue::window::{self, KeyBound};
use crate::plan::mainloop::tile::Tile;
use crate::problem::{Operation, Scores};
use serde::Serialize;

/// What scores become, as a kernel computes it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PlannedScores {
    /// The function, with its values placed in phases. Its one store is the result, and no memory is written.
    pub program: Program,
    /// The keys that it leaves seen in every tile. Blocks of others are skipped.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bounds: Vec<KeyBound>,
    /// How its code is laid out.
    pub code: Code,
    /// Its arguments, which are numbered behind those of the epilogue.
    #[serde(skip)]
    pub arguments: Vec<Argument>,
}

impl PlannedScores {
    /// Keys of a visit: two of a query lie beside each other among the accumulators of a lane.
    pub const STRIP: usize = 2;

    /// The function of an operation, if it has one.
    pub(in crate::plan) fn of(operation: Operation) -> Option<PlannedScores> {
        let scores: Scores = operation.attention()?.function()?;
        let program = Program::of(&pass::fold(scores.inlined()));
        let bounds = window::bounds(&program, program.stores[0].value);
        Some(PlannedScores { program, bounds, code: Code::default(), arguments: scores.arguments().to_vec() })
    }

    /// The same with its code laid out for a tile.
    pub(in crate::plan) fn on(self, tile: &Tile, fast_math: bool) -> PlannedScores {
        let [queries, keys] = tile.held_scores().unwrap_or([1; 2]);
        let copies = Copies { visit: queries * keys, column: keys, row: queries, again: 1, limited: false };
        let code = Code::copied(&self.program, &copies, true, PlannedScores::STRIP, fast_math);
        PlannedScores { code, ..self }
    }

    /// The value that is the result.
    pub fn result(&self) -> usize {
        self.program.stores[0].value
    }

    /// The bytes that a wide access to an operand has to be aligned to.
    pub(in crate::plan) fn wide_access(operand: Operand) -> usize {
        operand.dtype.bytes(PlannedScores::STRIP).min(16)
    }
}
