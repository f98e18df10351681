//! Work that is done once, for any number of requests.
//!
//! The first thread that asks for a key does the work. Later threads wait and share the result. An error goes to the
//! waiting threads and is then forgotten, so the next request tries again. If the worker panics, a waiting thread takes
//! over. The number of results is bounded: results that were not requested for long are forgotten, and computed again.

use super::generations::Generations;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Results in a generation. A kernel takes some 30 to 60 KiB.
const GENERATION: usize = 512;

pub(super) struct Flights<K, V, E> {
    slots: Mutex<Slots<K, V, E>>,
}

struct Slots<K, V, E> {
    landed: Generations<K, V>,
    flying: HashMap<K, Arc<Flight<V, E>>>,
}

struct Flight<V, E> {
    state: Mutex<State<V, E>>,
    changed: Condvar,
}

enum State<V, E> {
    Flying,
    Landed(Result<V, E>),
    /// The worker panicked.
    Lost,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No state is left incomplete: each critical section ends with its change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<K: Hash + Eq + Clone, V: Clone, E: Clone> Flights<K, V, E> {
    pub fn new() -> Self {
        Self { slots: Mutex::new(Slots { landed: Generations::new(GENERATION), flying: HashMap::new() }) }
    }

    /// The value for `key`. `work` computes it if no thread has it or is computing it.
    pub fn get_or_try(&self, key: &K, work: impl FnOnce() -> Result<V, E>) -> Result<V, E> {
        let flight = loop {
            let flying = {
                let mut slots = lock(&self.slots);
                if let Some(value) = slots.landed.get(key) {
                    return Ok(value.clone());
                }
                match slots.flying.get(key) {
                    Some(flight) => flight.clone(),
                    None => {
                        let flight = Arc::new(Flight { state: Mutex::new(State::Flying), changed: Condvar::new() });
                        slots.flying.insert(key.clone(), flight.clone());
                        break flight;
                    }
                }
            };
            let mut state = lock(&flying.state);
            loop {
                match &*state {
                    State::Flying => state = flying.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                    State::Landed(result) => return result.clone(),
                    State::Lost => break,
                }
            }
        };
        let mut landing = Landing { flights: self, key, flight, outcome: State::Lost };
        let result = work();
        landing.outcome = State::Landed(result.clone());
        result
    }

    /// Forgets the value of `key` if `condition` holds for it.
    pub fn forget_if(&self, key: &K, condition: impl FnOnce(&V) -> bool) {
        let mut slots = lock(&self.slots);
        if slots.landed.get(key).is_some_and(condition) {
            slots.landed.remove(key);
        }
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        lock(&self.slots).landed.len()
    }
}

/// Tells every waiting thread the outcome, also after a panic.
struct Landing<'a, K: Hash + Eq + Clone, V: Clone, E: Clone> {
    flights: &'a Flights<K, V, E>,
    key: &'a K,
    flight: Arc<Flight<V, E>>,
    outcome: State<V, E>,
}

impl<K: Hash + Eq + Clone, V: Clone, E: Clone> Drop for Landing<'_, K, V, E> {
    fn drop(&mut self) {
        let outcome = std::mem::replace(&mut self.outcome, State::Lost);
        let mut slots = lock(&self.flights.slots);
        slots.flying.remove(self.key);
        if let State::Landed(Ok(value)) = &outcome {
            slots.landed.insert(self.key.clone(), value.clone());
        }
        drop(slots);
        *lock(&self.flight.state) = outcome;
        self.flight.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::time::Duration;

    type Numbers = Flights<u32, u32, String>;

    #[test]
    fn many_ask_one_works() {
        let (flights, calls, start) = (Numbers::new(), AtomicUsize::new(0), Barrier::new(16));
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    start.wait();
                    let value = flights.get_or_try(&1, || {
                        std::thread::sleep(Duration::from_millis(20));
                        Ok(calls.fetch_add(1, SeqCst) as u32 + 40)
                    });
                    assert_eq!(value, Ok(40));
                });
            }
        });
        assert_eq!((calls.load(SeqCst), flights.len()), (1, 1));
    }

    #[test]
    fn different_keys_do_not_wait_for_each_other() {
        let (flights, meet) = (Numbers::new(), Barrier::new(2));
        std::thread::scope(|scope| {
            for key in [1, 2] {
                let (flights, meet) = (&flights, &meet);
                scope.spawn(move || {
                    let work = || {
                        meet.wait();
                        Ok(key)
                    };
                    assert_eq!(flights.get_or_try(&key, work), Ok(key));
                });
            }
        });
    }

    #[test]
    fn an_error_is_shared_but_not_kept() {
        let (flights, calls, start) = (Numbers::new(), AtomicUsize::new(0), Barrier::new(8));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    start.wait();
                    let result = flights.get_or_try(&1, || {
                        std::thread::sleep(Duration::from_millis(50));
                        calls.fetch_add(1, SeqCst);
                        Err("no".to_owned())
                    });
                    assert_eq!(result, Err("no".to_owned()));
                });
            }
        });
        assert!(calls.load(SeqCst) < 8);
        assert_eq!(flights.get_or_try(&1, || Ok(5)), Ok(5), "the next may try again");
    }

    #[test]
    fn a_panic_hands_the_work_on() {
        let (flights, under_way) = (Numbers::new(), Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let crash = catch_unwind(AssertUnwindSafe(|| {
                    let _ = flights.get_or_try(&1, || {
                        under_way.wait();
                        std::thread::sleep(Duration::from_millis(20));
                        panic!("expected by this test");
                    });
                }));
                assert!(crash.is_err());
            });
            under_way.wait();
            assert_eq!(flights.get_or_try(&1, || Ok(6)), Ok(6));
        });
    }

    #[test]
    fn forgetting_is_conditional() {
        let flights = Numbers::new();
        assert_eq!(flights.get_or_try(&1, || Ok(7)), Ok(7));
        flights.forget_if(&1, |value| *value == 8);
        assert_eq!(flights.get_or_try(&1, || Ok(9)), Ok(7));
        flights.forget_if(&1, |value| *value == 7);
        assert_eq!(flights.get_or_try(&1, || Ok(9)), Ok(9));
        flights.forget_if(&2, |_| true);
    }
}
