//! Contests: contenders take turns in one process, shuffled in every round; what counts is the ratio of times inside a
//! round, of which the median is taken over all rounds, and the tenth and ninetieth percentile.

use crate::Result;
use crate::operands::Operands;
use criterion::Criterion;
use postlude::cudarc::driver::CudaStream;
use postlude::cudarc::driver::sys::CUevent_flags;
use std::sync::Arc;
use std::time::Duration;

/// Enqueues some work over the operands of a turn.
type Launch<'a> = Box<dyn Fn(&mut Operands, usize) + 'a>;

/// One contender.
pub struct Contender<'a> {
    name: String,
    launch: Launch<'a>,
}

impl<'a> Contender<'a> {
    pub fn new(name: impl Into<String>, launch: impl Fn(&mut Operands, usize) + 'a) -> Contender<'a> {
        Contender { name: name.into(), launch: Box::new(launch) }
    }
}

/// Contenders over the same operands. The first one is what the others are compared with.
pub struct Contest<'a> {
    pub title: String,
    /// Operations or bytes of one launch.
    pub work: f64,
    /// What 10^12 of them a second are called.
    pub unit: &'static str,
    pub contenders: Vec<Contender<'a>>,
}

/// How long a contender runs at a time, and how often.
struct Slices {
    seconds: f64,
    rounds: usize,
}

impl Slices {
    fn chosen() -> Slices {
        match std::env::var("POSTLUDE_BENCH_SLICES").as_deref() {
            Ok("long") => Slices { seconds: 0.16, rounds: 9 },
            _ => Slices { seconds: 0.005, rounds: 41 },
        }
    }
}

impl Contest<'_> {
    /// Runs it and prints a table.
    pub fn run(self, stream: &Arc<CudaStream>, operands: &mut Operands) -> Result<()> {
        let only = std::env::var("POSTLUDE_BENCH_CONTEST").unwrap_or_default();
        if !self.title.contains(&only) {
            return Ok(());
        }
        let slices = Slices::chosen();
        let count = self.contenders.len();
        let mut repeats = Vec::new();
        for contender in &self.contenders {
            time(stream, operands, contender, 1)?;
            let once = time(stream, operands, contender, 3)?;
            repeats.push(((slices.seconds / once) as usize).max(1));
        }
        // The clock falls while the chip warms up.
        for (contender, repeat) in self.contenders.iter().zip(&repeats) {
            time(stream, operands, contender, ((0.3 / slices.seconds) as usize * repeat / count).max(1))?;
        }
        let (mut times, mut ratios, mut random) = (vec![Vec::new(); count], vec![Vec::new(); count], 0x9e37_79b9_7f4a_7c15u64);
        for _ in 0..slices.rounds {
            let mut order: Vec<usize> = (0..count).collect();
            for i in (1..count).rev() {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                order.swap(i, (random >> 33) as usize % (i + 1));
            }
            let mut round = vec![0.0; count];
            for i in order {
                round[i] = time(stream, operands, &self.contenders[i], repeats[i])?;
            }
            for i in 0..count {
                times[i].push(round[i]);
                ratios[i].push(round[i] / round[0]);
            }
        }
        println!("\n{} ({} rounds of {} ms)", self.title, slices.rounds, slices.seconds * 1e3);
        println!("  {:<58} {:>10} {:>9}   time over the first", "", "us", self.unit);
        for (i, contender) in self.contenders.iter().enumerate() {
            let (time, ratio) = (quantile(&mut times[i], 0.5), &mut ratios[i]);
            let (low, median, high) = (quantile(ratio, 0.1), quantile(ratio, 0.5), quantile(ratio, 0.9));
            println!(
                "  {:<58} {:>10.1} {:>9.2}   {median:.3} [{low:.3}, {high:.3}]",
                contender.name,
                time * 1e6,
                self.work / time / 1e12
            );
        }
        Ok(())
    }
}

/// Seconds of one launch, over `repeat` of them.
fn time(stream: &Arc<CudaStream>, operands: &mut Operands, contender: &Contender<'_>, repeat: usize) -> Result<f64> {
    let start = stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))?;
    for turn in 0..repeat {
        (contender.launch)(operands, turn);
    }
    let end = stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT))?;
    end.synchronize()?;
    Ok(f64::from(start.elapsed_ms(&end)?) / 1e3 / repeat as f64)
}

fn quantile(values: &mut [f64], q: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * q).round() as usize]
}

/// Measures one kernel by itself.
pub fn criterion(criterion: &mut Criterion, stream: &Arc<CudaStream>, name: &str, mut launch: impl FnMut(usize)) {
    criterion.bench_function(name, |b| {
        b.iter_custom(|iterations| {
            let event = || stream.record_event(Some(CUevent_flags::CU_EVENT_DEFAULT)).expect("an event");
            let start = event();
            (0..iterations).for_each(|turn| launch(turn as usize));
            let end = event();
            end.synchronize().expect("the launches to end well");
            Duration::from_secs_f64(f64::from(start.elapsed_ms(&end).expect("both events to have happened")) / 1e3)
        });
    });
}
