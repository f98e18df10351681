//! A contest: contenders take turns in random order, round after round, timed by events on one stream; what counts is the
//! ratio to the first contender in the same round.

use cudarc::driver::CudaStream;
use cudarc::driver::sys::CUevent_flags;
use std::sync::Arc;
use std::time::Duration;

/// One way to do the work: a name, and a call that puts it into the stream once.
pub struct Contender<'a> {
    pub name: String,
    pub run: Box<dyn FnMut() + 'a>,
}

/// What a contender took.
pub struct Outcome {
    pub name: String,
    /// Median time of one run, in milliseconds.
    pub ms: f64,
    /// Its time over the first contender's, in the same round: tenth percentile, median, ninetieth.
    pub ratio: [f64; 3],
}

/// Milliseconds that `count` runs take on the device.
pub fn time(stream: &Arc<CudaStream>, count: u64, run: &mut dyn FnMut()) -> f64 {
    let flags = Some(CUevent_flags::CU_EVENT_DEFAULT);
    let start = stream.record_event(flags).expect("the device takes an event");
    (0..count).for_each(|_| run());
    let end = stream.record_event(flags).expect("the device takes an event");
    f64::from(start.elapsed_ms(&end).expect("both events are reached"))
}

/// Milliseconds of one run, warm, from as many as fill `slice` milliseconds.
pub fn estimate(stream: &Arc<CudaStream>, slice: f64, run: &mut dyn FnMut()) -> f64 {
    run();
    let once = time(stream, 1, run).max(1e-3);
    let count = (slice / once).clamp(1.0, 10_000.0) as u64;
    time(stream, count, run) / count as f64
}

/// Lets contenders take turns for `rounds` rounds in slices of `slice` milliseconds each.
pub fn contest(stream: &Arc<CudaStream>, rounds: usize, slice: f64, contenders: &mut [Contender<'_>]) -> Vec<Outcome> {
    let counts: Vec<u64> = contenders
        .iter_mut()
        .map(|c| (slice / estimate(stream, slice.min(20.0), &mut c.run)).clamp(1.0, 100_000.0) as u64)
        .collect();
    let mut times = vec![Vec::with_capacity(rounds); contenders.len()];
    let mut random = 0x9E37_79B9_7F4A_7C15u64;
    let mut order: Vec<usize> = (0..contenders.len()).collect();
    for _ in 0..rounds {
        for i in (1..order.len()).rev() {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            order.swap(i, (random >> 33) as usize % (i + 1));
        }
        for &i in &order {
            times[i].push(time(stream, counts[i], &mut contenders[i].run) / counts[i] as f64);
        }
    }
    let at = |sorted: &[f64], q: f64| sorted[((sorted.len() - 1) as f64 * q).round() as usize];
    let sorted = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values
    };
    let first = times[0].clone();
    contenders
        .iter()
        .zip(times)
        .map(|(contender, times)| {
            let ratios = sorted(times.iter().zip(&first).map(|(t, f)| t / f).collect());
            let ratio = [at(&ratios, 0.1), at(&ratios, 0.5), at(&ratios, 0.9)];
            Outcome { name: contender.name.clone(), ms: at(&sorted(times), 0.5), ratio }
        })
        .collect()
}

/// Device time of `iters` runs, for criterion.
pub fn measure(stream: &Arc<CudaStream>, iters: u64, run: &mut dyn FnMut()) -> Duration {
    Duration::from_secs_f64(time(stream, iters, run) / 1e3)
}
