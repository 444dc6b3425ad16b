//! Words that are read together, by every call, and may be changed meanwhile.
//!
//! One writer at a time (it holds the lock) makes the version odd, stores the words and makes it even again. A reader who found the
//! same even version before and after has words that belong together. The words are loaded `Acquire` and stored `Release`:
//! whoever sees a new one sees the odd version that was stored before it, or a later one, when it looks at the version again. A
//! reader who was disturbed does not spin; it takes the lock, under which nothing changes.
//!
//! It is the protocol of the thresholds of a breaker, for any number of words.

use std::array;

use crate::sync::{AtomicU64, Mutex, Ordering, lock};

#[derive(Debug)]
pub(super) struct Live<const N: usize> {
    /// Odd while the words are being changed.
    version: AtomicU64,
    words: [AtomicU64; N],
    writing: Mutex<()>,
}

impl<const N: usize> Live<N> {
    pub(super) fn new(words: [u64; N]) -> Live<N> {
        Live { version: AtomicU64::new(0), words: words.map(AtomicU64::new), writing: Mutex::new(()) }
    }

    /// The words of one change.
    #[inline]
    pub(super) fn read(&self) -> [u64; N] {
        self.try_read().unwrap_or_else(|| self.read_locked())
    }

    /// Changes all words.
    pub(super) fn store(&self, next: &[u64; N]) {
        let _one_at_a_time = lock(&self.writing);
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Release);
        for (word, next) in self.words.iter().zip(next) {
            word.store(*next, Ordering::Release);
        }
        self.version.store(version + 2, Ordering::Release);
    }

    #[inline]
    fn try_read(&self) -> Option<[u64; N]> {
        let version = self.version.load(Ordering::Acquire);
        let words = array::from_fn(|n| self.words[n].load(Ordering::Acquire));
        let undisturbed = version.is_multiple_of(2) && self.version.load(Ordering::Acquire) == version;
        undisturbed.then_some(words)
    }

    #[cold]
    fn read_locked(&self) -> [u64; N] {
        let _unchanged = lock(&self.writing);
        array::from_fn(|n| self.words[n].load(Ordering::Acquire))
    }
}

#[cfg(all(test, steadfast_loom))]
mod loom_models {
    use loom::sync::Arc;
    use loom::thread;

    use super::*;

    #[test]
    fn loom_words_of_one_change_are_read_together() {
        loom::model(|| {
            let live = Arc::new(Live::new([1, 1]));
            let writer = thread::spawn({
                let live = Arc::clone(&live);
                move || live.store(&[2, 2])
            });
            let [first, second] = live.read();
            assert_eq!(first, second);
            writer.join().expect("a model thread does not panic");
            assert_eq!(live.read(), [2, 2]);
        });
    }

    #[test]
    fn loom_two_changes_leave_the_words_of_one() {
        loom::model(|| {
            let live = Arc::new(Live::new([1, 1]));
            let writer = thread::spawn({
                let live = Arc::clone(&live);
                move || live.store(&[2, 2])
            });
            live.store(&[3, 3]);
            writer.join().expect("a model thread does not panic");
            let [first, second] = live.read();
            assert_eq!(first, second);
        });
    }
}
