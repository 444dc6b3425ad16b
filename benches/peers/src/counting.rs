//! Counts what is allocated, while somebody asks for it.
//!
//! An allocator that always counts would be measured with the subjects: it takes as long as the allocation itself, and calls that
//! allocate would look worse than they are. This one looks at a word that nobody changes while time is measured, and hands on to the
//! system's.

#![allow(unsafe_code, reason = "an allocator cannot be written without; it only hands on, and counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};

/// What was allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    pub allocations: u64,
    pub bytes: u64,
    /// Of the bytes, those that were not freed again.
    pub kept: i64,
}

/// Counts what is allocated while `f` runs. One thing at a time, and no other thread may be busy: all that is allocated is counted.
pub fn counted(f: impl FnOnce()) -> Counted {
    let before = total();
    assert!(!COUNTS.swap(true, Relaxed), "two measurements at once would count each other's");
    f();
    COUNTS.store(false, Relaxed);
    let after = total();
    Counted {
        allocations: after.allocations - before.allocations,
        bytes: after.bytes - before.bytes,
        kept: after.kept - before.kept,
    }
}

fn total() -> Counted {
    Counted { allocations: ALLOCATIONS.load(Relaxed), bytes: BYTES.load(Relaxed), kept: KEPT.load(Relaxed) }
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

static COUNTS: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static KEPT: AtomicI64 = AtomicI64::new(0);

// SAFETY: all is handed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if COUNTS.load(Relaxed) {
            allocated(layout.size());
        }
        // SAFETY: what the caller promises is what is asked for.
        unsafe { System.alloc(layout) }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if COUNTS.load(Relaxed) {
            allocated(layout.size());
        }
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    #[inline]
    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if COUNTS.load(Relaxed) {
            allocated(size);
            freed(layout.size());
        }
        // SAFETY: as above.
        unsafe { System.realloc(place, layout, size) }
    }

    #[inline]
    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        if COUNTS.load(Relaxed) {
            freed(layout.size());
        }
        // SAFETY: as above.
        unsafe { System.dealloc(place, layout) }
    }
}

#[cold]
fn allocated(bytes: usize) {
    ALLOCATIONS.fetch_add(1, Relaxed);
    BYTES.fetch_add(bytes as u64, Relaxed);
    KEPT.fetch_add(bytes as i64, Relaxed);
}

#[cold]
fn freed(bytes: usize) {
    KEPT.fetch_sub(bytes as i64, Relaxed);
}
