//! Cells of an experiment on all cores. Each cell is a world of its own, so their order does not matter.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::progress::Progress;
use crate::sim::lock;

/// What `run` makes of each item, in the order of the items.
pub(crate) fn map<T: Sync, R: Send>(progress: &Progress, items: &[T], run: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(items.len());
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some((index, item)) = take(&next, items) {
            let result = run(item);
            let mut done = lock(&done);
            done.push((index, result));
            progress.show(done.len(), items.len());
        }
    };
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let mut done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    done.sort_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

fn take<'a, T>(next: &AtomicUsize, items: &'a [T]) -> Option<(usize, &'a T)> {
    let index = next.fetch_add(1, Ordering::Relaxed);
    items.get(index).map(|item| (index, item))
}
