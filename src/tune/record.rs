//! Tuning records, kept for the next plan.
//!
//! A record is stored beside the kernels of the cache, under a hash of everything that decides which tile is fastest:
//! GPU, library version, kernel class, and the shape up to an eighth. It names a tile. The plan uses the tile only if
//! it is still one of those that fit. So a record can cost time, and nothing else.

use super::{Candidate, Spread};
use crate::jit::{Cache, CacheFault, CacheKey};
use crate::plan::{KernelPlan, Preferences, Tile};
use crate::problem::Shape;
use serde::{Deserialize, Serialize};

/// The subject of a record.
pub(crate) struct Subject(CacheKey);

/// The tile that was fastest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    tile: Tile,
    raster: i32,
    /// Whether the tile is one of the transposed problem.
    pub transposed: bool,
    /// Microseconds a launch, and those of the previous tile if it was another.
    time: f64,
    over: Option<f64>,
    rounds: usize,
}

impl Subject {
    /// `plan` is the library's own plan; `epilogue` is the canonical form of the user's epilogue.
    pub fn new(gpu: &str, plan: &KernelPlan, epilogue: &str, preferences: &Preferences, shape: Shape) -> Subject {
        let text = |x: Result<String, serde_json::Error>| x.unwrap_or_default();
        let Shape { m, n, k, batch } = shape;
        // A record says which way round its tile is, so the subject is the problem as the user sees it.
        let [a, b] = plan.alignment;
        let (operation, alignment) =
            if plan.transposed { (plan.operation.transposed(), [b, a]) } else { (plan.operation, [a, b]) };
        Subject(CacheKey::of_note(&[
            "tuned",
            env!("CARGO_PKG_VERSION"),
            gpu,
            &plan.target.to_string(),
            &text(serde_json::to_string(&operation)),
            &text(serde_json::to_string(&plan.split.as_ref().map(|split| (split.parts, split.operation)))),
            // How operands and arguments lie, not the plan's strip: that one is the tile's.
            &text(serde_json::to_string(&(alignment, &plan.argument_runs))),
            &text(serde_json::to_string(preferences)),
            epilogue,
            &format!("{:?}", [m, n, k, batch].map(bucket)),
        ]))
    }
}

/// An extent up to its third significant binary digit: at most 8 exactly, then four steps an octave.
fn bucket(extent: usize) -> usize {
    let step = 1usize << (usize::BITS - extent.leading_zeros()).saturating_sub(3);
    extent.checked_next_multiple_of(step).unwrap_or(extent)
}

impl Record {
    pub fn new(of: &Candidate, time: Spread, over: Option<Spread>, rounds: usize) -> Record {
        let Candidate { tile, raster, transposed } = *of;
        Record { tile, raster, transposed, time: time.median, over: over.map(|spread| spread.median), rounds }
    }

    /// The record of a subject. An unreadable record counts as absent.
    pub fn find(cache: &Cache, subject: &Subject) -> Option<Record> {
        let note = cache.note(&subject.0)?;
        serde_json::from_slice(&note).inspect_err(|error| cache.report(CacheFault::Record, &subject.0, error)).ok()
    }

    /// Stores the record. Returns the directory, or why no other process will find it.
    pub fn keep(&self, cache: &Cache, subject: &Subject) -> Result<String, String> {
        let note = serde_json::to_vec(self).map_err(|error| error.to_string())?;
        let kept = cache.keep_note(&subject.0, &note);
        let directory = cache.directory().map_err(str::to_owned)?;
        if kept { Ok(directory.display().to_string()) } else { Err(format!("{} cannot be written", directory.display())) }
    }

