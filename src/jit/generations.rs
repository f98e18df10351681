//! A bounded map of two generations. When the younger one is full, the older one is dropped. A requested value becomes
//! young again.

use std::collections::HashMap;
use std::hash::Hash;

pub(super) struct Generations<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    /// Values in a generation.
    size: usize,
}

impl<K: Hash + Eq + Clone, V> Generations<K, V> {
    pub fn new(size: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), size }
    }

    pub fn get(&mut self, key: &K) -> Option<&V> {
        if let Some(value) = self.old.remove(key) {
            self.insert(key.clone(), value);
        }
        self.young.get(key)
    }

    pub fn insert(&mut self, key: K, value: V) {
        self.old.remove(&key);
        if self.young.len() >= self.size && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }

    pub fn remove(&mut self, key: &K) {
        self.old.remove(key);
        self.young.remove(key);
    }

    pub fn clear(&mut self) {
        self.old.clear();
        self.young.clear();
    }

    pub fn len(&self) -> usize {
        self.old.len() + self.young.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_stays_and_the_rest_is_bounded() {
        let mut map = Generations::new(128);
        assert_eq!(map.get(&0), None);
        for number in 0..1280 {
            map.insert(number, number);
            assert_eq!(map.get(&0), Some(&0), "asked for again and again");
        }
        assert_eq!(map.get(&1), None);
        assert_eq!(map.get(&1279), Some(&1279));
        assert!(map.len() <= 256, "{}", map.len());
    }

    #[test]
    fn a_key_has_one_value() {
        let mut map = Generations::new(1);
        map.insert(1, "first");
        map.insert(2, "second");
        map.insert(1, "third");
        assert_eq!(map.get(&1), Some(&"third"));
        assert_eq!(map.len(), 2);
        map.remove(&1);
        assert_eq!(map.get(&1), None);
        assert_eq!(map.get(&2), Some(&"second"));
        map.clear();
        assert_eq!(map.len(), 0);
    }
}
