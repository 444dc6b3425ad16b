//! The order of events: each run of an executor is a story with a beginning and an end.

use std::sync::{Arc, Mutex};

use steadfast::event::{Event, Observer, What};

use super::run::Run;
use super::world::Notes;

/// The observer of one client, whose runs come one after the other.
#[derive(Clone)]
pub(super) struct Story(Arc<Mutex<Page>>, Arc<Notes>);

#[derive(Default)]
struct Page {
    run: Option<Arc<Run>>,
    is_begun: bool,
    is_over: bool,
    /// The tries whose operation was started, in order, each with its lane.
    started: Vec<(u32, u32)>,
    finished: Vec<(u32, u32)>,
    lanes: Vec<(u32, u32)>,
}

impl Story {
    pub(super) fn new(notes: &Arc<Notes>) -> Story {
        Story(Arc::default(), Arc::clone(notes))
    }

    /// The next run begins.
    pub(super) fn turn(&self, run: &Arc<Run>) {
        *self.0.lock().unwrap() = Page { run: Some(Arc::clone(run)), ..Page::default() };
    }

    /// The run was not dropped, so its story has an end.
    pub(super) fn is_told(&self) {
        let is_over = self.0.lock().unwrap().is_over;
        self.1.expect(is_over, || "a run ends without its last event");
    }
}

impl Observer for Story {
    fn on_event(&self, event: &Event) {
        let Story(page, notes) = self;
        notes.trace((event.attempt, event.hedge, &event.what));
        let mut page = page.lock().unwrap();
        let first = matches!(event.what, What::RunStarted);
        notes.expect(page.is_begun != first, || {
            format!("not the first event, or not the last one of that kind: {event:?}")
        });
        notes.expect(!page.is_over, || format!("an event after the last one: {event:?}"));
        page.is_begun = true;
        page.turn(event, notes);
    }
}

impl Page {
    fn turn(&mut self, event: &Event, notes: &Notes) {
        let at = (event.attempt, event.hedge);
        match &event.what {
            What::AttemptStarted => {
                let before =
                    self.started.iter().filter(|(_, lane)| *lane == event.hedge).map(|(number, _)| *number).max();
                let in_order = before.is_none_or(|before| event.attempt > before);
                notes.expect(in_order || self.lanes_are_nested(), || format!("{event:?} after {:?}", self.started));
                notes.expect(event.hedge == 0 || self.has_lane(event.hedge), || {
                    format!("a lane without a start: {event:?}")
                });
                self.started.push(at);
            }
            What::AttemptFinished { .. } => {
                let open = self.started.contains(&at) && !self.finished.contains(&at);
                notes.expect(open || self.lanes_are_nested(), || {
                    format!("{event:?} after {:?} and {:?}", self.started, self.finished)
                });
                self.finished.push(at);
            }
            What::HedgeStarted => self.lanes.push(at),
            What::RetryScheduled { delay, .. } => {
                let due = notes.now() + *delay;
                let deadline = self.run.as_ref().and_then(|run| run.deadline);
                notes.expect(deadline.is_none_or(|at| due < at), || {
                    format!("a wait that cannot end in time: {event:?}")
                });
            }
            What::RunFinished { attempts, .. } => {
                let made = self.run.as_ref().map_or(0, |run| run.attempts());
                notes.expect(*attempts == made, || format!("{made} attempts, not {event:?}"));
                notes.expect(self.started.len() as u32 == made, || format!("{made} attempts, not {:?}", self.started));
                self.is_over = true;
            }
            _ => {}
        }
    }

    /// A hedge inside of a hedge numbers its lanes from 0 again, so nobody can tell them apart.
    fn lanes_are_nested(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.chain.hedges > 1)
    }

    fn has_lane(&self, lane: u32) -> bool {
        self.lanes.iter().any(|(_, started)| *started == lane)
    }
}
