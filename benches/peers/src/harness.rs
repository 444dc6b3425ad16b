//! Measures calls: many subjects in turn, on one thread or on more.

use std::hint::{black_box, spin_loop};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};

use crate::counting::counted as count_allocated;

/// What a subject does in a case: makes so many calls on the thread that it is given and returns how many succeeded. Threads
/// that run one work share what is behind it: one breaker, one executor.
#[derive(Clone)]
pub struct Work(Arc<Batch>);

type Batch = dyn Fn(&Lane, u64) -> u64 + Send + Sync;

impl Work {
    pub fn new(batch: impl Fn(&Lane, u64) -> u64 + Send + Sync + 'static) -> Work {
        Work(Arc::new(batch))
    }
}

/// Makes calls one after another by polling each future where it stands, again and again until it is ready.
///
/// All cases but those of [`Lane::await_each`] are driven by this loop: their futures are ready at once or when polled again,
/// so neither a task nor a waker nor a turn of the runtime is measured. The thread has entered a runtime, so that timers can
/// register.
///
/// Each future is shown to a black box first: in a program it lies in the memory of its task, where the compiler has to put
/// it, and is not taken apart into the registers of a loop.
pub fn poll_each<T, E, F>(calls: u64, mut call: impl FnMut() -> F) -> u64
where
    F: Future<Output = Result<T, E>>,
{
    let mut cx = Context::from_waker(Waker::noop());
    let mut succeeded = 0;
    for _ in 0..calls {
        let mut future = pin!(call());
        black_box(&mut future);
        let result = loop {
            if let Poll::Ready(result) = future.as_mut().poll(&mut cx) {
                break black_box(result);
            }
        };
        succeeded += u64::from(result.is_ok());
    }
    succeeded
}

/// Makes `calls` calls of a work on this thread, after as many to warm up. A profiler that counts instructions is told to look
/// into [`counted`] alone.
pub fn count_instructions(work: &Work, answers: Answers, calls: u64) {
    let lane = Lane::new();
    let _entered = lane.runtime.enter();
    let calls = calls.next_multiple_of(answers.of);
    let warm = work.0(&lane, calls);
    let succeeded = counted(work, &lane, calls);
    let expected = calls / answers.of * answers.successes;
    assert_eq!((warm, succeeded), (expected, expected), "so many of {calls} calls should have succeeded");
}

/// A name that a profiler can find: only what happens in here is counted.
#[inline(never)]
fn counted(work: &Work, lane: &Lane, calls: u64) -> u64 {
    black_box(work.0(lane, calls))
}

/// A thread that measures, as a work sees it.
pub struct Lane {
    runtime: Runtime,
}

impl Lane {
    fn new() -> Lane {
        let runtime = Builder::new_current_thread().enable_time().build();
        Lane { runtime: runtime.expect("a runtime without i/o asks nothing of the system that it could refuse") }
    }

    /// Makes calls one after another in a task of the runtime, for a case in which some subject really waits.
    pub fn await_each<T, E>(&self, calls: u64, mut call: impl AsyncFnMut() -> Result<T, E>) -> u64 {
        self.runtime.block_on(async {
            let mut succeeded = 0;
            for _ in 0..calls {
                let mut future = pin!(call());
                black_box(&mut future);
                succeeded += u64::from(black_box(future.await).is_ok());
            }
            succeeded
        })
    }
}

/// How many of the calls succeed, in a pattern that repeats. A subject that answers otherwise does something else than the case
/// asks for: it is not measured, the run ends.
#[derive(Clone, Copy)]
pub struct Answers {
    pub successes: u64,
    pub of: u64,
}

impl Answers {
    pub const ALL: Answers = Answers { successes: 1, of: 1 };
}

/// What is measured, on as many threads as it has works.
pub struct Subject {
    pub name: String,
    pub works: Vec<Work>,
    pub answers: Answers,
}

/// How long to measure: so many passes over everything, each of so many rounds. A machine that is shared has moods of seconds, so
/// each subject is visited at several times, and its smallest mean comes from the best of them.
#[derive(Clone, Copy)]
pub struct Effort {
    pub name: &'static str,
    pub passes: usize,
    pub rounds: usize,
}

impl Effort {
    pub const QUICK: Effort = Effort { name: "quick", passes: 6, rounds: 31 };
    pub const FULL: Effort = Effort { name: "full", passes: 12, rounds: 61 };
}

