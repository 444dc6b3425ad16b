//! Those who wait for a bucket.

use std::task::Waker;

use super::super::super::line::{Line, Waiter};
use super::Asked;

/// Those who wait for one bucket, and for how much. Made when somebody first waits: of 100,000 keyed buckets few ever have anybody,
/// and the others take less memory, which a call has to fetch.
#[derive(Debug)]
pub(super) struct Queue(Option<Box<Waiting>>);

#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) line: Line<Asked>,
    /// The tokens that all in the line wait for.
    pub(super) weight: u64,
}

impl Queue {
    pub(super) fn new() -> Queue {
        Queue(None)
    }

    pub(super) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |waiting| waiting.line.len())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn weight(&self) -> u64 {
        self.0.as_ref().map_or(0, |waiting| waiting.weight)
    }

    /// Takes those out that `stays` refuses, asked from the first to the last, with the weight of those who stay before.
    pub(super) fn retain(&mut self, stays: impl Fn(&Asked, u64) -> bool) -> Vec<Waiter<Asked>> {
        let Some(waiting) = &mut self.0 else { return Vec::new() };
        waiting.weight = 0;
        waiting.line.retain(|asked| {
            let stays = stays(asked, waiting.weight);
            waiting.weight = waiting.weight.saturating_add(if stays { asked.weight } else { 0 });
            stays
        })
    }

    /// The waker of the first, to be woken; `None` if that was done and it was not polled since.
    pub(super) fn take_first_waker(&mut self) -> Option<Waker> {
        self.0.as_mut()?.line.take_first_waker()
    }

    pub(super) fn waiting(&mut self) -> &mut Waiting {
        self.0.get_or_insert_with(|| Box::new(Waiting { line: Line::new(), weight: 0 }))
    }
}