    /// The plan with the record's tile, unless the tile no longer fits. `plan` is of the record's way round.
    pub fn apply(&self, cache: &Cache, plan: &KernelPlan) -> Option<KernelPlan> {
        let Record { tile, raster, transposed: _, time, over, rounds } = self;
        let over = over.map_or(String::from("nothing else was faster"), |over| format!("{over:.2} us for the one before"));
        let reason = format!("tuned: {time:.2} us, {over}, {rounds} rounds");
        let tuned = plan.with_tile(*tile, *raster, reason);
        if tuned.is_none() {
            cache.report(CacheFault::Outdated, tile, &format_args!("the plan is {}", plan.tile));
        }
        tuned
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{Epilogue, recipes};
    use crate::dtype::DType::{BF16, E4M3, F16};
    use crate::gemm::Gemm;
    use crate::problem::Layout;
    use crate::target::Target;
    use std::collections::HashSet;
    use std::num::NonZeroUsize;

    const SHAPE: Shape = Shape::new(1024, 1024, 1024);
    const TIME: Spread = Spread { low: 1.0, median: 2.0, high: 3.0 };

    fn epilogue() -> Epilogue {
        recipes::bias_activation(F16, F16, |z| z.relu()).unwrap()
    }

    fn plan(gemm: &Gemm, shape: Shape) -> KernelPlan {
        gemm.kernel_plan(Target::SM_80, 108, shape).unwrap()
    }

    fn subject(gpu: &str, gemm: &Gemm, preferences: &Preferences, shape: Shape) -> Subject {
        Subject::new(gpu, &plan(gemm, shape), &gemm.epilogue().to_json(), preferences, shape)
    }

    fn as_it_is(tile: Tile, raster: i32) -> Candidate {
        Candidate { tile, raster, transposed: false }
    }

    /// A tile may be found for the way round that a later plan, of a neighbouring shape, does not take by itself.
    #[test]
    fn both_ways_round_have_one_record() {
        let plain = Preferences::default();
        for layout in Layout::ALL {
            for dtype in [F16, BF16, E4M3] {
                let gemm = Gemm::new(dtype, layout, &epilogue());
                let of = |transposed: bool| {
                    let plan =
                        gemm.clone().transposed(transposed).kernel_plan(Target::SM_90A, 132, Shape::new(512, 768, 1000)).unwrap();
                    assert_eq!(plan.transposed, transposed);
                    Subject::new("a GPU", &plan, "", &plain, SHAPE).0
                };
                assert_eq!(of(false), of(true), "{dtype} {layout}");
            }
        }
    }

    #[test]
    fn extents_are_grouped_by_eighths() {
        let same = |range: std::ops::RangeInclusive<usize>| range.map(bucket).collect::<HashSet<_>>().len();
        assert_eq!((0..=8).map(bucket).collect::<Vec<_>>(), (0..=8).collect::<Vec<_>>());
        assert_eq!([9, 10, 11, 12, 13, 16, 17, 20].map(bucket), [10, 10, 12, 12, 14, 16, 20, 20]);
        assert_eq!((same(1025..=1280), same(1281..=1536), same(1024..=1025)), (1, 1, 2));
        assert_eq!(bucket(usize::MAX), usize::MAX);
    }

    #[test]
    fn whatever_decides_the_tile_is_in_the_key() {
        let (gemm, plain) = (Gemm::new(F16, Layout::TN, &epilogue()), Preferences::default());
        let base = subject("a GPU", &gemm, &plain, SHAPE).0;
        assert_eq!(subject("a GPU", &gemm.clone(), &plain, SHAPE).0, base);
        assert_eq!(subject("a GPU", &gemm, &plain, Shape::new(1023, 1000, 1024)).0, base, "a neighbour");
        let gelu = recipes::bias_activation(F16, F16, |z| z.gelu()).unwrap();
        let others = [
            subject("another GPU", &gemm, &plain, SHAPE).0,
            subject("a GPU", &gemm, &Preferences { programmatic: false, ..plain }, SHAPE).0,
            subject("a GPU", &gemm, &Preferences { split_k: NonZeroUsize::new(1), ..plain }, SHAPE).0,
            subject("a GPU", &gemm.clone().split_k(2), &plain, SHAPE).0,
            subject("a GPU", &gemm.clone().split_k(4), &plain, SHAPE).0,
            subject("a GPU", &Gemm::new(F16, Layout::TT, &epilogue()).split_k(4), &plain, SHAPE).0,
            subject("a GPU", &gemm, &plain, Shape::new(1025, 1024, 1024)).0,
            subject("a GPU", &gemm, &plain, Shape::new(1024, 1024, 512)).0,
            subject("a GPU", &gemm, &plain, SHAPE.batched(2)).0,
            subject("a GPU", &Gemm::new(F16, Layout::TT, &epilogue()), &plain, SHAPE).0,
            subject("a GPU", &Gemm::new(F16, Layout::TN, &gelu), &plain, SHAPE).0,
            subject("a GPU", &Gemm::new(BF16, Layout::TN, &epilogue()), &plain, SHAPE).0,
            subject("a GPU", &gemm, &plain, Shape::new(1024, 1023, 1024)).0,
        ];
        let all: HashSet<_> = others.iter().copied().chain([base]).collect();
        assert_eq!(all.len(), others.len() + 1);
    }

    #[test]
    fn what_is_kept_is_found_by_another_process() {
        let directory = tempfile::tempdir().unwrap();
        let gemm = Gemm::new(F16, Layout::TN, &epilogue());
        let subject = subject("a GPU", &gemm, &Preferences::default(), SHAPE);
        let fresh = plan(&gemm, SHAPE);
        let (tile, raster) = fresh.choice.candidates().nth(2).unwrap();
        let record = Record::new(&as_it_is(tile, raster), TIME, Some(TIME), 9);
        let cache = Cache::at(directory.path().join("cache"));
        assert_eq!(Record::find(&cache, &subject), None);
        assert_eq!(record.keep(&cache, &subject), Ok(directory.path().join("cache").display().to_string()));
        let found = Record::find(&Cache::at(directory.path().join("cache")), &subject);
        assert_eq!(found.as_ref(), Some(&record));
        let tuned = found.unwrap().apply(&cache, &fresh).unwrap();
        assert_ne!(fresh.tile, tile);
        assert_eq!((tuned.tile, tuned.raster, tuned.choice.chosen()), (tile, raster, Some((tile, raster))));
        assert!(tuned.explain().contains("tuned: 2.00 us, 2.00 us for the one before, 9 rounds"), "{}", tuned.explain());
        assert!(tuned.source().is_ok());
        let memory = Cache::in_memory();
        assert!(record.keep(&memory, &subject).is_err());
        assert_eq!(Record::find(&memory, &subject), Some(record));
    }

    #[test]
    fn nonsense_is_ignored() {
        let gemm = Gemm::new(F16, Layout::TN, &epilogue());
        let subject = subject("a GPU", &gemm, &Preferences::default(), SHAPE);
        let cache = Cache::in_memory();
        for note in ["", "{}", "null", r#"{"tile":1}"#, "\u{0}"] {
            cache.keep_note(&subject.0, note.as_bytes());
            assert_eq!(Record::find(&cache, &subject), None, "{note}");
        }
        let fresh = plan(&gemm, SHAPE);
        let (tile, raster) = fresh.choice.chosen().unwrap();
        let record = |tile, raster| Record::new(&as_it_is(tile, raster), TIME, None, 3);
        assert!(record(tile, raster).apply(&cache, &fresh).is_some());
        let other = plan(&Gemm::pointwise(F16, crate::ir::Order::RowMajor, &epilogue()), SHAPE).tile;
        let strange = [Tile { bm: 0, ..tile }, Tile { threads: 96, ..tile }, Tile { bn: usize::MAX, ..tile }, other];
        for tile in strange {
            assert!(record(tile, raster).apply(&cache, &fresh).is_none(), "{tile}");
        }
        assert!(record(tile, 0).apply(&cache, &fresh).is_none() && record(tile, i32::MIN).apply(&cache, &fresh).is_none());
    }

    #[cfg(unix)]
    #[test]
    fn nonsense_is_reported_once() {
        use crate::jit::tests::events::warnings;
        let gemm = Gemm::new(F16, Layout::TN, &epilogue());
        let subject = subject("a GPU", &gemm, &Preferences::default(), SHAPE);
        let (cache, fresh) = (Cache::in_memory(), plan(&gemm, SHAPE));
        let (tile, raster) = fresh.choice.chosen().unwrap();
        let record = Record::new(&as_it_is(Tile { bm: 0, ..tile }, raster), TIME, None, 3);
        cache.keep_note(&subject.0, b"nonsense");
        let (_, heard) = warnings(|| {
            for _ in 0..5 {
                assert!(Record::find(&cache, &subject).is_none() && record.apply(&cache, &fresh).is_none());
            }
        });
        assert_eq!(heard.len(), 2, "{heard:#?}");
        assert!(heard[0].contains("cannot be read") && heard[1].contains("does not fit"), "{heard:#?}");
    }
}