/// What one subject needs for a call.
#[derive(Clone, Copy, Default)]
pub struct Cost {
    pub median_ns: f64,
    pub min_ns: f64,
    pub allocations: f64,
    pub bytes: f64,
}

/// Subjects that are compared with each other, and what was measured so far.
pub struct Group(Vec<(Subject, Series)>);

/// The mean times of the batches of one subject.
struct Series {
    calls: u64,
    means: Vec<f64>,
}

impl Group {
    pub fn new(subjects: Vec<Subject>, threads: &Threads) -> Group {
        let known = |subject| {
            let calls = threads.calls_in_a_batch(&subject);
            (subject, Series { calls, means: Vec::new() })
        };
        Group(subjects.into_iter().map(known).collect())
    }

    /// Each round visits all subjects, beginning one further than the last, so that the mood of the machine hits all alike.
    pub fn pass(&mut self, threads: &Threads, rounds: usize) {
        let subjects = self.0.len();
        for (round, turn) in (0..rounds).flat_map(|round| (0..subjects).map(move |turn| (round, turn))) {
            let (subject, series) = &mut self.0[(round + turn) % subjects];
            series.means.push(threads.batch(subject, series.calls));
        }
    }

    /// In the order of the subjects.
    pub fn costs(self, threads: &Threads) -> Vec<Cost> {
        let cost = |(Subject { works, .. }, Series { calls, mut means })| {
            means.sort_by(f64::total_cmp);
            let counted = &threads.run(&works[..1], calls, &What::Allocations)[0];
            Cost {
                median_ns: means[means.len() / 2],
                min_ns: means[0],
                allocations: counted.allocations as f64 / calls as f64,
                bytes: counted.bytes as f64 / calls as f64,
            }
        };
        self.0.into_iter().map(cost).collect()
    }
}

/// The threads that measure. They live as long as the process, each on a core of its own where the system allows it.
pub struct Threads(Vec<Thread>);

struct Thread {
    jobs: Sender<Job>,
    done: Receiver<Done>,
}

/// Calls of one work, begun on all threads together.
struct Job {
    work: Work,
    calls: u64,
    start: Arc<Gate>,
    what: What,
}

#[derive(Clone)]
enum What {
    Time,
    Allocations,
    /// The time of each call, after this.
    Each(Before),
}

/// What is done before a call, and not measured.
pub type Before = Arc<dyn Fn() + Send + Sync>;

#[derive(Default)]
struct Done {
    succeeded: u64,
    took: Duration,
    allocations: u64,
    bytes: u64,
    each: Vec<u64>,
}

impl Threads {
    pub fn start(n: usize) -> Threads {
        let mut cores = core_affinity::get_core_ids().unwrap_or_default().into_iter();
        let threads = (0..n).map(|_| {
            let core = cores.next();
            let (jobs, incoming) = channel();
            let (outgoing, done) = channel();
            std::thread::spawn(move || {
                if let Some(core) = core {
                    // If it is refused, the scheduler decides; the figures are a little noisier.
                    core_affinity::set_for_current(core);
                }
                work_off(&incoming, &outgoing);
            });
            Thread { jobs, done }
        });
        Threads(threads.collect())
    }

    /// The time of each of so many calls on each thread, in ns.
    pub fn each(&self, subject: &Subject, calls: u64, before: &Before) -> Vec<u64> {
        let Subject { name, works, answers: _ } = subject;
        let done = self.run(works, calls, &What::Each(Before::clone(before)));
        assert!(done.iter().all(|thread| thread.succeeded == calls), "{name}: all {calls} calls should have succeeded");
        done.into_iter().flat_map(|thread| thread.each).collect()
    }

    /// Also warms up: caches, branch predictors, thread-locals, whatever a subject allocates once.
    fn calls_in_a_batch(&self, subject: &Subject) -> u64 {
        let wanted = BATCH.as_nanos() as f64;
        let mut calls = subject.answers.of;
        loop {
            // Twice: one that the scheduler has interrupted would make all batches to come too small.
            let took = self.batch(subject, calls).min(self.batch(subject, calls)) * calls as f64;
            if took >= wanted / 2.0 {
                let calls = (calls as f64 * wanted / took) as u64;
                return calls.max(1).next_multiple_of(subject.answers.of);
            }
            calls *= 4;
        }
    }

