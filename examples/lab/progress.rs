//! What a person sees who waits.

use std::io::{IsTerminal, Write, stderr};

/// Tells on stderr how far an experiment is: in one line that changes on a terminal, in a line for each quarter elsewhere.
pub(crate) struct Progress {
    what: String,
    on: bool,
}

impl Progress {
    pub(crate) fn of(what: impl Into<String>, quiet: bool) -> Progress {
        Progress { what: what.into(), on: !quiet }
    }

    /// So many of all are done. Called once for each, in their order.
    pub(crate) fn show(&self, done: usize, all: usize) {
        if !self.on {
            return;
        }
        let mut out = stderr().lock();
        // Nothing depends on whether it can be seen.
        let _ = if out.is_terminal() {
            let end = if done == all { "\r\x1b[K" } else { "" };
            write!(out, "\r{}: {done} of {all} runs{end}", self.what).and_then(|()| out.flush())
        } else if done == all || (done * 4) / all > ((done - 1) * 4) / all {
            writeln!(out, "{}: {done} of {all} runs", self.what)
        } else {
            Ok(())
        };
    }
}
