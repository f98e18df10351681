//! What was made of a request the last time, whatever it is: the shortest way to a kernel, past planning and printing.
//!
//! The cache knows nothing of plans, so a memo is of any type; a device keeps prepared launches in the same way.
//! They are bounded: two generations, of which the older one is dropped when the younger one is full; what is asked for is young again.

use super::key::CacheKey;
use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many a generation holds. A plan with its source takes some 50 KiB.
const GENERATION: usize = 128;

type Anything = Arc<dyn Any + Send + Sync>;

#[derive(Default)]
pub(crate) struct Memos {
    generations: Mutex<[HashMap<CacheKey, Anything>; 2]>,
}

impl Memos {
    fn lock(&self) -> MutexGuard<'_, [HashMap<CacheKey, Anything>; 2]> {
        self.generations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get<T: Any + Send + Sync>(&self, key: &CacheKey) -> Option<Arc<T>> {
        let mut generations = self.lock();
        let found = match generations[0].get(key) {
            Some(found) => found.clone(),
            None => {
                let found = generations[1].remove(key)?;
                Self::insert(&mut generations, *key, found.clone());
                found
            }
        };
        found.downcast().ok()
    }

    pub fn keep<T: Any + Send + Sync>(&self, key: CacheKey, memo: Arc<T>) {
        Self::insert(&mut self.lock(), key, memo);
    }

    fn insert(generations: &mut [HashMap<CacheKey, Anything>; 2], key: CacheKey, memo: Anything) {
        if generations[0].len() >= GENERATION {
            generations[1] = std::mem::take(&mut generations[0]);
        }
        generations[0].insert(key, memo);
    }

    pub fn forget_all(&self) {
        *self.lock() = Default::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> CacheKey {
        CacheKey::of_note(&[&number.to_string()])
    }

    #[test]
    fn what_is_asked_for_stays_and_the_rest_is_bounded() {
        let memos = Memos::default();
        assert_eq!(memos.get::<usize>(&key(0)), None);
        for number in 0..10 * GENERATION {
            memos.keep(key(number), Arc::new(number));
            assert_eq!(memos.get::<usize>(&key(0)).as_deref(), Some(&0), "asked for again and again");
        }
        let held = memos.lock().iter().map(HashMap::len).sum::<usize>();
        assert!((GENERATION..=2 * GENERATION).contains(&held), "{held}");
        assert_eq!(memos.get::<usize>(&key(1)), None);
        assert_eq!(memos.get::<String>(&key(0)), None, "of another type");
        memos.forget_all();
        assert_eq!(memos.get::<usize>(&key(0)), None);
    }
}