    /// The mean time of a call in one batch, in ns; with several threads the mean of theirs.
    fn batch(&self, subject: &Subject, calls: u64) -> f64 {
        let Subject { name, works, answers } = subject;
        let done = self.run(works, calls, &What::Time);
        for thread in &done {
            let expected = calls / answers.of * answers.successes;
            assert_eq!(thread.succeeded, expected, "{name}: so many of {calls} calls should have succeeded");
        }
        let total: f64 = done.iter().map(|thread| thread.took.as_nanos() as f64).sum();
        total / works.len() as f64 / calls as f64
    }

    /// Each work on a thread of its own.
    fn run(&self, works: &[Work], calls: u64, what: &What) -> Vec<Done> {
        let start = Arc::new(Gate { missing: AtomicUsize::new(works.len()) });
        let threads = &self.0[..works.len()];
        for (thread, work) in threads.iter().zip(works) {
            let job = Job { work: work.clone(), calls, start: Arc::clone(&start), what: what.clone() };
            thread.jobs.send(job).expect("threads run until the process ends, or have said why not");
        }
        threads.iter().map(|thread| thread.done.recv().expect("a thread that panicked has said why")).collect()
    }
}

fn work_off(jobs: &Receiver<Job>, done_with: &Sender<Done>) {
    let lane = Lane::new();
    let _entered = lane.runtime.enter();
    for Job { work, calls, start, what } in jobs {
        start.pass();
        let done = match what {
            What::Time => time(&work, &lane, calls),
            What::Allocations => count_allocations(&work, &lane, calls),
            What::Each(before) => time_each(&work, &lane, calls, &*before),
        };
        // Dropped before anybody is told, so that nothing happens on this thread while another one measures.
        drop(work);
        let _main_is_gone = done_with.send(done);
    }
}

fn time(work: &Work, lane: &Lane, calls: u64) -> Done {
    let begun = Instant::now();
    let succeeded = work.0(lane, calls);
    Done { succeeded, took: begun.elapsed(), ..Done::default() }
}

fn count_allocations(work: &Work, lane: &Lane, calls: u64) -> Done {
    let mut succeeded = 0;
    let counted = count_allocated(|| succeeded = work.0(lane, calls));
    Done { succeeded, allocations: counted.allocations, bytes: counted.bytes, ..Done::default() }
}

/// With the system's clock, which waits until all that comes before a reading is done: the processor's counter does not, and
/// would be read while a call still waits for another core.
fn time_each(work: &Work, lane: &Lane, calls: u64, before: &dyn Fn()) -> Done {
    // Written once, so that no page is missing later.
    let mut each = vec![1; calls as usize];
    // Another subject has used the caches since.
    work.0(lane, WARM_UP);
    let mut succeeded = 0;
    for took in &mut each {
        before();
        let begun = Instant::now();
        succeeded += work.0(lane, 1);
        *took = begun.elapsed().as_nanos() as u64;
    }
    Done { succeeded, each, ..Done::default() }
}

/// Opens when all threads have come. They spin: one that sleeps begins late.
struct Gate {
    missing: AtomicUsize,
}

impl Gate {
    fn pass(&self) {
        self.missing.fetch_sub(1, Ordering::AcqRel);
        while self.missing.load(Ordering::Acquire) > 0 {
            spin_loop();
        }
    }
}

/// For what is built, tripped and dropped outside of the measuring threads: timers and clocks ask for a runtime.
pub fn enter_runtime() -> tokio::runtime::EnterGuard<'static> {
    static LANE: OnceLock<Lane> = OnceLock::new();
    LANE.get_or_init(Lane::new).runtime.enter()
}

/// The size of a future in bytes, with what is allocated to make it.
pub fn size_of_future<F>(make: impl FnOnce() -> F) -> usize {
    let mut inline = 0;
    let counted = count_allocated(|| inline = size_of_val(&black_box(make())));
    inline + counted.bytes as usize
}

/// Bytes on the heap while what `make` builds is alive.
pub fn heap_of<K>(make: impl FnOnce() -> K) -> i64 {
    let mut kept = None;
    let counted = count_allocated(|| kept = Some(black_box(make())));
    drop(kept);
    counted.kept
}

/// Long enough for the clock, short enough to end before the scheduler interferes.
const BATCH: Duration = Duration::from_micros(500);

/// Calls before those that are timed one by one.
const WARM_UP: u64 = 100;
