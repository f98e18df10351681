//! The results of earlier requests, of any type: the shortest path to a kernel, without planning and printing.
//!
//! The cache does not know about plans, so a memo has any type. A device keeps prepared launches in the same way. Their
//! number is bounded.

use super::generations::Generations;
use super::key::CacheKey;
use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Memos in a generation. A plan with its source takes some 50 KiB.
const GENERATION: usize = 128;

type Anything = Arc<dyn Any + Send + Sync>;

pub(crate) struct Memos {
    memos: Mutex<Generations<CacheKey, Anything>>,
}

impl Default for Memos {
    fn default() -> Self {
        Self { memos: Mutex::new(Generations::new(GENERATION)) }
    }
}

impl Memos {
    fn lock(&self) -> MutexGuard<'_, Generations<CacheKey, Anything>> {
        self.memos.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get<T: Any + Send + Sync>(&self, key: &CacheKey) -> Option<Arc<T>> {
        let found = self.lock().get(key)?.clone();
        found.downcast().ok()
    }

    pub fn keep<T: Any + Send + Sync>(&self, key: CacheKey, memo: Arc<T>) {
        self.lock().insert(key, memo);
    }

    pub fn forget_all(&self) {
        self.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memo_is_of_one_type() {
        let (memos, key) = (Memos::default(), CacheKey::of_note(&["a memo"]));
        assert_eq!(memos.get::<usize>(&key), None);
        memos.keep(key, Arc::new(7_usize));
        assert_eq!((memos.get::<usize>(&key).as_deref(), memos.get::<String>(&key)), (Some(&7), None));
        memos.forget_all();
        assert_eq!(memos.get::<usize>(&key), None);
    }
}
