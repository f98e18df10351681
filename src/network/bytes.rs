//! The elements of a tensor: there, or made when they are first read.
//!
//! Passes rewrite weights, which takes longer than all that depends on formats and shapes alone. So a plan looks for kernels
//! before the weights are there, and makes them while the driver loads the kernels.

use std::ops::Deref;
use std::sync::LazyLock;

/// Bytes of a tensor.
pub(super) enum Bytes {
    /// These.
    There(Vec<u8>),
    /// Those that a function makes, once for all readers. Then the function is gone, with the tensors that it read.
    Later(LazyLock<Vec<u8>, Box<dyn FnOnce() -> Vec<u8> + Send>>),
}

impl Bytes {
    /// Bytes that `make` makes for the first reader.
    pub fn later(make: impl FnOnce() -> Vec<u8> + Send + 'static) -> Bytes {
        Bytes::Later(LazyLock::new(Box::new(make)))
    }

    /// The bytes, for writing.
    pub fn as_mut(&mut self) -> &mut [u8] {
        if let Bytes::Later(made) = self {
            *self = Bytes::There(made.to_vec());
        }
        match self {
            Bytes::There(bytes) => bytes,
            Bytes::Later(_) => &mut [],
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::There(bytes) => bytes,
            Bytes::Later(made) => made,
        }
    }
}

impl Clone for Bytes {
    fn clone(&self) -> Bytes {
        Bytes::There(self.to_vec())
    }
}

impl PartialEq for Bytes {
    fn eq(&self, other: &Bytes) -> bool {
        **self == **other
    }
}

/// Two tensors that share bytes are equal without a look at them.
impl Eq for Bytes {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn later_bytes_are_made_once_and_only_if_read() {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = |bytes: Vec<u8>| {
            let calls = calls.clone();
            Bytes::later(move || {
                calls.fetch_add(1, Ordering::Relaxed);
                bytes
            })
        };
        let (read, mut written, _unread) = (counted(vec![1, 2]), counted(vec![3, 4]), counted(vec![5]));
        assert_eq!(calls.load(Ordering::Relaxed), 0);
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(|| assert_eq!(*read, [1, 2])))));
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        let before = written.clone();
        written.as_mut()[1] = 9;
        assert_eq!((&*before, &*written, calls.load(Ordering::Relaxed)), (&[3, 4][..], &[3, 9][..], 2));
        assert!(read == Bytes::There(vec![1, 2]) && read != written);
    }
}
