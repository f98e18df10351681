//! The choice of mainloop, tile and rasterisation, with a verdict on everything that was not chosen.
//!
//! The mainloop follows from formats and target: each room under `mainloop/` says why it cannot, or should not. Among its
//! tiles the choice takes the one with the least estimated time. For most mainloops that is the tiles a multiprocessor gets,
//! times the measured time of one tile, alone or beside as many as are resident (`mainloop/candidates.rs`). Hopper's tiles
//! have a model of their own (`mainloop/sm90a/cost.rs`).

use crate::check::Checked;
use crate::plan::choice::Choice;
use crate::plan::epilogue::bytes;
use crate::plan::launch::raster;
use crate::plan::launch::repack::MEMORY;
use crate::plan::mainloop::rules::{Asked, Tried};
use crate::plan::request::{PlanRequest, TileRequest};
use crate::plan::{Considered, Mainloop, Parts, Reason, Tile, rows};

/// Chooses the tile of a mainloop and its rasterisation, with a verdict on every candidate. It chooses none if none
/// fits.
pub(super) fn choose(mainloop: Mainloop, request: &TileRequest<'_>, choice: &mut Choice) {
    let rules = mainloop.rules();
    let candidates = match request.preferences.tile {
        Some(tile) => {
            let other = tile.mainloop();
            let obstacle = (other != mainloop).then(|| format!("is a tile of {other}, and {mainloop} was asked for"));
            vec![Tried { tile, obstacle, time: None }]
        }
        None => rules.candidates(request),
    };
    // The tiles that fit, with their estimated times.
    let mut estimates: Vec<(Tile, f64)> = Vec::new();
    for Tried { tile, obstacle, time } in candidates {
        match obstacle.map_or_else(|| fit(&tile, request), |obstacle| Err(obstacle.into())) {
            // Two candidates may fit with the same number of stages.
            Ok(tile) if estimates.iter().any(|(known, _)| *known == tile) => {}
            Ok(tile) => estimates.push((tile, time.unwrap_or_else(|| rules.estimate(&tile, request)))),
            Err(obstacle) => choice.reject(Considered::Tile(tile), obstacle),
        }
    }
    estimates.sort_by(|a, b| a.1.total_cmp(&b.1));
    let Some(&(chosen, least)) = estimates.first() else { return };
    let tiles = chosen.count(request.shape);
    choice.accept(chosen, format!("the least estimated time: {tiles} tiles on {} multiprocessors", request.gpu.multiprocessors));
    for (tile, estimate) in &estimates[1..] {
        choice.reject(Considered::Tile(*tile), Reason::Slower((estimate / least * 100.0).round() as u64));
    }
    let time = rules.nanoseconds(request.operation.dtype()).map(|unit| (least * unit) as u64);
    let whole = request.program.stages.is_empty();
    let rastered = estimates.iter().map(|(tile, _)| (*tile, raster::group(tile, request))).collect();
    let nanoseconds = time.filter(|_| request.preferences.tile.is_none()).map(|time| time.max(moved(request)));
    choice.choose(rastered, nanoseconds, time.filter(|_| whole));
}

/// Nanoseconds in which memory moves what a launch reads and writes, each byte once. Estimates of tiles leave it out, since it is
/// the same for all of them.
fn moved(request: &TileRequest<'_>) -> u64 {
    let TileRequest { operation, program, shape, .. } = *request;
    // Entries of a batch may share an operand.
    let read = if operation.multiplies() && shape.batch == 1 { bytes::of_operands(operation, shape) } else { 0.0 };
    ((read + bytes::of_matrices(program, shape) as f64) / MEMORY) as u64
}

/// The shortest estimate of all candidates, in nanoseconds, whether or not they fit: no tile that fits takes less.
pub(super) fn least(mainloop: Mainloop, request: &TileRequest<'_>) -> Option<(Tile, u64)> {
    let rules = mainloop.rules();
    let unit = rules.nanoseconds(request.operation.dtype())?;
    let tiles = request
        .preferences
        .tile
        .map_or_else(|| rules.candidates(request).into_iter().map(|tried| tried.tile).collect(), |tile| vec![tile]);
    let timed = tiles.into_iter().map(|tile| (tile, rules.estimate(&tile, request)));
    let (tile, time) = timed.min_by(|a, b| a.1.total_cmp(&b.1))?;
    Some((tile, (time * unit) as u64))
}

/// The tile as it fits beside the epilogue's operands, or the reason why it does not fit.
fn fit(tile: &Tile, request: &TileRequest<'_>) -> Result<Tile, Reason> {
    let TileRequest { operation, program, alignment, strip, target, .. } = *request;
    let epilogue = || Parts::of(&program.reductions, tile, strip).bytes;
    match tile.obstacle(operation, epilogue, alignment, strip, target) {
        Some(obstacle) => Err(obstacle.into()),
        None => tile.rules().fit(tile, request),
    }
}

/// The mainloops that can compute a product or a pointwise operation, the best first, with verdicts on the others. The
/// list is empty if the mainloop that the caller asked for cannot. `alignment` describes `a` and `b` as the user sees them.
pub(super) fn mainloops(
    request: &PlanRequest<'_>,
    epilogue: &Checked,
    alignment: [usize; 2],
    choice: &mut Choice,
) -> Vec<Mainloop> {
    let PlanRequest { operation, target, gpu, preferences, .. } = *request;
    let forced = preferences.mainloop.or(preferences.tile.map(|t| t.mainloop()));
    let reduces = rows::reduces(epilogue);
    // Only one mainloop reduces along rows of matrices, and only one behind a product.
    let of_rows = reduces && !operation.multiplies();
    let all: &[Mainloop] = if of_rows { &Mainloop::OF_ROWS } else { &Mainloop::BEST_FIRST };
    let mut usable = Vec::new();
    for &mainloop in all.iter().filter(|mainloop| of_rows || !reduces || mainloop.rules().is_staged()) {
        let asked = Asked {
            operation,
            shape: request.problem.shape,
            alignment,
            target,
            gpu,
            preferences,
            epilogue,
            forced: forced == Some(mainloop),
        };
        let why_not = match forced {
            Some(other) if other != mainloop && of_rows => {
                Some(format!("{other} was asked for, and the epilogue uses what its rows come to"))
            }
            Some(other) if other != mainloop => Some(format!("{other} was asked for")),
            _ if operation.attention().is_some() && !mainloop.rules().attends() => Some("the operation is an attention".into()),
            _ => mainloop.rules().why_not(&asked),
        };
        match why_not {
            Some(why) => choice.reject(Considered::Mainloop(mainloop), why),
            None => usable.push(mainloop),
        }
    }
    usable
}
